"""All watches of a broker, and which of them nobody comes back for."""

from __future__ import annotations

from collections.abc import Callable

from emulator.engine.moment import Moment
from emulator.engine.timetable import TimedTask, Timetable
from protocol.errors import NotFound, ResourceExhausted, RpcError

from .watch import Watch

MAX_SESSIONS = 10_000

# How often those that are over are swept out, in seconds.
SWEEP_INTERVAL = 30.0


class Sessions(TimedTask):
    """The sessions by their ids, until each has been without a stream for its session_ttl."""

    def __init__(self, now: Callable[[], Moment], timetable: Timetable) -> None:
        self._now = now
        self._timetable = timetable
        self._watches: dict[str, Watch] = {}
        self._next_sweep: float | None = None

    def __len__(self) -> int:
        return len(self._watches)

    def check_room(self) -> None:
        """Raise ResourceExhausted if there are as many as there may be."""
        if len(self._watches) >= MAX_SESSIONS:
            self._sweep(self._now())
        if len(self._watches) >= MAX_SESSIONS:
            raise ResourceExhausted(
                f"There are {MAX_SESSIONS} watches, which is the maximum. One is over when it has "
                "been without a stream for its session_ttl."
            )

    def add(self, watch: Watch) -> None:
        self._watches[watch.id] = watch
        if self._next_sweep is None:
            now = self._now()
            self._next_sweep = now.monotonic + SWEEP_INTERVAL
            self._timetable.watch(self, now)

    def find(self, watch_id: str) -> Watch:
        """Raises NotFound for one that is unknown or over."""
        watch = self._watches.get(watch_id)
        if watch is None or watch.is_expired(self._now().monotonic):
            raise NotFound(f"There is no watch {watch_id}, or it is over: begin another.")
        return watch

    def remove(self, watch_id: str) -> None:
        """Forget one; its stream ends. Raises NotFound for one that is unknown or over."""
        watch = self.find(watch_id)
        del self._watches[watch_id]
        watch.end_stream(NotFound(f"The watch {watch_id} is over."))

    def end_streams(self, reason: RpcError) -> None:
        """Tell every stream to end. The sessions stay."""
        for watch in self._watches.values():
            watch.end_stream(reason)

    def clear(self) -> None:
        """Forget all of them; their streams end."""
        watches, self._watches = self._watches, {}
        self._next_sweep = None
        self._timetable.forget(self)
        for watch in watches.values():
            watch.end_stream(NotFound(f"The watch {watch.id} is over."))

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Moment) -> float | None:
        return self._next_sweep

    def advance(self, now: Moment) -> None:
        self._sweep(now)
        self._next_sweep = now.monotonic + SWEEP_INTERVAL if self._watches else None

    def _sweep(self, now: Moment) -> None:
        over = [each.id for each in self._watches.values() if each.is_expired(now.monotonic)]
        for watch_id in over:
            del self._watches[watch_id]
