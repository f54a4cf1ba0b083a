"""Several observers of one engine: storage and a history, say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .engine.observer import Observer

_TOLD = tuple(name for name in vars(Observer) if not name.startswith("_"))


class Observers(Observer):
    """Passes on everything to those of some observers who care for it, in their order."""

    def __init__(self, *observers: Observer) -> None:
        for name in _TOLD:
            # Most care for little, and the engine tells very often.
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
