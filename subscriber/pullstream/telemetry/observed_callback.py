"""Wraps a callback in observers, which cannot change its behaviour."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pullstream.hooks import Callback
from pullstream.runtime.callback_kinds import is_coroutine_function
from pullstream.runtime.repeated_errors import RepeatedErrors

_errors = RepeatedErrors(logging.getLogger("pullstream.telemetry"))

# Called with the exception that the callback raised, or None.
End = Callable[[BaseException | None], None]
Result = TypeVar("Result")


def observed(callback: Callback, begin: Callable[[Any], End]) -> Callback:
    """Wrap `callback`: call `begin(argument)` before it, and the result of `begin` after it.

    The argument is a message or a list of messages. An `async def` callback gives an `async def`
    wrapper. The result and the exceptions of the callback do not change. Exceptions of `begin` and
    of its result are logged.
    """
    if is_coroutine_function(callback):

        @functools.wraps(callback)
        async def run_async(argument: Any) -> Any:
            with _observing(begin, argument):
                return await callback(argument)

        return run_async

    @functools.wraps(callback)
    def run(argument: Any) -> Any:
        with _observing(begin, argument):
            return callback(argument)

    return run


@contextmanager
def _observing(begin: Callable[[Any], End], argument: Any) -> Iterator[None]:
    end = _safely(begin, argument)
    raised: BaseException | None = None
    try:
        yield
    except BaseException as error:
        raised = error
        raise
    finally:
        if end is not None:
            _safely(end, raised)


def _safely(function: Callable[[Any], Result], argument: Any) -> Result | None:
    try:
        return function(argument)
    except Exception as error:
        _errors.report(error, "telemetry of a callback failed; the callback is not affected")
        return None
