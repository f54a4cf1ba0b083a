"""All watch sessions of a broker, with their expiry."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_emulator.engine.log import Usage
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.timetable import TimedTask, Timetable
from pullstream_protocol.errors import NotFound, ResourceExhausted, RpcError

from .watch import WatchSession

# Limits of all sessions together: their number, and their memory in bytes.
MAX_SESSIONS = 10_000
MAX_SESSION_BYTES = 512 * 1024 * 1024

# Interval between removals of expired sessions, in seconds.
SWEEP_INTERVAL = 30.0


class Sessions(TimedTask):
    """Sessions by id. A session expires after `session_ttl` without a stream.

    Args:
        now: Reads the clocks.
        timetable: Due queue in which the next removal of expired sessions is registered.
        usage: Counts the sessions' memory.
        check_room: Raises ResourceExhausted if the broker has no room for this number of bytes.
    """

    def __init__(
        self,
        now: Callable[[], Now],
        timetable: Timetable,
        usage: Usage,
        check_room: Callable[[int], None],
    ) -> None:
        self._now = now
        self._timetable = timetable
        self._usage = usage
        self._check_room = check_room
        self._bytes = 0
        self._watches: dict[str, WatchSession] = {}
        self._next_sweep: float | None = None

    def __len__(self) -> int:
        return len(self._watches)

    def check_room(self, size: int) -> None:
        """Raise ResourceExhausted if there is no room for another session of `size` bytes."""
        try:
            self._check(size)
        except ResourceExhausted:
            self._sweep(self._now())
            self._check(size)

    def _check(self, size: int) -> None:
        remedy = (
            "End watches that nobody reads, or watch several topics with one watch. A watch "
            "without a stream ends by itself after its session_ttl."
        )
        if len(self._watches) >= MAX_SESSIONS:
            raise ResourceExhausted(
                f"There are {MAX_SESSIONS} watches, which is the maximum. {remedy}"
            )
        if self._bytes + size > MAX_SESSION_BYTES:
            raise ResourceExhausted(
                f"The watch sessions use {self._bytes} of at most {MAX_SESSION_BYTES} bytes; there "
                f"is no room for another one of {size} bytes. {remedy}"
            )
        self._check_room(size)

    def add(self, watch: WatchSession) -> None:
        """Add a session, whose room the caller has checked."""
        self._watches[watch.id] = watch
        self._count(watch.size)
        if self._next_sweep is None:
            now = self._now()
            self._next_sweep = now.monotonic + SWEEP_INTERVAL
            self._timetable.watch(self, now)

    def find(self, watch_id: str) -> WatchSession:
        """Return a session; raise NotFound if it is unknown or has expired."""
        watch = self._watches.get(watch_id)
        if watch is None or watch.is_expired(self._now().monotonic):
            raise NotFound(f"Watch {watch_id} does not exist or has expired; create a new one.")
        return watch

    def remove(self, watch_id: str) -> None:
        """Remove a session and end its stream; raise NotFound if it is unknown or has expired."""
        watch = self.find(watch_id)
        self._forget(watch)
        watch.end_stream(NotFound(f"Watch {watch_id} has ended."))

    def end_streams(self, reason: RpcError) -> None:
        """End every stream with `reason`. The sessions stay."""
        for watch in self._watches.values():
            watch.end_stream(reason)

    def clear(self) -> None:
        """Remove all sessions and end their streams."""
        self._next_sweep = None
        self._timetable.forget(self)
        for watch in list(self._watches.values()):
            self._forget(watch)
            watch.end_stream(NotFound(f"Watch {watch.id} has ended."))

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Now) -> float | None:
        """Return when expired sessions are removed next; None without sessions."""
        return self._next_sweep

    def advance(self, now: Now) -> None:
        """Remove the expired sessions."""
        self._sweep(now)
        self._next_sweep = now.monotonic + SWEEP_INTERVAL if self._watches else None

    def _sweep(self, now: Now) -> None:
        for watch in [each for each in self._watches.values() if each.is_expired(now.monotonic)]:
            self._forget(watch)

    def _forget(self, watch: WatchSession) -> None:
        del self._watches[watch.id]
        self._count(-watch.size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._usage.watches += size
