"""An activity that ends with an error is logged once, if the program has not asked for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pullstream import AsyncSubscriberClient, SubscriberClient
from pullstream.futures import RunningFuture
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, PermissionDenied
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

MISSING = "projects/shop/subscriptions/nope"
MISSING_TOPIC = "projects/shop/topics/nope"
LOGGER = "pullstream.activity"


@pytest.fixture
def client(emulator: Emulator) -> Iterator[SubscriberClient]:
    with SubscriberClient(endpoint=emulator.endpoint) as client:
        yield client


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == LOGGER]


STARTS: list[tuple[Callable[[SubscriberClient], RunningFuture], str]] = [
    (lambda client: client.subscribe(MISSING, print), f"the subscription to {MISSING}"),
    (lambda client: client.subscribe_batch(MISSING, print), f"the subscription to {MISSING}"),
    (lambda client: client.watch({MISSING_TOPIC: 0}, print), f"the watch of {MISSING_TOPIC}"),
    (lambda client: client.follow(MISSING_TOPIC, print), f"the follower of {MISSING_TOPIC}"),
]


@pytest.mark.parametrize(("start", "name"), STARTS)
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_terminal_error_of_a_subscription_whose_future_is_not_read_is_logged_once(
    client: SubscriberClient,
    caplog: pytest.LogCaptureFixture,
    start: Callable[[SubscriberClient], RunningFuture],
    name: str,
    is_kept: bool,
) -> None:
    """The log has the name, the reason and the remedy, whether the program keeps the future."""
    kept = [start(client)]
    if not is_kept:
        kept.clear()
        gc.collect()
    eventually(lambda: bool(logged(caplog)))
    client.close()
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR
    assert record.message.startswith(f"{name} has ended: NotFound: ")
    assert "nope" in record.message
    assert "Create it, or correct its name or project" in record.message
    assert "result() or add_done_callback()" in record.message


async def test_the_terminal_error_of_a_subscription_with_coroutine_callbacks_is_logged_once(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: object) -> None: ...

    async with AsyncSubscriberClient(endpoint=emulator.endpoint) as client:
        client.subscribe(MISSING, handle)
        await asyncio.to_thread(eventually, lambda: bool(logged(caplog)))
        client.follow(MISSING_TOPIC, handle)
        await asyncio.to_thread(eventually, lambda: len(logged(caplog)) == 2)
    assert len(logged(caplog)) == 2


def test_the_log_of_a_subscriptions_terminal_error_has_a_remedy_for_its_status_code(
    emulator: Emulator, client: SubscriberClient, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.faults.error("StreamingPull", PermissionDenied("not yours"))
    client.subscribe(MISSING, print)
    eventually(lambda: bool(logged(caplog)))
    assert "PermissionDenied: not yours. Grant the role" in logged(caplog)[0].message


def ask_for_result(future: RunningFuture) -> None:
    with pytest.raises(NotFound):
        future.result(TIMEOUT)


ASKS: list[Callable[[RunningFuture], Any]] = [
    ask_for_result,
    lambda future: future.exception(TIMEOUT),
    lambda future: concurrent.futures.wait([future], TIMEOUT),
    lambda future: future.add_done_callback(lambda done: None),
]


@pytest.mark.parametrize("ask", ASKS, ids=["result", "exception", "wait", "done callback"])
def test_a_terminal_error_that_the_program_reads_from_the_future_is_not_logged(
    client: SubscriberClient,
    emulator: Emulator,
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[RunningFuture], Any],
) -> None:
    with emulator.faults.drop("StreamingPull") as held:
        future = client.subscribe(MISSING, print)
        held.wait_for_hits()
        asking = concurrent.futures.ThreadPoolExecutor(1)
        asked = asking.submit(ask, future)
        eventually(future.was_asked)
    eventually(future.done)
    asked.result(TIMEOUT)
    asking.shutdown()
    assert logged(caplog) == []


def test_a_subscription_that_the_program_closes_logs_no_terminal_error(
    client: SubscriberClient, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with emulator.faults.drop("StreamingPull"):
        assert client.subscribe(MISSING, print).close(TIMEOUT)
    assert logged(caplog) == []


def test_the_log_record_of_a_subscriptions_terminal_error_can_be_pickled(
    client: SubscriberClient, caplog: pytest.LogCaptureFixture
) -> None:
    """logging.handlers.QueueHandler pickles records for a queue of multiprocessing."""
    future = client.subscribe(MISSING, print)
    eventually(lambda: bool(logged(caplog)))
    (record,) = logged(caplog)
    copy = logging.makeLogRecord(pickle.loads(pickle.dumps(vars(record))))
    assert MISSING in copy.getMessage()
    assert vars(copy)["was_asked"] is False
    assert isinstance(future.exception(TIMEOUT), NotFound)
