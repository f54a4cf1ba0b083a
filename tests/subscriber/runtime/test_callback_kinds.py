"""Plain functions and coroutine functions are told apart; a mixture is refused."""

from __future__ import annotations

import asyncio
import functools
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from pullstream.ack_future import AckFuture
from pullstream.runtime.callback_kinds import is_coroutine_function, refuse_awaitable


async def coroutine(argument: object) -> None: ...


def plain(argument: object) -> None: ...


class AsyncCall:
    async def __call__(self, argument: object) -> None: ...

    async def method(self, argument: object) -> None: ...

    @classmethod
    async def of_class(cls, argument: object) -> None: ...

    @staticmethod
    async def of_nothing(argument: object) -> None: ...


class PlainCall:
    def __call__(self, argument: object) -> None: ...


@functools.wraps(coroutine)
async def decorated(argument: object) -> None:
    await coroutine(argument)


@pytest.mark.parametrize(
    "callback",
    [
        coroutine,
        decorated,
        AsyncCall(),
        AsyncCall().method,
        AsyncCall.of_class,
        AsyncCall.of_nothing,
        AsyncMock(),
        functools.partial(coroutine, 1),
        functools.partial(AsyncCall(), 1),
        functools.partial(functools.partial(AsyncCall().method), 1),
        functools.partial(AsyncCall.method, AsyncCall()),
    ],
)
def test_coroutine_functions_are_recognized_in_all_forms_such_as_partials_and_methods(
    callback: object,
) -> None:
    assert is_coroutine_function(callback)


@pytest.mark.parametrize(
    "callback",
    [
        plain,
        PlainCall(),
        PlainCall,
        AsyncCall,
        MagicMock(),
        print,
        [].append,
        functools.partial(plain, 1),
        lambda argument: coroutine(argument),
        "no function",
    ],
)
def test_functions_and_classes_are_not_taken_for_coroutine_functions(callback: object) -> None:
    assert not is_coroutine_function(callback)


def generator(argument: object) -> Iterator[int]:
    yield 1


async def async_generator(argument: object) -> AsyncIterator[int]:
    yield 1


class Awaited:
    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        (lambda argument: coroutine(argument), "returned a coroutine: nothing awaits that; pass"),
        (lambda argument: Awaited(), "returned a Awaited"),
        (generator, "returned a generator: it contains `yield`"),
        (async_generator, "returned a async_generator"),
    ],
)
def test_a_plain_callback_whose_result_is_a_coroutine_raises_a_type_error(
    callback: Callable[[object], Any], text: str
) -> None:
    """Python would run none of it, and warn at some later time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match=text):
            refuse_awaitable(callback(1), callback)
        gc.collect()


def test_a_plain_callback_may_return_a_value_or_a_running_task() -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine(1))
    for result in (None, 1, "text", Future[int](), loop.create_future(), task, MagicMock()):
        refuse_awaitable(result, plain)
    loop.run_until_complete(task)
    loop.close()


def test_a_future_refuses_an_async_function_as_done_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An `async def` is refused, and a function that returns its coroutine is logged."""
    future = AckFuture()
    with pytest.raises(TypeError, match=r"fn is .*; it must be a plain function"):
        future.add_done_callback(coroutine)
    future.add_done_callback(lambda done: coroutine(done))
    future.set_exception(ValueError("no"))
    (record,) = caplog.records
    assert record.name == "pullstream.process"
    assert record.exc_info is not None
    assert "pass the async def itself" in str(record.exc_info[1])
