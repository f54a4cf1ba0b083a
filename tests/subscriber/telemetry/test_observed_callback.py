"""The wrapper around a callback observes it and changes nothing."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from typing import Any

import pytest

from pullstream.message import Message
from pullstream.telemetry.observed_callback import End, observed

from .source import message


class Seen:
    """Records the begin and the end of each call."""

    def __init__(self) -> None:
        self.began: list[Any] = []
        self.ended: list[BaseException | None] = []

    def begin(self, argument: Any) -> End:
        self.began.append(argument)
        return self.ended.append


async def handle(_: Message) -> str:
    await asyncio.sleep(0)
    return "awaited"


class Handler:
    """A callback that is an object."""

    async def __call__(self, _: Message) -> str:
        return "awaited"


def begin_fails(_: Any) -> End:
    raise RuntimeError("telemetry is broken")


def end_fails(_: Any) -> End:
    def fail(_: BaseException | None) -> None:
        raise RuntimeError("telemetry is broken")

    return fail


def test_a_callback_observed_by_telemetry_returns_the_result_of_the_users_callback() -> None:
    """`begin` gets the same message, the end has no error, and the result is the callback's."""
    seen, one, result = Seen(), message(), object()
    assert observed(lambda _: result, seen.begin)(one) is result
    assert (seen.began, seen.ended) == ([one], [None])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_a_callback_observed_by_telemetry_raises_the_exception_of_the_users_callback(
    error: BaseException,
) -> None:
    """The caller gets the same exception object, of any kind."""
    seen = Seen()

    def fail(_: Message) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        observed(fail, seen.begin)(message())
    assert caught.value is error
    assert seen.ended == [error]


@pytest.mark.parametrize(
    "callback",
    [handle, functools.partial(handle), Handler()],
    ids=["function", "partial", "object"],
)
def test_a_coroutine_callback_observed_by_telemetry_remains_a_coroutine_function(
    callback: Any,
) -> None:
    """The observation ends with the coroutine, not with its creation."""
    seen = Seen()
    wrapped = observed(callback, seen.begin)
    assert inspect.iscoroutinefunction(wrapped)
    coroutine = wrapped(message())
    assert seen.ended == []
    assert asyncio.run(coroutine) == "awaited"
    assert seen.ended == [None]


def test_a_coroutine_callback_observed_by_telemetry_raises_the_exception_of_the_coroutine() -> None:
    seen, error = Seen(), ValueError("no")

    async def fail(_: Message) -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        asyncio.run(observed(fail, seen.begin)(message()))
    assert caught.value is error
    assert seen.ended == [error]


def test_a_batch_callback_observed_by_telemetry_gets_the_unchanged_list_of_messages() -> None:
    """The callback gets the same list object."""
    seen, batch = Seen(), [message("1"), message("2")]
    taken: list[Any] = []
    observed(taken.append, seen.begin)(batch)
    assert taken[0] is batch
    assert seen.began[0] is batch


@pytest.mark.parametrize("begin", [begin_fails, end_fails])
def test_an_error_in_a_telemetry_hook_is_logged_and_does_not_affect_the_users_callback(
    begin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback runs once, and its results and errors stay the same."""
    calls: list[Message] = []
    error = ValueError("no")

    def once(one: Message) -> str:
        calls.append(one)
        return "done"

    def fail(_: Message) -> None:
        raise error

    assert observed(once, begin)(message()) == "done"
    assert len(calls) == 1
    with pytest.raises(ValueError, match="no") as caught:
        observed(fail, begin)(message())
    assert caught.value is error
    assert asyncio.run(observed(handle, begin)(message())) == "awaited"
    assert {(record.name, record.levelno) for record in caplog.records} == {
        ("pullstream.telemetry", logging.ERROR)
    }
    # The later errors of one place are counted.
    assert len(caplog.records) == 1


def test_a_callback_observed_by_telemetry_keeps_the_name_of_the_users_function() -> None:
    """Logs and debuggers then show the user's function."""

    def handle_order(_: Message) -> None: ...

    assert observed(handle_order, Seen().begin).__name__ == "handle_order"
