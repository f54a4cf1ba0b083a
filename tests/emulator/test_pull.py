"""Pull over gRPC: waiting for messages, not waiting, giving up, and who comes first."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from emulator import Emulator
from emulator.engine import Engine
from emulator.engine.consumers import MAX_WAITING
from protocol.clock import ManualClock
from protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.relay import Relay
from tests.emulator.wire import PATIENCE, Wire


def start_pull(wire: Wire, emulator: Emulator, timeout: float = PATIENCE) -> Any:
    """A pull of one message that waits by the time this returns."""
    waiting = emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION))
    request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    call = wire.start("Pull", request, timeout)
    wait_until_pulls_wait(emulator, waiting + 1)
    return call


def wait_until_pulls_wait(emulator: Emulator, count: int) -> None:
    while emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION)) != count:
        # Each look is a turn of the broker's event loop, so the call gets its own turns.
        pass


def data(response: Any) -> list[bytes]:
    return [m.message.data for m in response.received_messages]


@pytest.fixture(autouse=True)
def subscription(wire: Wire) -> None:
    wire.create()


def test_a_pull_takes_what_is_there(wire: Wire) -> None:
    """As many as it asked for, in the order of publishing."""
    wire.publish("a", "b", "c")
    assert [m.message.data for m in wire.pull(2)] == [b"a", b"b"]
    assert [m.message.data for m in wire.pull(2)] == [b"c"]


def test_a_pull_gets_a_thousand_at_most(wire: Wire) -> None:
    """However many it asks for."""
    for _ in range(2):
        wire.publish(*["x"] * 1000)
    assert len(wire.pull(5000)) == 1000


def test_an_answer_is_smaller_than_the_clients_limit(wire: Wire) -> None:
    """The official client in emulator mode refuses more than 4 MiB."""
    for _ in range(3):
        wire.publish("x" * 1_900_000)
    assert [len(wire.pull()) for _ in range(3)] == [1, 1, 1]


def test_return_immediately_does_not_wait(wire: Wire) -> None:
    """The answer is empty when nothing is there."""
    assert wire.pull(wait=False) == []
    wire.publish("a")
    assert [m.message.data for m in wire.pull(wait=False)] == [b"a"]


def test_a_pull_waits_for_a_message(wire: Wire, emulator: Emulator) -> None:
    """And is answered as soon as one is published."""
    call = start_pull(wire, emulator)
    wire.publish("a")
    assert data(call.result()) == [b"a"]


def test_a_pull_waits_for_a_redelivery(wire: Wire, emulator: Emulator, clock: ManualClock) -> None:
    """A lease that ends is as good as a publish."""
    wire.publish("a")
    wire.pull()
    call = start_pull(wire, emulator)
    clock.advance(10)
    assert data(call.result()) == [b"a"]


def test_a_pull_without_messages_is_answered_before_its_deadline(
    wire: Wire, emulator: Emulator
) -> None:
    """With an empty list and OK, so that the caller need not handle an error."""
    call = start_pull(wire, emulator, timeout=2)
    assert data(call.result()) == []
    assert call.code() is grpc.StatusCode.OK


def test_who_waits_longest_is_served_first(wire: Wire, emulator: Emulator) -> None:
    """Messages that come one by one go to the pulls in the order in which these came."""
    calls = [start_pull(wire, emulator) for _ in range(4)]
    for call, text in zip(calls, "abcd", strict=True):
        wire.publish(text)
        assert data(call.result()) == [text.encode()]


def test_one_publish_serves_several_pulls(wire: Wire, emulator: Emulator) -> None:
    """What one leaves wakes the next."""
    calls = [start_pull(wire, emulator) for _ in range(3)]
    wire.publish("a", "b", "c")
    assert sorted(data(call.result())[0] for call in calls) == [b"a", b"b", b"c"]


def test_a_cancelled_pull_takes_nothing(wire: Wire, emulator: Emulator) -> None:
    """The message goes to the next one."""
    cancelled, next_one = start_pull(wire, emulator), start_pull(wire, emulator)
    cancelled.cancel()
    wait_until_pulls_wait(emulator, 1)
    wire.publish("a")
    assert data(next_one.result()) == [b"a"]


def test_a_pull_whose_caller_is_gone_when_it_is_served_gives_back(
    wire: Wire, emulator: Emulator
) -> None:
    """The message waits for no deadline of a lease that nobody holds.

    The broker is kept busy, with a message for the pull, until its connection has ended.
    """
    busy, go_on = threading.Event(), threading.Event()

    def publish_and_stay_busy(engine: Engine) -> None:
        message = pubsub.PubsubMessage(data=b"a")
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[message]))
        busy.set()
        go_on.wait(PATIENCE)

    with Relay(emulator.port) as relay:
        gone = Wire(relay.endpoint)
        call = start_pull(gone, emulator)
        owner = threading.Thread(target=emulator.inspect, args=[publish_and_stay_busy])
        owner.start()
        assert busy.wait(PATIENCE)
        relay.cut()
        go_on.set()
        owner.join()
        assert [m.message.data for m in wire.pull()] == [b"a"]
        call.cancel()
        gone.close()


def test_deleting_the_subscription_ends_waiting_pulls(wire: Wire, emulator: Emulator) -> None:
    """With NOT_FOUND."""
    call = start_pull(wire, emulator)
    wire.delete_subscription()
    assert call.exception().code() is grpc.StatusCode.NOT_FOUND


def test_a_broker_that_stops_ends_waiting_pulls(wire: Wire, emulator: Emulator) -> None:
    """With UNAVAILABLE, after which clients try again."""
    call = start_pull(wire, emulator)
    emulator.stop()
    assert call.exception().code() is grpc.StatusCode.UNAVAILABLE


def test_only_so_many_pulls_may_wait(wire: Wire, emulator: Emulator) -> None:
    """One more is refused; one that does not wait, or that finds something, is not."""
    request = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    calls = [wire.start("Pull", request) for _ in range(MAX_WAITING)]
    wait_until_pulls_wait(emulator, MAX_WAITING)
    refused = wire.start("Pull", request).exception()
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.details() == (
        f"Too many pull requests wait on billing; the maximum is {MAX_WAITING}."
    )
    assert wire.pull(wait=False) == []
    for call in calls:
        call.cancel()


def test_streams_do_not_count_as_waiting_pulls(wire: Wire, emulator: Emulator) -> None:
    """They may be as many as they like."""
    streams = [wire.stream() for _ in range(3)]
    assert all(stream.is_quiet() for stream in streams)
    assert emulator.inspect(lambda engine: engine.waiting_pulls(SUBSCRIPTION)) == 0


@pytest.mark.parametrize("count", [0, -1])
def test_a_pull_must_ask_for_something(wire: Wire, count: int) -> None:
    """The text names the field."""
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
def test_a_pull_needs_a_subscription(wire: Wire, name: str, code: str) -> None:
    """Malformed and missing are told apart."""
    request = pubsub.PullRequest(subscription=name, max_messages=1)
    assert wire.start("Pull", request).exception().code().name == code
