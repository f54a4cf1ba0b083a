"""The time of a store's clock, from the files that this process has just written."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pullstream.spark.stores import StoredFile

from .storage import Steps, put

# Seconds by which the two clocks may disagree. A put that takes longer is no evidence.
TOLERANCE = 60.0


class StoreClock:
    """Compares the store's times of own files with a clock that no one sets.

    Args:
        elapsed: A clock that no one sets and that also runs while the machine sleeps, in seconds.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._last: tuple[str, float] | None = None
        # Differences of the two clocks: the first one, and the newest one.
        self._first_offset: float | None = None
        self._offset = 0.0

    def put(self, path: str, data: bytes) -> Steps[bytes | None]:
        """Create a file, as `storage.put`, and note when."""
        begun = self._elapsed()
        content = yield from put(path, data)
        now = self._elapsed()
        is_evidence = content == data and now - begun <= TOLERANCE
        self._last = (path, now) if is_evidence else None
        return content

    def learn(self, files: Iterable[StoredFile]) -> None:
        """Learn the store's time from a list; files of other writers are ignored."""
        for file in files:
            if self._last is not None and self._last[0] == file.path:
                self._offset = file.modified - self._last[1]
                self._last = None
                if self._first_offset is None:
                    self._first_offset = self._offset

    def now(self) -> float | None:
        """Return the store's time; None if it is not known, or if one of the clocks has jumped."""
        first = self._first_offset
        if first is None or abs(self._offset - first) > TOLERANCE:
            return None
        return self._elapsed() + self._offset
