"""Who is woken when a feed grows, or when it is closed."""

from __future__ import annotations

from collections.abc import Callable

# It must only make a note of it: the engine is in the middle of its work.
Wake = Callable[[], None]


class Listeners:
    """Callables, each known once, called in the order in which they came."""

    def __init__(self) -> None:
        self._wakes: dict[Wake, None] = {}

    def add(self, wake: Wake) -> None:
        self._wakes[wake] = None

    def remove(self, wake: Wake) -> None:
        """Call it no more; one that is unknown is fine."""
        self._wakes.pop(wake, None)

    def wake_all(self) -> None:
        """Each may leave, or let others come, while it is called."""
        for wake in tuple(self._wakes):
            wake()
