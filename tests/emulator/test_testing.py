"""`Emulator` in a test's own process, and the pytest fixture."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire

ROOT = Path(__file__).parents[2]
THREAD = "pullstream-emulator"


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


@pytest.fixture
def wires() -> Iterator[list[Wire]]:
    """Yield a list for clients, which are closed at the end."""
    made: list[Wire] = []
    yield made
    for wire in made:
        wire.close()


def connect(wires: list[Wire], emulator: Emulator) -> Wire:
    wires.append(Wire(emulator.endpoint))
    return wires[-1]


def test_an_emulator_accepts_calls_only_inside_its_with_block(wires: list[Wire]) -> None:
    """Afterwards nothing listens, and no thread is left."""
    with Emulator() as emulator:
        wire = connect(wires, emulator)
        wire.create()
        assert THREAD in threads()
    request = pubsub.GetSubscriptionRequest(subscription=SUBSCRIPTION)
    refused = wire.start("GetSubscription", request).exception()
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert THREAD not in threads()


def test_the_endpoint_of_an_emulator_is_host_and_port() -> None:
    """The endpoint is an address with the chosen port."""
    with Emulator() as emulator:
        assert emulator.endpoint == f"127.0.0.1:{emulator.port}"
        assert emulator.port > 0


def test_an_advance_of_the_emulator_clock_waits_until_expired_messages_are_available(
    wires: list[Wire],
) -> None:
    """The next immediate pull finds the message without waiting or polling."""
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        assert emulator.clock is clock
        wire = connect(wires, emulator)
        wire.create_with("a")
        for _ in range(50):
            assert len(wire.pull(wait=False)) == 1
            assert wire.pull(wait=False) == []
            clock.advance(10)


def test_leases_of_an_emulator_on_the_real_clock_expire_at_their_ack_deadline(
    wires: list[Wire],
) -> None:
    """A timer of the broker ends the leases without any call."""
    with Emulator() as emulator:
        wire = connect(wires, emulator)
        wire.create_with("a")
        stream = wire.stream()
        (a,) = stream.messages(1)
        wire.modify(1, a.ack_id)
        assert stream.data(1) == ["a"]


def test_an_emulator_with_the_broker_of_a_stopped_emulator_keeps_backlog_and_leases(
    wires: list[Wire],
) -> None:
    """The second emulator has the same port and engine, so topics, backlog and leases are kept."""
    clock = ManualClock()
    with Emulator(clock=clock) as first:
        wire = connect(wires, first)
        wire.create_with("a", "b")
        (a,) = wire.pull(1)
        stream = wire.stream()
        assert stream.data(1) == ["b"]
    with Emulator(clock=clock, port=first.port, broker=first.broker) as second:
        assert second.endpoint == first.endpoint
        wire = connect(wires, second)
        # The leases of the stream and of the pull continue.
        assert wire.pull(wait=False) == []
        assert second.backlog(SUBSCRIPTION) == 2
        wire.acknowledge(a.ack_id)
        assert second.backlog(SUBSCRIPTION) == 1
        clock.advance(60)
        assert [m.message.data for m in wire.pull()] == [b"b"]


def test_a_client_that_reads_nothing_does_not_delay_the_stop_of_an_emulator(
    wires: list[Wire],
) -> None:
    """The broker stops, and all messages are still in the engine, some of them leased."""
    with Emulator() as emulator:
        wire = connect(wires, emulator)
        wire.create_with(*["x" * 9_000] * 1000)
        # A variable, because gRPC cancels a call that nobody refers to.
        unread = wire.stream()
        unread.call.initial_metadata()
        emulator.history.wait_until(lambda: bool(emulator.history.deliveries()))
    assert emulator.engine.backlog(SUBSCRIPTION) == 1000
    with Emulator(broker=emulator.broker) as again:
        wire = connect(wires, again)
        again.clock.advance(60)
        assert len(wire.pull(1000) + wire.pull(1000) + wire.pull(1000)) == 1000


def test_start_and_stop_of_an_emulator_can_be_called_twice() -> None:
    """Frameworks with their own set-up and tear-down do so."""
    emulator = Emulator()
    assert emulator.start() is emulator.start()
    port = emulator.port
    emulator.stop()
    emulator.stop()
    assert THREAD not in threads()
    assert emulator.start().port == port
    emulator.stop()


def test_two_emulators_of_a_process_share_no_resources(wires: list[Wire]) -> None:
    """The emulators share a thread and no state. Each may stop first."""
    with Emulator() as first:
        with Emulator() as second:
            connect(wires, first).create()
            connect(wires, second).create()
            wires[0].publish("a")
            assert (first.backlog(SUBSCRIPTION), second.backlog(SUBSCRIPTION)) == (1, 0)
            assert threads().count(THREAD) == 1
        assert [m.message.data for m in wires[0].pull()] == [b"a"]
    assert THREAD not in threads()


def test_starting_an_emulator_on_a_port_that_is_in_use_raises_an_os_error() -> None:
    """The error names the address, nothing is left behind, and the other broker continues."""
    with Emulator() as first:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{first.port}: .* in use"):
            Emulator(port=first.port).start()
        assert first.inspect(lambda engine: engine.next_due()) is None
    assert THREAD not in threads()


@pytest.mark.parametrize("port", [-1, 65536])
def test_creating_an_emulator_with_a_port_out_of_range_raises_a_value_error(port: int) -> None:
    """Otherwise the system would use its lowest sixteen bits."""
    with pytest.raises(ValueError, match=f"port is {port}; it must be between 0 .* and 65535"):
        Emulator(port=port)


def test_the_max_pull_messages_argument_limits_the_response_to_a_pull(wires: list[Wire]) -> None:
    """The other messages stay for other callers. A stream is not limited."""
    with Emulator(max_pull_messages=2) as emulator:
        wire = connect(wires, emulator)
        wire.create_with("a", "b", "c", "d", "e", "f", "g", "h")
        assert [len(wire.pull()) for _ in range(2)] == [2, 2]
        # A smaller maximum of the caller counts.
        assert len(wire.pull(1)) == 1
        assert len(wire.stream().next().received_messages) == 3


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_creating_an_emulator_with_max_pull_messages_out_of_range_raises_a_value_error(
    limit: int,
) -> None:
    expected = f"max_pull_messages is {limit}; it must be between 1 and 1000"
    with pytest.raises(ValueError, match=expected):
        Emulator(max_pull_messages=limit)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"data": 3}, "data is 3; it must be bytes, a str or a PubsubMessage"),
        ({"data": "x", "customer": 7}, "customer is 7; it must be a str"),
        ({"data": "x", "ordering_key": 3}, "ordering_key is 3; it must be a str"),
    ],
)
def test_the_error_of_emulator_publish_names_the_invalid_argument(
    emulator: Emulator, message: dict[str, Any], text: str
) -> None:
    """Protobuf's error would mention a built-in operation."""
    with pytest.raises(TypeError, match=text):
        emulator.publish("projects/p/topics/topic", **message)


def test_emulator_publish_accepts_the_same_arguments_as_the_publish_method_of_the_sdk(
    emulator: Emulator,
) -> None:
    """The key may be positional, and the data a whole message."""
    topic = "projects/p/topics/orders"
    emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=topic)))
    emulator.publish(topic, b"data", "k", a="1")
    message = pubsub.PubsubMessage(data=b"data", ordering_key="k", attributes={"a": "1"})
    emulator.publish(topic, message)
    first, second = emulator.messages(topic)
    assert (first.data, first.ordering_key, first.attributes) == (
        second.data,
        second.ordering_key,
        second.attributes,
    )
    with pytest.raises(ValueError, match="a PubsubMessage has its own ordering key"):
        emulator.publish(topic, message, "k")


def test_starting_an_emulator_on_a_host_that_is_not_local_raises_an_os_error() -> None:
    """The check includes an address shared with another broker, as both would get clients."""
    for host in ("nowhere.invalid", "a..b"):
        with pytest.raises(OSError, match=f"cannot listen on {host}: "):
            Emulator(host=host).start()
    with (
        Emulator() as first,
        pytest.raises(OSError, match=f"cannot listen on localhost:{first.port}: .* in use"),
    ):
        Emulator(host="localhost", port=first.port).start()


def test_the_engine_of_a_stopped_emulator_can_be_inspected(wires: list[Wire]) -> None:
    """A test may examine the broker after its end."""
    with Emulator() as emulator:
        connect(wires, emulator).create()
        wires[0].publish("a")
    assert emulator.backlog(SUBSCRIPTION) == 1
    assert emulator.inspect(lambda engine: engine.backlog(SUBSCRIPTION)) == 1


def test_an_exception_in_emulator_inspect_is_raised_to_the_caller(emulator: Emulator) -> None:
    """The exception does not harm the broker."""
    with pytest.raises(ZeroDivisionError):
        emulator.inspect(lambda engine: 1 / 0)
    assert emulator.inspect(lambda engine: engine.next_due()) is None


def test_the_emulator_fixture_makes_clients_connect_to_a_fresh_broker(
    pubsub_emulator: Emulator, wires: list[Wire]
) -> None:
    """The fixture sets the variables that Google's clients and pullstream read."""
    assert os.environ["PUBSUB_EMULATOR_HOST"] == pubsub_emulator.endpoint
    assert os.environ["PUBSUB_PROJECT_ID"] == "test-project"
    listed = connect(wires, pubsub_emulator).call(
        "ListTopics", pubsub.ListTopicsRequest(project="projects/test-project")
    )
    assert listed == pubsub.ListTopicsResponse()


def test_a_function_given_to_an_error_fault_can_publish_to_and_inspect_the_emulator(
    emulator: Emulator, wire: Wire
) -> None:
    """The function runs on the thread that owns the engine, and does not wait."""
    wire.create()
    seen: list[int] = []

    def look(request: pubsub.GetTopicRequest) -> None:
        emulator.publish(request.topic, "a")
        seen.append(emulator.backlog(SUBSCRIPTION))

    emulator.faults.error("GetTopic", look)
    wire.call("GetTopic", pubsub.GetTopicRequest(topic=TOPIC))
    assert seen == [1]


def test_emulator_methods_accept_a_resource_id_that_only_one_project_has() -> None:
    """The error for another id says what is allowed."""
    content = {
        "topics": [{"name": f"projects/{each}/topics/orders"} for each in ("one", "two")],
        "subscriptions": [
            {"name": "projects/one/subscriptions/billing", "topic": "projects/one/topics/orders"}
        ],
    }
    with Emulator(config=content) as emulator:
        emulator.publish("projects/one/topics/orders", "a")
        assert emulator.backlog("billing") == 1
        with pytest.raises(ValueError, match="several projects have a topic 'orders': projects/"):
            emulator.publish("orders", "a")
        with pytest.raises(ValueError, match="no subscription 'billng'; give the id or the full"):
            emulator.wait_until_acked("billng")
        emulator.inspect(lambda engine: engine.delete_topic("projects/two/topics/orders"))
        assert emulator.publish("orders", "b") == "2"
