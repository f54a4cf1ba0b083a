"""Scheduling of routers: they take steps in turn, within limits for each turn of the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from pullstream_emulator.engine.now import Now

from .record_copies import CopyBatches
from .router import Router, RouterPhase
from .router_endpoints import RouterEndpoints

# Most steps in one turn of the event loop, and most messages examined in it. The rest follows in
# the next turn, so that calls which arrived in the meantime are served in between.
STEPS_PER_TURN = 1000
MESSAGES_PER_TURN = 10_000

# Interval between retries for a destination that was full, in seconds.
RETRY = 0.1


class Forwarder:
    """The routers that have something to copy, and the routers that wait for room.

        IDLE -> READY -> IDLE, READY or WAITING;  WAITING -> READY;  any -> GONE

    A waiting router does not block others. Copies that reach the source of another router put that
    router into the queue, so calls are not nested even for long chains.

    Args:
        endpoints: The feeds that routers connect.
        on_moved: Called with a router whose position has advanced. None if nobody needs it.
        on_more: Called at the end of a turn that left something to do. The owner must call `resume`
            after it has let other work run; until then no turn is run.
    """

    def __init__(
        self,
        endpoints: RouterEndpoints,
        *,
        on_moved: Callable[[Router], None] | None,
        on_more: Callable[[], object],
    ) -> None:
        self._endpoints = endpoints
        self._on_moved = on_moved
        self._on_more = on_more
        # May contain routers that are gone; they are skipped.
        self._queue: deque[Router] = deque()
        self._waiting: dict[Router, None] = {}
        self._retry_at = 0.0
        self._is_running = False
        self._is_put_off = False

    def add(self, routers: Iterable[Router]) -> None:
        """Queue routers whose sources have more. Waiting routers continue to wait."""
        for router in routers:
            if router.phase is RouterPhase.IDLE:
                self._enqueue(router)

    def let_try(self, routers: Iterable[Router]) -> None:
        """Queue the waiting routers among these, because there may be room for them."""
        for router in routers:
            if router.phase is RouterPhase.WAITING:
                del self._waiting[router]
                self._enqueue(router)

    def forget(self, router: Router) -> None:
        """Mark a router as gone, so that it takes no further step."""
        router.phase = RouterPhase.GONE
        self._waiting.pop(router, None)

    def resume(self, now: Now) -> None:
        """Run the turn that was postponed."""
        self._is_put_off = False
        self.run(now)

    def run(self, now: Now) -> None:
        """Run one turn: ready routers take steps in rotation until its limits are reached."""
        if self._is_running or self._is_put_off:
            return
        self._is_running = True
        try:
            batches = CopyBatches()
            steps, messages = STEPS_PER_TURN, MESSAGES_PER_TURN
            while self._queue and steps and messages > 0:
                router = self._queue.popleft()
                if router.phase is RouterPhase.READY:
                    steps -= 1
                    messages -= self._step(router, batches, now)
        finally:
            self._is_running = False
        if self._queue:
            self._is_put_off = True
            self._on_more()

    def _step(self, router: Router, batches: CopyBatches, now: Now) -> int:
        """Run one step of a router; return the number of messages examined."""
        position = router.position
        phase = router.step(self._endpoints, batches, now)
        if phase is RouterPhase.READY:
            self._enqueue(router)
        else:
            router.phase = phase
            if phase is RouterPhase.WAITING:
                if not self._waiting:
                    self._retry_at = now.monotonic + RETRY
                self._waiting[router] = None
        if self._on_moved is not None and router.position != position:
            self._on_moved(router)
        return router.examined

    def _enqueue(self, router: Router) -> None:
        router.phase = RouterPhase.READY
        self._queue.append(router)

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Now) -> float | None:
        """Return when to call `advance`."""
        return self._retry_at if self._waiting else None

    def advance(self, now: Now) -> None:
        """Let all waiting routers try if the time for it has come, and run one turn."""
        if self._waiting and self._retry_at <= now.monotonic:
            self.let_try(list(self._waiting))
        self.run(now)
