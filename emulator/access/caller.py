"""Who makes the call that is being answered."""

from __future__ import annotations

from contextvars import ContextVar

from .access import Principal

# Every call, over gRPC and over HTTP, is answered by a task that says first whose it is.
_caller: ContextVar[Principal | None] = ContextVar("caller", default=None)


def caller() -> Principal | None:
    """The principal of this task's call; None where everybody may do everything."""
    return _caller.get()


def called_by(principal: Principal | None) -> None:
    """What this task does from now on it does for `principal`."""
    _caller.set(principal)
