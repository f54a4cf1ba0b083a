"""Plain functions and coroutine functions: tells which a callback is, and refuses a mixture."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")

# Marks objects that behave as coroutine functions, such as `unittest.mock.AsyncMock`.
_MARK: object = getattr(asyncio.coroutines, "_is_coroutine", object())


def is_coroutine_function(callback: object) -> bool:
    """Return whether a call of `callback` returns a coroutine, as far as its type shows.

    True for an `async def`, its bound methods and partials, and an object whose `__call__` is one.
    A plain function that returns a coroutine is not recognized before it is called; see
    `refuse_awaitable`.
    """
    while isinstance(callback, partial):
        callback = callback.func
    if inspect.iscoroutinefunction(callback) or getattr(callback, "_is_coroutine", None) is _MARK:
        return True
    # Not `callback.__call__`: a class may have one, and a call of the class makes an object.
    return inspect.iscoroutinefunction(getattr(type(callback), "__call__", None))  # noqa: B004


def require_plain(name: str, callback: object) -> None:
    """Raise TypeError if the argument `name` is an `async def`, which nothing would await."""
    if is_coroutine_function(callback):
        raise TypeError(f"{name} is {callback!r}, an async def; it must be a plain function")


def require_handler(name: str, callback: object, form: str) -> None:
    """Raise TypeError if the argument `name` is not callable, or is an `async def`.

    Args:
        name: Name of the argument, for the error.
        callback: The user's value.
        form: What a plain function must be like, for the error: "that takes one event".
    """
    if not callable(callback) or is_coroutine_function(callback):
        raise TypeError(f"{name} is {callback!r}; it must be a plain function {form}")


def plain(name: str, callback: Callable[[T], object]) -> Callable[[T], None]:
    """Return a callback that raises TypeError if the given one returns a coroutine.

    Args:
        name: Name of the argument, for errors.
        callback: A function of one argument.

    Raises:
        TypeError: The callback is an `async def`.
    """
    require_plain(name, callback)

    def call(argument: T) -> None:
        refuse_awaitable(callback(argument), callback)

    return call


def refuse_awaitable(result: object, callback: object) -> None:
    """Raise TypeError if a callback has returned work that nobody will run.

    A plain function that calls an `async def` returns its coroutine, and Python runs none of it.
    The coroutine is closed, which prevents the warning that it was never awaited. A task or a
    future is work that runs already, so it is accepted.

    Args:
        result: The result of the callback.
        callback: The callback, for the error.
    """
    if result is None or asyncio.isfuture(result) or isinstance(result, Future):
        return
    is_generator = inspect.isgenerator(result) or inspect.isasyncgen(result)
    if not (is_generator or inspect.isawaitable(result)):
        return
    with suppress(Exception):
        close = getattr(result, "close", None)
        if close is not None:
            close()
    remedy = (
        "it contains `yield`, so calling it runs nothing; use a function without `yield`"
        if is_generator
        else "nothing awaits that; pass the async def itself, where one is accepted, instead of a "
        "function that calls it"
    )
    raise TypeError(f"{callback!r} returned a {type(result).__name__}: {remedy}")
