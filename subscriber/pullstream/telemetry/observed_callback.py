"""Wraps a callback in observers, which cannot change its behaviour."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
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
            end = _safely(begin, argument)
            try:
                result = await callback(argument)
            except BaseException as error:
                _finish(end, error)
                raise
            _finish(end, None)
            return result

        return run_async

    @functools.wraps(callback)
    def run(argument: Any) -> Any:
        end = _safely(begin, argument)
        try:
            result = callback(argument)
        except BaseException as error:
            _finish(end, error)
            raise
        _finish(end, None)
        return result

    return run


def _finish(end: End | None, error: BaseException | None) -> None:
    if end is not None:
        _safely(end, error)


def _safely(function: Callable[[Any], Result], argument: Any) -> Result | None:
    try:
        return function(argument)
    except Exception as error:
        _errors.report(error, "telemetry of a callback failed; the callback is not affected")
        return None
