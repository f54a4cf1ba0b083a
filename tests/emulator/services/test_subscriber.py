"""Pull over gRPC: waiting, immediate return, cancellation, and the order of callers."""

from __future__ import annotations

import logging
import threading
from typing import Any

import grpc
import grpc.aio
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.delivery.consumers import MAX_WAITING
from pullstream_emulator.services.subscriber import SubscriberService
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.contract.channel_fixtures import early_answers as early_answers
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import wait_for_pulls
from tests.emulator.wire import TIMEOUT, Wire, wait_until_idle
from tests.subscriber.forwarder import Forwarder


def start_pull(wire: Wire, emulator: Emulator, timeout: float = TIMEOUT) -> Any:
    """Start a pull of one message, and return when it waits."""
    waiting = emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION))
    request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    call = wire.start("Pull", request, timeout)
    wait_for_pulls(emulator, waiting + 1)
    return call


def data(response: Any) -> list[bytes]:
    return [m.message.data for m in response.received_messages]


@pytest.fixture(autouse=True)
def subscription(wire: Wire) -> None:
    wire.create()


def test_a_pull_returns_the_available_messages_in_publish_order(wire: Wire) -> None:
    """The pull takes as many as requested."""
    wire.publish("a", "b", "c")
    assert [m.message.data for m in wire.pull(2)] == [b"a", b"b"]
    assert [m.message.data for m in wire.pull(2)] == [b"c"]


def test_a_pull_returns_a_thousand_messages_at_most(wire: Wire) -> None:
    """The limit holds for any larger maximum."""
    for _ in range(2):
        wire.publish(*["x"] * 1000)
    assert len(wire.pull(5000)) == 1000


def test_a_pull_response_is_smaller_than_the_receive_limit_of_clients(wire: Wire) -> None:
    """The official client in emulator mode refuses more than 4 MiB."""
    for _ in range(3):
        wire.publish("x" * 1_900_000)
    assert [len(wire.pull()) for _ in range(3)] == [1, 1, 1]


def test_a_pull_with_return_immediately_does_not_wait_for_messages(wire: Wire) -> None:
    """The answer is empty if there is no message."""
    assert wire.pull(wait=False) == []
    wire.publish("a")
    assert [m.message.data for m in wire.pull(wait=False)] == [b"a"]


def test_a_waiting_pull_is_answered_by_a_publish(wire: Wire, emulator: Emulator) -> None:
    """The answer comes as soon as a message is published."""
    call = start_pull(wire, emulator)
    wire.publish("a")
    assert data(call.result()) == [b"a"]


def test_a_waiting_pull_is_answered_by_a_redelivery(
    wire: Wire, emulator: Emulator, clock: ManualClock
) -> None:
    """The end of a lease answers it, too."""
    wire.publish("a")
    wire.pull()
    call = start_pull(wire, emulator)
    clock.advance(10)
    assert data(call.result()) == [b"a"]


def test_a_waiting_pull_gets_an_empty_response_before_the_deadline_of_its_caller(
    wire: Wire, emulator: Emulator, early_answers: float
) -> None:
    """The answer is an empty list with OK, so that the caller need not handle an error."""
    call = start_pull(wire, emulator, timeout=early_answers + 2)
    assert data(call.result()) == []
    assert call.code() is grpc.StatusCode.OK


def test_the_longest_waiting_pull_gets_the_next_message(wire: Wire, emulator: Emulator) -> None:
    """Messages that come one by one go to the pulls in the order of their arrival."""
    calls = [start_pull(wire, emulator) for _ in range(4)]
    for call, text in zip(calls, "abcd", strict=True):
        wire.publish(text)
        assert data(call.result()) == [text.encode()]


def test_messages_of_one_publish_answer_several_waiting_pulls(
    wire: Wire, emulator: Emulator
) -> None:
    """A pull that leaves messages wakes the next one."""
    calls = [start_pull(wire, emulator) for _ in range(3)]
    wire.publish("a", "b", "c")
    assert sorted(data(call.result())[0] for call in calls) == [b"a", b"b", b"c"]


def test_a_cancelled_pull_takes_no_message(wire: Wire, emulator: Emulator) -> None:
    """The message goes to the next pull."""
    cancelled, next_one = start_pull(wire, emulator), start_pull(wire, emulator)
    cancelled.cancel()
    wait_for_pulls(emulator, 1)
    wire.publish("a")
    assert data(next_one.result()) == [b"a"]


def test_messages_of_a_pull_are_redelivered_if_its_caller_disconnects_before_the_response(
    wire: Wire, emulator: Emulator
) -> None:
    """The message is available at once and has no lease of a dead caller.

    The test keeps the broker busy, with a message for the pull, until the pull's connection has
    ended.
    """
    busy, go_on = threading.Event(), threading.Event()

    def publish_and_stay_busy(engine: Engine) -> None:
        message = pubsub.PubsubMessage(data=b"a")
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[message]))
        busy.set()
        go_on.wait(TIMEOUT)

    with Forwarder(emulator.port) as forwarder, Wire(forwarder.endpoint) as gone:
        call = start_pull(gone, emulator)
        owner = threading.Thread(target=emulator.inspect, args=[publish_and_stay_busy])
        owner.start()
        assert busy.wait(TIMEOUT)
        forwarder.cut()
        go_on.set()
        owner.join()
        assert [m.message.data for m in wire.pull()] == [b"a"]
        call.cancel()


class BrokenContext:
    """The context of a call whose connection breaks while the answer is written."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, _response: Any) -> None:
        # grpc raises this error when a part of a call cannot be carried out.
        raise grpc.aio.InternalError("Failed write")


def test_messages_of_a_pull_response_that_cannot_be_written_are_redelivered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages are available at once, and no attempt is counted."""
    pull = SubscriberService.pull
    left = threading.Event()

    async def broken_once(self: SubscriberService, request: Any, context: Any) -> None:
        if left.is_set():
            return await pull(self, request, context)
        left.set()
        return await pull(self, request, BrokenContext(context))

    monkeypatch.setattr(SubscriberService, "pull", broken_once)
    with Emulator() as emulator, Wire(emulator.endpoint) as wire:
        dead = pubsub.Topic(name=f"{TOPIC}-dead")
        wire.call("CreateTopic", dead)
        wire.create(dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=dead.name))
        wire.publish("a")
        request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
        lost = wire.start("Pull", request)
        emulator.history.wait_until(lambda: bool(emulator.history.returns()), TIMEOUT)
        (again,) = wire.pull()
        assert (again.message.data, again.delivery_attempt) == (b"a", 1)
        lost.cancel()
        emulator.stop()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_deleting_a_subscription_ends_its_waiting_pulls_with_not_found(
    wire: Wire, emulator: Emulator
) -> None:
    """Clients do not retry this code."""
    call = start_pull(wire, emulator)
    wire.delete_subscription()
    assert call.exception().code() is grpc.StatusCode.NOT_FOUND


def test_a_stopping_broker_ends_pulls_with_unavailable(wire: Wire, emulator: Emulator) -> None:
    """Clients retry this code."""
    call = start_pull(wire, emulator)
    emulator.stop()
    assert call.exception().code() is grpc.StatusCode.UNAVAILABLE


def test_a_pull_beyond_the_maximum_number_of_waiting_pulls_is_refused(
    wire: Wire, emulator: Emulator
) -> None:
    """Another waiting pull is refused. A pull that does not wait or finds messages is accepted."""
    request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    # One connection cannot have so many calls.
    second = Wire(emulator.endpoint)
    calls = [(wire, second)[number % 2].start("Pull", request) for number in range(MAX_WAITING)]
    wait_for_pulls(emulator, MAX_WAITING)
    refused = wire.start("Pull", request).exception()
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.details() == (
        f"Too many pull requests wait on billing; the maximum is {MAX_WAITING}."
    )
    assert wire.pull(wait=False) == []
    for call in calls:
        call.cancel()
    second.close()


def test_streaming_pulls_do_not_count_towards_the_maximum_of_waiting_pulls(
    wire: Wire, emulator: Emulator
) -> None:
    """The number of streams is not limited."""
    streams = [wire.stream() for _ in range(3)]
    wait_until_idle(*streams)
    assert emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION)) == 0


@pytest.mark.parametrize("count", [0, -1])
def test_a_pull_with_max_messages_below_one_is_refused(wire: Wire, count: int) -> None:
    """The error names the field."""
    request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=count)
    refused = wire.start("Pull", request).exception()
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.details() == (
        "You have passed an invalid argument to the service (argument=max_messages)."
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [("billing", "INVALID_ARGUMENT"), ("projects/test/subscriptions/missing", "NOT_FOUND")],
)
def test_a_pull_from_an_invalid_or_missing_subscription_is_refused(
    wire: Wire, name: str, code: str
) -> None:
    """A malformed name and a missing subscription give different errors."""
    request = pubsub.PullRequest(subscription=name, max_messages=1)
    assert wire.start("Pull", request).exception().code().name == code
