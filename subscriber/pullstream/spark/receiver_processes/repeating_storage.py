"""Storage whose failed calls are repeated for some time."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import TypeVar

import pyarrow as pa

from pullstream.spark.protocol.storage import Storage
from pullstream.spark.store_errors import is_denied, store_cause
from pullstream.spark.stores import StoredFile
from pullstream_protocol.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

# Seconds between two attempts.
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)

# Errors that another attempt does not change.
_FINAL = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}


class RepeatingStorage:
    """A storage whose failed calls are repeated. Several threads may use it.

    A put whose answer was lost is repeated under the same name. Then the file exists, and its nonce
    shows that it was written before. Errors that do not pass, such as a full disk or missing
    rights, are raised at once.

    Attributes:
        repeated: Number of calls that were repeated.
        trouble: The error of the calls that fail now; empty if there is none.

    Args:
        storage: The storage.
        timeout: Seconds for which a call is repeated, from its first failure.
        clock: Source of time.
        pause: Waits for some seconds, and returns whether to give up.
    """

    def __init__(
        self, storage: Storage, timeout: float, clock: Clock, pause: Callable[[float], bool]
    ) -> None:
        self._storage = storage
        self._timeout = timeout
        self._clock = clock
        self._pause = pause
        self.repeated: int = 0
        self.trouble: str = ""

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether this attempt has created it."""
        return self._repeat(lambda: self._storage.create(path, data))

    def put(self, path: str, data: bytes) -> None:
        """Create or replace a file."""
        self._repeat(lambda: self._storage.put(path, data))

    def get(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        return self._repeat(lambda: self._storage.get(path))

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to read parts of it."""
        return self._repeat(lambda: self._storage.open(path))

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Return the files below a folder, without an order."""
        return iter(self._repeat(lambda: list(self._storage.files(prefix))))

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._repeat(lambda: self._storage.delete(path))

    def map_all(self, function: Callable[[T], R], values: Iterable[T]) -> Iterable[R]:
        """Call a function with each value, as the storage does."""
        return self._storage.map_all(function, values)

    def _repeat(self, call: Callable[[], T]) -> T:
        pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
        give_up_at: float | None = None
        while True:
            try:
                result = call()
            except Exception as error:
                if _is_final(error):
                    raise
                now = self._clock.monotonic()
                if give_up_at is None:
                    give_up_at = now + self._timeout
                self.trouble = store_cause(error)
                if now >= give_up_at or self._pause(next(pauses)):
                    raise
                self.repeated += 1
            else:
                self.trouble = ""
                return result


def _is_final(error: Exception) -> bool:
    """Return whether another attempt would fail in the same way."""
    return (isinstance(error, OSError) and error.errno in _FINAL) or is_denied(error)
