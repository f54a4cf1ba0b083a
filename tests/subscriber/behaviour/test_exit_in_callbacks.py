"""User code that raises SystemExit or KeyboardInterrupt on a thread of the SDK.

It would only end this thread, with all the work that the thread has for others.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pullstream import BatchSettings, Message, PublisherClient, SubscriberClient
from pullstream.logs.follow.events import CaughtUp
from pullstream.scheduling.coroutines import CoroutineScheduler
from pullstream_emulator import Emulator
from pullstream_protocol.errors import PullstreamError
from tests.contract.channel_peers import ORDERS, create_topics
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Log, Stage
from tests.subscriber.streaming.fakes import TIMEOUT

EXITS: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.fixture(params=EXITS, ids=[one.__name__ for one in EXITS])
def leave(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A callback that raises SystemExit, KeyboardInterrupt or GeneratorExit."""

    def leave(*_: object) -> None:
        raise request.param

    return leave


def test_the_other_publish_done_callbacks_still_run_after_one_raises_system_exit(
    here: Stage, leave: Callable[..., Any]
) -> None:
    """The later ones of the same future, of the same request, and of the next request."""
    ran: queue.SimpleQueue[int] = queue.SimpleQueue()
    settings = BatchSettings(max_messages=2, max_latency=60)
    with PublisherClient(settings, endpoint=here.emulator.endpoint) as publisher:
        first = publisher.publish(TOPIC, b"1")
        first.add_done_callback(leave)
        first.add_done_callback(lambda _: ran.put(1))
        # The batch is sent with its second message.
        second = publisher.publish(TOPIC, b"2")
        second.add_done_callback(lambda _: ran.put(2))
        assert {ran.get(timeout=TIMEOUT) for _ in range(2)} == {1, 2}
        publisher.publish(TOPIC, b"3").add_done_callback(lambda _: ran.put(3))
        publisher.publish(TOPIC, b"4")
        assert ran.get(timeout=TIMEOUT) == 3


def test_later_acks_are_still_sent_after_an_ack_done_callback_raises_system_exit(
    here: Stage, leave: Callable[..., Any]
) -> None:
    """The later done callbacks of the same future run, too."""
    log, ran = Log(lambda message: None), threading.Event()
    future = here.client.subscribe(SUBSCRIPTION, log)
    here.publish(b"1", b"2")
    first, second = log.wait_for(2)
    acked = first.ack_with_response()
    acked.add_done_callback(leave)
    acked.add_done_callback(lambda _: ran.set())
    assert ran.wait(TIMEOUT)
    assert second.ack_with_response().result(TIMEOUT)
    assert future.close(timeout=TIMEOUT)


def test_the_client_can_be_closed_after_a_subscription_done_callback_raised_system_exit(
    here: Stage, leave: Callable[..., Any]
) -> None:
    ran = threading.Event()
    future = here.client.subscribe(SUBSCRIPTION, Log())
    future.add_done_callback(leave)
    future.add_done_callback(lambda _: ran.set())
    here.client.close(timeout=TIMEOUT)
    assert ran.wait(TIMEOUT)
    assert future.result(TIMEOUT) is True


@pytest.mark.parametrize("exits", EXITS)
def test_coroutine_callbacks_continue_after_a_task_of_a_callback_raises_system_exit(
    here: Stage, exits: type[BaseException]
) -> None:
    """The task runs on the event loop of the SDK, beside the callbacks."""
    handled: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    tasks = []

    async def leave() -> None:
        raise exits

    async def handle(message: Message) -> None:
        if message.data == b"1":
            tasks.append(asyncio.ensure_future(leave()))
        message.ack()
        handled.put(message.data)

    future = here.client.subscribe(SUBSCRIPTION, handle, scheduler=CoroutineScheduler())
    here.publish(b"1")
    assert handled.get(timeout=TIMEOUT) == b"1"
    here.publish(b"2")
    assert handled.get(timeout=TIMEOUT) == b"2"
    assert future.close(timeout=TIMEOUT)
    assert isinstance(tasks[0].exception(), exits)


def test_a_feed_follower_continues_after_its_on_event_callback_raises_system_exit(
    here: Stage, leave: Callable[..., Any]
) -> None:
    records: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    events: queue.SimpleQueue[object] = queue.SimpleQueue()

    def on_event(event: object) -> None:
        events.put(event)
        leave()

    follower = here.client.follow(TOPIC, lambda record: records.put(record.data), on_event=on_event)
    assert isinstance(events.get(timeout=TIMEOUT), CaughtUp)
    here.publish(b"1")
    assert records.get(timeout=TIMEOUT) == b"1"
    assert follower.close(timeout=TIMEOUT)
    assert follower.result(0) is True


def test_a_channel_listener_ends_when_one_of_its_callbacks_raises_system_exit(
    leave: Callable[..., Any],
) -> None:
    """All subscriptions are told, and later messages reach no callback."""
    failures: queue.SimpleQueue[PullstreamError] = queue.SimpleQueue()
    ready = threading.Semaphore(0)
    others: list[object] = []
    with Emulator() as broker, SubscriberClient(endpoint=broker.endpoint) as client:
        create_topics(broker)
        listener = client.listen()
        for key, on_message in (("leaving", leave), ("other", others.append)):
            listener.subscribe(
                ORDERS,
                key,
                on_message=on_message,
                on_failure=failures.put,
                on_done=lambda _: ready.release(),
            )
            assert ready.acquire(timeout=TIMEOUT)
        broker.publish(ORDERS, "x", ordering_key="leaving")
        error = listener.exception(TIMEOUT)
        assert type(error) in EXITS
        told = [failures.get(timeout=TIMEOUT) for _ in range(2)]
        assert all(type(one.__cause__) is type(error) for one in told)
        assert others == []
        assert listener.close(timeout=TIMEOUT)
