"""Futures of messages: their results, waits and callbacks."""

import asyncio
import concurrent.futures
import logging
import threading
from typing import Any

import pytest

from pullstream import PublishError, PublishFuture, PublishManyFuture
from pullstream.publisher.outcome import Outcome, failed_outcome, run_callbacks
from tests.threads import on_threads


def resolve(outcome: Outcome, *ids: str, error: Exception | None = None) -> None:
    run_callbacks(outcome.resolve(ids, error))


def test_each_publish_future_has_the_message_id_of_its_own_message() -> None:
    """The futures of a request share its outcome."""
    outcome = Outcome()
    first, second = PublishFuture(outcome, 0), PublishFuture(outcome, 1)
    assert not first.done()
    assert first.running()
    resolve(outcome, "7", "8")
    assert (first.result(), second.result(0)) == ("7", "8")
    assert first.exception() is None
    assert first.done()
    assert not first.running()


def test_every_publish_future_of_a_failed_request_raises_the_error_of_the_request() -> None:
    """Nothing succeeds without an ID."""
    error = ValueError("no")
    future = PublishFuture(failed_outcome(error), 0)
    with pytest.raises(ValueError, match="no"):
        future.result()
    assert future.exception() is error


def test_waiting_for_a_publish_future_raises_timeout_error_at_its_time_limit() -> None:
    """`result` and `exception` raise TimeoutError."""
    future = PublishFuture(Outcome(), 0)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(0.01)


def test_waiting_for_a_publish_future_sends_its_batch_before_max_latency() -> None:
    """A caller that waits gains nothing from a larger batch."""
    outcome = Outcome()
    waited_for: list[int] = []
    outcome.on_wait = lambda: waited_for.append(1)
    future = PublishFuture(outcome, 0)
    future.add_done_callback(lambda _: None)
    assert future.done() is False
    assert waited_for == []
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    assert waited_for == [1]


def test_a_publish_future_cannot_be_cancelled() -> None:
    """As in the official client: the message is on its way."""
    future = PublishFuture(Outcome(), 0)
    assert not future.cancel()
    assert not future.cancelled()


def test_wait_and_as_completed_of_concurrent_futures_accept_publish_futures() -> None:
    """`wait` and `as_completed` read the state of a Future, before and after the result."""
    outcome, other = Outcome(), Outcome()
    futures = [PublishFuture(outcome, 0), PublishFuture(other, 0), PublishFuture(outcome, 1)]
    timer = threading.Timer(0.05, lambda: resolve(outcome, "1", "2"))
    timer.start()
    done, waiting = concurrent.futures.wait(futures, return_when="FIRST_COMPLETED", timeout=10)
    assert futures[1] in waiting
    assert done
    timer.join()
    resolve(other, "3")
    results = {future.result() for future in concurrent.futures.as_completed(futures, timeout=10)}
    assert results == {"1", "2", "3"}


def test_many_threads_may_wait_for_the_same_publish_future() -> None:
    """The state of the future is created once, although all threads need it at a time."""
    for _ in range(20):
        outcome = Outcome()
        future = PublishFuture(outcome, 0)
        barrier = threading.Barrier(5)
        found: list[str] = []

        def wait(
            barrier: threading.Barrier = barrier,
            future: PublishFuture = future,
            found: list[str] = found,
        ) -> None:
            barrier.wait()
            found.append(future.result(10))

        with on_threads(wait, times=4):
            barrier.wait()
            resolve(outcome, "5")
        assert found == ["5"] * 4


def test_publish_done_callbacks_run_in_order_and_one_added_to_a_done_future_runs_at_once() -> None:
    """A Future of the standard library does the same."""
    outcome = Outcome()
    future = PublishFuture(outcome, 0)
    seen: list[Any] = []
    future.add_done_callback(lambda one: seen.append((1, one)))
    future.add_done_callback(lambda one: seen.append((2, one)))
    resolve(outcome, "5")
    future.add_done_callback(lambda one: seen.append((3, one)))
    assert seen == [(1, future), (2, future), (3, future)]


def test_an_exception_of_a_publish_done_callback_is_logged_and_the_other_callbacks_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others run all the same."""
    outcome = Outcome()
    future = PublishFuture(outcome, 0)
    seen: list[int] = []
    future.add_done_callback(lambda _: seen[1])
    future.add_done_callback(lambda _: seen.append(1))
    with caplog.at_level(logging.ERROR, "pullstream.process"):
        resolve(outcome, "5")
    assert seen == [1]
    assert "of a future raised" in caplog.text


async def test_many_asyncio_tasks_can_await_the_same_publish_future() -> None:
    """Any number of tasks may wait, and a cancelled one affects no other."""
    outcome = Outcome()
    first, second = PublishFuture(outcome, 0), PublishFuture(outcome, 1)

    async def wait(future: PublishFuture) -> str:
        return await future

    tasks = [asyncio.create_task(wait(one)) for one in (first, second, second)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    threading.Thread(target=lambda: resolve(outcome, "1", "2")).start()
    assert await tasks[0] == "1"
    assert await tasks[2] == "2"
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert await first == "1"
    assert await asyncio.wrap_future(second) == "2"


async def test_awaiting_a_failed_publish_future_raises_the_error_of_its_request() -> None:
    """The await ends with the error of the request."""
    outcome = Outcome()
    waiting = asyncio.ensure_future(PublishFuture(outcome, 0))
    await asyncio.sleep(0)
    resolve(outcome, error=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await waiting


def test_the_repr_of_a_publish_future_shows_whether_it_is_pending_or_finished() -> None:
    """The repr does not need the state of a standard Future."""
    outcome = Outcome()
    future = PublishFuture(outcome, 0)
    assert repr(future) == "<PublishFuture pending>"
    resolve(outcome, "1")
    assert repr(future) == "<PublishFuture succeeded>"
    assert "ValueError" in repr(PublishFuture(failed_outcome(ValueError("no")), 0))


def test_unknown_attributes_of_a_publish_future_raise_attribute_error() -> None:
    """The lazy state does not hide mistakes."""
    with pytest.raises(AttributeError, match="'PublishFuture' object has no attribute 'results'"):
        _ = PublishFuture(Outcome(), 0).results


def test_a_publish_many_future_has_the_message_ids_in_the_order_of_the_messages() -> None:
    """The requests may have any of the positions, and be answered in any order."""
    first, second = Outcome(), Outcome()
    future = PublishManyFuture([(first, [0, 3]), (second, range(1, 3))], 4)
    resolve(second, "5", "6")
    assert not future.done()
    resolve(first, "1", "2")
    assert future.result(1) == ["1", "5", "6", "2"]


def test_a_failed_publish_many_future_has_the_ids_of_the_published_messages() -> None:
    """The caller learns which messages are confirmed."""
    first, second = Outcome(), Outcome()
    future = PublishManyFuture([(first, range(2)), (second, range(2, 4))], 4)
    resolve(first, "1", "2")
    resolve(second, error=ValueError("no"))
    with pytest.raises(PublishError, match="2 of 4 messages are not confirmed: no") as caught:
        future.result(1)
    assert caught.value.message_ids == ["1", "2", None, None]
    assert [str(cause) for cause in caught.value.causes] == ["no"]
    assert future.exception() is caught.value


def test_the_future_of_publish_many_with_an_empty_list_is_done_at_once() -> None:
    """An empty list has an empty result."""
    assert PublishManyFuture([], 0).result(0) == []


def test_waiting_for_a_publish_many_future_sends_all_its_batches_before_max_latency() -> None:
    """Requests that wait in the queue are sent."""
    outcomes = [Outcome(), Outcome()]
    waited_for: list[int] = []
    for number, outcome in enumerate(outcomes):
        outcome.on_wait = lambda number=number: waited_for.append(number)  # type: ignore[misc]
    future = PublishManyFuture([(outcomes[0], [0]), (outcomes[1], [1])], 2)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    assert waited_for == [0, 1]
