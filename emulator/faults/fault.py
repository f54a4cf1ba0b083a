"""One fault that was set: the handle that a test keeps, and what each kind overrides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from protocol.clock import SYSTEM_CLOCK, Clock

from .scope import Scope
from .waiter import Waiter

if TYPE_CHECKING:
    from .call import Call


class Fault:
    """A fault in force, until it has acted as often as its scope says or is lifted.

    It is its own context manager: the end of the `with` block lifts it. Thread-safe.

    kind: its name on the command line and in the administration.
    number: which fault of its broker it is, counted from 1; 0 until it is in force.
    """

    kind: ClassVar[str] = "fault"

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.number = 0
        self._left = scope.times
        self._on_lift: Callable[[Fault], None] = lambda fault: None
        self._changed = threading.Condition()
        self._hits = 0
        self._lifted = False
        self._held: set[Waiter] = set()
        self.dice = Random(0)

    @property
    def hits(self) -> int:
        """How often it has acted."""
        return self._hits

    def wait_for_hits(self, n: int = 1, timeout: float = 10.0) -> None:
        """Block until it has acted `n` times.

        Raises:
            TimeoutError: it has not within `timeout` seconds of real time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= n, timeout):
                raise TimeoutError(
                    f"{self.kind} of {self.scope.method} acted {self._hits} times "
                    f"within {timeout} s, not {n}"
                )

    def lift(self) -> None:
        """End the fault; calls that it holds go on. Twice does no harm."""
        with self._changed:
            self._lifted = True
            held = list(self._held)
        self._on_lift(self)
        for waiter in held:
            waiter.wake()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def describe(self) -> dict[str, object]:
        """What it is and what it has done, as the administration tells it."""
        return {
            "id": self.number,
            "kind": self.kind,
            "method": self.scope.method,
            "resource": self.scope.resource,
            "probability": self.scope.probability,
            "times": self.scope.times,
            "hits": self._hits,
            **self.details(),
        }

    # ---- for the broker ------------------------------------------------------------------------

    def enforce(self, number: int, seed: int, on_lift: Callable[[Fault], None]) -> None:
        """It is in force from now on, until `on_lift` is called."""
        self.number = number
        self._on_lift = on_lift
        # The same calls meet the same luck in every run; two different faults do not share theirs.
        self.dice = Random(f"{seed} {self.kind} {self.scope.method} {self.scope.resource}")

    @property
    def is_over(self) -> bool:
        """Whether it neither will act again nor holds anything."""
        return self._lifted or (self._left == 0 and not self._held)

    def claim(self) -> bool:
        """Throw the dice and count a hit; tells whether it is to act."""
        with self._changed:
            if self._lifted or self._left == 0:
                return False
            if self.scope.probability < 1 and self.dice.random() >= self.scope.probability:
                return False
            if self._left is not None:
                self._left -= 1
            self._hits += 1
            self._changed.notify_all()
            return True

    async def hold(
        self, waiter: Waiter, seconds: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """If it is to act, return only when the fault is lifted, or after so many seconds.

        Raises what `waiter` ends with meanwhile.
        """
        with self._changed:
            # First held and then counted: whoever sees the hit can lift what it holds.
            self._held.add(waiter)
        try:
            if self.claim():
                await waiter.wait(lambda: self._lifted, seconds, clock)
        finally:
            with self._changed:
                self._held.discard(waiter)

    # What a kind of fault does. All of it runs on the broker's event loop, within its scope only.

    def details(self) -> dict[str, object]:
        """What else was asked of this kind, for `describe`."""
        return {}

    async def before(self, call: Call, request: Any) -> None:
        """A request has come (of a stream: the first), and nothing was done for it yet."""

    async def sending(self, call: Call, response: Any) -> None:
        """A response is about to go; None stands for a stream's headers. `call.end` keeps it."""

    def sent(self, call: Call, response: Any) -> None:
        """One of a stream's responses has gone."""

    async def relaying(self, connection: Waiter) -> None:
        """Bytes are about to pass the relay. They belong to no method."""
