"""The principal of the call that is being handled."""

from __future__ import annotations

from contextvars import ContextVar

from .access import Principal

# Every call, over gRPC and HTTP, is handled by a task that sets this first.
_caller: ContextVar[Principal | None] = ContextVar("caller", default=None)


def caller() -> Principal | None:
    """Return the principal of this task's call; None if the broker has no tokens."""
    return _caller.get()


def called_by(principal: Principal | None) -> None:
    """Set the principal for the rest of this task."""
    _caller.set(principal)
