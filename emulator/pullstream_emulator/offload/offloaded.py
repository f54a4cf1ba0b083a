"""The exception for a call that is too much work for one step of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any


class Offloaded(Exception):
    """Raised by a service's method that needs more than one step and has not changed anything.

    Attributes:
        work: Does the long part of the work, in a process of the pool or in several steps. It then
            provides a method that runs the request in one step. Call that method before the next
            await, because the result of the work may be outdated after it.
    """

    def __init__(self, work: AbstractAsyncContextManager[Callable[[Any], Any]]) -> None:
        super().__init__()
        self.work = work
