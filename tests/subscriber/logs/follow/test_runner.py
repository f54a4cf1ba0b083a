"""A handler that is a coroutine, and an event loop that ends before it does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pullstream.follow import Record
from pullstream.logs.follow.runner import CoroutineHandler
from tests.subscriber.logs.follow.model import record
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import on_threads


async def handle(record: Record) -> None:
    """Accept any record."""


def test_a_follower_with_a_coroutine_handler_raises_if_the_event_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        CoroutineHandler(handle, loop)(record(1, 1))


def test_a_follower_raises_instead_of_waiting_if_the_loop_closes_before_its_handler_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop was asked to handle the record, but was closed first."""
    loop = asyncio.new_event_loop()
    requested = threading.Event()
    request = loop.call_soon_threadsafe

    def request_and_note(callback: Callable[..., object], *args: Any) -> None:
        request(callback, *args)
        requested.set()

    monkeypatch.setattr(loop, "call_soon_threadsafe", request_and_note)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            CoroutineHandler(handle, loop)(record(1, 1))
        except RuntimeError as error:
            errors.append(error)

    with on_threads(run):
        assert requested.wait(TIMEOUT)
        loop.close()
    assert "before the handler had ended" in str(errors)
