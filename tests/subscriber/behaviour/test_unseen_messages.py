"""A message that no callback has seen uses no delivery attempt, however it is returned."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from pullstream import FlowControl, Message, StreamingPullFuture, ThreadScheduler
from pullstream_protocol.errors import Unavailable
from tests.subscriber.behaviour.test_poison import SUBSCRIPTION, World, leases
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.subscriber.streaming.managed import Gate

COUNT = 5


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(enable_exactly_once_delivery=request.param)
    with world.stack:
        world.publish(COUNT)
        yield world


def attempts(world: World) -> list[int]:
    """Return the delivery attempt of each message at its next delivery."""
    response = world.client.pull(subscription=SUBSCRIPTION, max_messages=100)
    found = {int(one.message.data): one.delivery_attempt for one in response.received_messages}
    assert sorted(found) == list(range(COUNT))
    return [found[number] for number in range(COUNT)]


def cancel(future: StreamingPullFuture) -> None:
    """Cancel a subscription whose first callback runs, and wait until no other can begin."""
    future.cancel()
    eventually(lambda: future.statistics().returned == COUNT - 1)


class NotingScheduler(ThreadScheduler):
    """Notes when no more callbacks begin."""

    def __init__(self) -> None:
        super().__init__(max_workers=10)
        self.is_closed = threading.Event()

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        try:
            return super().shutdown(await_msg_callbacks)
        finally:
            self.is_closed.set()


def test_a_shutdown_returns_waiting_messages_to_the_server_without_a_delivery_attempt(
    world: World,
) -> None:
    """The running callback has seen its message. It may finish, and its nack counts."""
    gate = Gate(Message.nack)
    future = world.client.subscribe(SUBSCRIPTION, gate, await_callbacks_on_shutdown=True)
    gate.wait_for()
    eventually(lambda: future.statistics().received == COUNT)
    cancel(future)
    gate.open()
    future.result(TIMEOUT)
    assert future.statistics().returned == COUNT - 1
    assert attempts(world) == [2, 1, 1, 1, 1]


def test_a_shutdown_returns_messages_left_unread_by_flow_control_to_the_server(
    world: World,
) -> None:
    """The server has sent the messages, but the client has not read them from the stream."""
    gate, scheduler = Gate(), NotingScheduler()
    limits = FlowControl(max_messages=1)
    future = world.client.subscribe(
        SUBSCRIPTION,
        gate,
        flow_control=limits,
        scheduler=scheduler,
        await_callbacks_on_shutdown=True,
    )
    gate.wait_for()
    future.cancel()
    assert scheduler.is_closed.wait(TIMEOUT)
    gate.open()
    future.result(TIMEOUT)
    eventually(lambda: world.broker.inspect(leases) == 0)
    response = world.client.pull(subscription=SUBSCRIPTION, max_messages=100)
    assert {one.delivery_attempt for one in response.received_messages} == {1}


def test_the_client_warns_once_if_returned_messages_count_as_delivery_attempts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """There is one warning for each run, not for each message."""
    gate = Gate()
    future = world.client.subscribe(SUBSCRIPTION, gate, await_callbacks_on_shutdown=True)
    gate.wait_for()
    eventually(lambda: future.statistics().received == COUNT)
    with caplog.at_level(logging.WARNING, "pullstream.subscriber"):
        cancel(future)
        gate.open()
        future.result(TIMEOUT)
    (text,) = [record.getMessage() for record in caplog.records]
    assert text.startswith(f"the shutdown returned {COUNT - 1} messages")
    assert "dead-letter policy" in text


@pytest.mark.parametrize(
    "end",
    [
        lambda world: world.broker.faults.close_streams(),
        lambda world: world.broker.faults.abort_streams(Unavailable("on purpose")),
    ],
    ids=["closed", "aborted"],
)
def test_a_reconnect_of_the_stream_adds_no_delivery_attempt_to_unhandled_messages(
    world: World, end: Callable[[World], object]
) -> None:
    """The server may have ended the stream with OK or with an error."""
    gate = Gate()
    future = world.client.subscribe(SUBSCRIPTION, gate, await_callbacks_on_shutdown=True)
    gate.wait_for()
    eventually(lambda: future.statistics().received == COUNT)
    end(world)
    eventually(lambda: future.statistics().reopened == 1)
    cancel(future)
    gate.open()
    future.result(TIMEOUT)
    response = world.client.pull(subscription=SUBSCRIPTION, max_messages=100)
    assert {one.delivery_attempt for one in response.received_messages} == {1}


def test_leaving_a_fetch_block_returns_messages_to_the_server_without_delivery_attempt(
    world: World,
) -> None:
    """Without an error no message has failed."""
    with world.client.fetch(SUBSCRIPTION, COUNT) as messages:
        assert len(messages) == COUNT
    assert attempts(world) == [1, 1, 1, 1, 1]


def test_an_exception_in_a_fetch_block_nacks_only_the_first_unsettled_message(world: World) -> None:
    """The nacked message is the one that the block would have handled next."""

    def work() -> None:
        with world.client.fetch(SUBSCRIPTION, COUNT):
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert attempts(world) == [2, 1, 1, 1, 1]
