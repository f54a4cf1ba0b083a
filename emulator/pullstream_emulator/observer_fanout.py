"""Fan-out of engine events to several observers, such as storage and a history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .engine.observer import Observer

_TOLD = tuple(name for name in vars(Observer) if not name.startswith("_"))


class ObserverFanout(Observer):
    """Passes on each event to the observers that override its method, in their order."""

    def __init__(self, *observers: Observer) -> None:
        for name in _TOLD:
            # Call only overridden methods: most observers use few events, and events are frequent.
            overridden = [
                getattr(observer, name)
                for observer in observers
                if getattr(type(observer), name) is not getattr(Observer, name)
            ]
            if overridden:
                setattr(self, name, overridden[0] if len(overridden) == 1 else _each(overridden))


def _each(listeners: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def tell(*told: Any) -> None:
        for listener in listeners:
            listener(*told)

    return tell
