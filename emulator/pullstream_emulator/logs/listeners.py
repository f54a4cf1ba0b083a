"""Callables that are called when a feed grows or is closed."""

from __future__ import annotations

from collections.abc import Callable

# Must only set a flag, because the engine calls it in the middle of its work.
Wake = Callable[[], None]


class Listeners:
    """A set of callables, called in the order in which they were added."""

    def __init__(self) -> None:
        self._wakes: dict[Wake, None] = {}

    def add(self, wake: Wake) -> None:
        """Add a callable at the end; one that is already in the set keeps its place."""
        self._wakes[wake] = None

    def remove(self, wake: Wake) -> None:
        """Remove a callable; unknown ones are ignored."""
        self._wakes.pop(wake, None)

    def wake_all(self) -> None:
        """Call all. A callable may remove itself or add others during the call."""
        for wake in tuple(self._wakes):
            wake()
