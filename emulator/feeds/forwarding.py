"""Whose turn it is: routers work one after the other, a step each, and not too long at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from emulator.engine.moment import Moment

from .copying import Batches
from .route_ends import Ends
from .router import Phase, Router

# Most steps of one turn of the event loop, and most messages that are looked at in it. What is left
# is done in the next: calls that came in meanwhile are carried out in between.
STEPS_PER_TURN = 1000
MESSAGES_PER_TURN = 10_000

# How soon a destination that was full is tried again, in seconds.
RETRY = 0.1


class Forwarder:
    """The routers that have something to do, and those that wait for room.

        IDLE -> READY -> IDLE, READY or WAITING;  WAITING -> READY;  any -> GONE

    A router that waits keeps nobody else waiting. Copies that reach the source of another router
    put that one into the queue: nothing is nested, however long the chain.

    on_moved: called with a router that has come further in its source; None: nobody cares.
    on_more: called at the end of a turn that left something to do, for which `resume` is to be
        called. The owner sees to it that others have their turn before; until then none is begun.
    """

    def __init__(self, ends: Ends, on_moved: Callable[[Router], None] | None = None) -> None:
        self._ends = ends
        self._on_moved = on_moved
        self.on_more: Callable[[], object] = lambda: None
        # Those that are gone are passed over.
        self._queue: deque[Router] = deque()
        self._waiting: dict[Router, None] = {}
        self._retry_at = 0.0
        self._is_running = False
        self._is_put_off = False

    def add(self, routers: Iterable[Router]) -> None:
        """There is something for them to copy. Those that wait go on waiting."""
        for router in routers:
            if router.phase is Phase.IDLE:
                self._enqueue(router)

    def let_try(self, routers: Iterable[Router]) -> None:
        """There may be room for those of them that wait."""
        for router in routers:
            if router.phase is Phase.WAITING:
                del self._waiting[router]
                self._enqueue(router)

    def forget(self, router: Router) -> None:
        router.phase = Phase.GONE
        self._waiting.pop(router, None)

    def resume(self, now: Moment) -> None:
        """The turn that was put off."""
        self._is_put_off = False
        self.run(now)

    def run(self, now: Moment) -> None:
        """One turn, in which everybody who is ready takes as many steps as there is time for."""
        if self._is_running or self._is_put_off:
            return
        self._is_running = True
        try:
            batches = Batches()
            steps, messages = STEPS_PER_TURN, MESSAGES_PER_TURN
            while self._queue and steps and messages > 0:
                router = self._queue.popleft()
                if router.phase is Phase.READY:
                    steps -= 1
                    messages -= self._step(router, batches, now)
        finally:
            self._is_running = False
        if self._queue:
            self._is_put_off = True
            self.on_more()

    def _step(self, router: Router, batches: Batches, now: Moment) -> int:
        """Returns how many messages were looked at."""
        position = router.position
        phase = router.step(self._ends, batches, now)
        if phase is Phase.READY:
            self._enqueue(router)
        else:
            router.phase = phase
            if phase is Phase.WAITING:
                if not self._waiting:
                    self._retry_at = now.monotonic + RETRY
                self._waiting[router] = None
        if self._on_moved is not None and router.position != position:
            self._on_moved(router)
        return router.looked_at

    def _enqueue(self, router: Router) -> None:
        router.phase = Phase.READY
        self._queue.append(router)

    # ---- time ----------------------------------------------------------------------------------

    def next_due(self, now: Moment) -> float | None:
        """When to call `advance`."""
        return self._retry_at if self._waiting else None

    def advance(self, now: Moment) -> None:
        if self._waiting and self._retry_at <= now.monotonic:
            self.let_try(list(self._waiting))
        self.run(now)
