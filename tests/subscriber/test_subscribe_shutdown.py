"""The end of a subscription: nothing is left, from any thread."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pullstream import AckFuture, Message, StreamingPullFuture, SubscriberClient, ThreadScheduler
from pullstream.exceptions import AcknowledgeError, SubscriberClosed
from tests.subscriber.streaming.fakes import PATIENCE, eventually
from tests.subscriber.streaming.managed import Gate
from tests.subscriber.world import SUBSCRIPTION, Collected, World, world
from tests.threads import assert_ended_since


@pytest.fixture
def here() -> Iterator[World]:
    with world(enable_message_ordering=True) as here:
        yield here


def publish_twenty(here: World) -> list[bytes]:
    """Publish ten messages without a key and ten of one key.

    With three workers most wait or are held.
    """
    unordered = [f"u{number}".encode() for number in range(10)]
    ordered = [f"o{number}".encode() for number in range(10)]
    here.publish(*unordered)
    here.publish(*ordered, key="k")
    return sorted(unordered + ordered)


@pytest.mark.parametrize("await_callbacks", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_cancelling_leaves_no_thread_no_lease_and_no_unresolved_future(
    here: World, await_callbacks: bool, foreign: bool
) -> None:
    """Of twenty messages, three are in a callback. The others are free at once."""
    futures: list[AckFuture] = []
    gate = Gate(lambda message: futures.append(message.ack_with_response()))
    published = publish_twenty(here)
    # This call opens the connection, whose own thread stays.
    assert len(here.free()) == 20
    before = set(threading.enumerate())
    with ThreadPoolExecutor(3) as executor:
        future = here.client.subscribe(
            SUBSCRIPTION,
            gate,
            scheduler=ThreadScheduler(executor) if foreign else ThreadScheduler(max_workers=3),
            await_callbacks_on_shutdown=await_callbacks,
        )
        gate.wait_for(3)
        assert here.free() == []
        future.cancel()
        if await_callbacks:
            with pytest.raises(concurrent.futures.TimeoutError):
                future.result(timeout=0.2)
            gate.open(3)
        assert future.result(PATIENCE) is True
        assert len(here.free()) == (17 if await_callbacks else 20)
        gate.open(3)
        eventually(lambda: len(futures) == 3)
    errors = [future.exception(timeout=PATIENCE) for future in futures]
    if await_callbacks:
        assert errors == [None] * 3
        assert here.backlog == 17
    else:
        assert all(isinstance(error, AcknowledgeError) for error in errors)
        assert sorted(here.free()) == published
    assert len(gate.begun) == 3
    assert_ended_since(before)


@pytest.mark.parametrize("await_callbacks", [False, True])
def test_a_callback_may_cancel_its_own_subscription(here: World, await_callbacks: bool) -> None:
    """It may cancel several times. Its message counts if callbacks are awaited."""
    known: list[StreamingPullFuture] = []
    begun = threading.Event()

    def stop(message: Message) -> None:
        assert begun.wait(PATIENCE)
        message.ack()
        assert known[0].cancel()
        assert known[0].cancel()

    known.append(
        here.client.subscribe(
            SUBSCRIPTION, stop, await_callbacks_on_shutdown=await_callbacks, max_workers=1
        )
    )
    here.publish(b"a")
    begun.set()
    assert known[0].result(PATIENCE) is True
    assert here.backlog == 0


def test_a_callback_may_cancel_and_then_raise(
    here: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is reported, the message is returned, and the subscription ends as requested."""
    known: Future[StreamingPullFuture] = Future()

    def stop_and_fail(message: Message) -> None:
        known.result(PATIENCE).cancel()
        raise ValueError("and more")

    here.publish(b"a")
    with caplog.at_level(logging.ERROR):
        future = here.client.subscribe(
            SUBSCRIPTION, stop_and_fail, await_callbacks_on_shutdown=True
        )
        known.set_result(future)
        assert future.result(PATIENCE) is True
    assert [record.message[:15] for record in caplog.records] == ["callback raised"]
    assert here.free() == [b"a"]


@pytest.mark.parametrize("await_callbacks", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_a_callback_may_close_the_client(here: World, await_callbacks: bool, foreign: bool) -> None:
    """The callback does not wait for itself, and the connection ends with the last subscription."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    closed = threading.Event()

    def close(message: Message) -> None:
        message.ack()
        client.close()
        closed.set()

    here.publish(b"a")
    with ThreadPoolExecutor(2) as executor:
        future = client.subscribe(
            SUBSCRIPTION,
            close,
            scheduler=ThreadScheduler(executor) if foreign else None,
            await_callbacks_on_shutdown=await_callbacks,
        )
        assert closed.wait(PATIENCE)
        assert future.result(PATIENCE) is True
    assert here.backlog == 0
    eventually(lambda: is_disconnected(client))


def is_disconnected(client: SubscriberClient) -> bool:
    try:
        client.list_subscriptions(project="projects/p", timeout=PATIENCE)
    except SubscriberClosed as error:
        return "closed channel" in str(error)
    return False


def test_closing_the_client_ends_its_subscriptions_first(here: World) -> None:
    """All subscriptions end, and their last requests reach the server."""
    before = set(threading.enumerate())
    collected = Collected()
    with SubscriberClient(endpoint=here.emulator.endpoint) as client:
        futures = [client.subscribe(SUBSCRIPTION, collected) for _ in range(3)]
        here.publish(*[b"x"] * 30)
        collected.wait_for(30)
    assert [future.result(timeout=0) for future in futures] == [True] * 3
    assert here.backlog == 0
    client.close()
    assert_ended_since(before)


def test_a_done_callback_may_close_the_client_and_may_raise(
    here: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback comes after the end. Its error is logged and affects nothing else."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    called = threading.Event()

    def close_and_fail(future: Any) -> None:
        client.close()
        called.set()
        raise ValueError("in a done callback")

    future = client.subscribe(SUBSCRIPTION, Message.ack)
    future.add_done_callback(close_and_fail)
    future.cancel()
    assert called.wait(PATIENCE)
    assert future.result(PATIENCE) is True
    eventually(lambda: "exception calling callback" in caplog.text)


def test_a_done_callback_of_an_acknowledgement_may_close_the_client(here: World) -> None:
    """It runs on the dispatcher's thread, which the shutdown waits for."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    closed = threading.Event()

    def close(future: Future[Any]) -> None:
        client.close()
        closed.set()

    future = client.subscribe(
        SUBSCRIPTION, lambda message: message.ack_with_response().add_done_callback(close)
    )
    here.publish(b"a")
    assert closed.wait(PATIENCE)
    assert future.result(PATIENCE) is True


def test_many_may_ask_for_the_end_at_once(here: World) -> None:
    """There is one shutdown, and each caller sees its end."""
    future = here.client.subscribe(SUBSCRIPTION, Message.ack)
    together = threading.Barrier(8)

    def stop() -> bool:
        together.wait(PATIENCE)
        future.cancel()
        return future.result(PATIENCE)

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(stop) for _ in range(8)]
        assert all(result.result(PATIENCE) is True for result in results)


@pytest.mark.parametrize("attempt", range(10))
def test_subscribing_while_the_client_is_closed_ends_well(here: World, attempt: int) -> None:
    """The subscribe is refused, or the subscription ends with the client, at once in both cases."""
    before = set(threading.enumerate())
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    together = threading.Barrier(2)

    def subscribe() -> bool:
        together.wait(PATIENCE)
        try:
            return client.subscribe(SUBSCRIPTION, Message.ack).result(timeout=5.0)
        except SubscriberClosed:
            return True

    with ThreadPoolExecutor(1) as pool:
        subscribed = pool.submit(subscribe)
        together.wait(PATIENCE)
        client.close()
        assert subscribed.result(PATIENCE) is True
    assert_ended_since(before)


@pytest.mark.parametrize("settle", [Message.ack, Message.nack, Message.drop])
def test_settling_after_the_end_does_nothing(
    here: World, settle: Callable[[Message], None]
) -> None:
    """The message was returned at the end, and another subscriber may have it."""
    gate = Gate(settle)
    here.publish(b"a")
    future = here.client.subscribe(SUBSCRIPTION, gate)
    gate.wait_for()
    future.cancel()
    assert future.result(PATIENCE) is True
    gate.open()
    assert here.free() == [b"a"]
