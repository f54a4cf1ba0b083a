"""Scope of faults: by resource, by pattern, by chance."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.faults import Faults
from pullstream_emulator.faults.scope import Scope, matches, named
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire, wait_until_idle

OTHER = f"{PROJECT}/topics/refunds"
AWAY = Unavailable("away")


def fails(wire: Wire, method: str, request: Any) -> bool:
    """Return whether a call ends with the fault's error. Any other error fails the test."""
    error = wire.start(method, request).exception()
    assert error is None or error.code() is grpc.StatusCode.UNAVAILABLE
    return error is not None


def get(topic: str) -> pubsub.GetTopicRequest:
    return pubsub.GetTopicRequest(topic=topic)


@pytest.fixture
def faults(emulator: Emulator, wire: Wire) -> Faults:
    """Return the faults of a broker with two topics and a subscription."""
    wire.create()
    wire.call("CreateTopic", pubsub.Topic(name=OTHER))
    return emulator.faults


@pytest.mark.parametrize("resource", [TOPIC, "orders", "ord*", "projects/test/topics/o*", "or?ers"])
def test_a_fault_limited_to_one_resource_does_not_affect_calls_for_other_resources(
    resource: str, faults: Faults, wire: Wire
) -> None:
    """The resource is given by its full name, its ID, or a pattern of either."""
    fault = faults.error("GetTopic", AWAY, resource=resource)
    assert [fails(wire, "GetTopic", get(name)) for name in (TOPIC, OTHER)] == [True, False]
    assert fault.hits == 1


def test_a_fault_limited_to_a_resource_affects_every_call_that_names_the_resource(
    faults: Faults, wire: Wire
) -> None:
    """The name may be in any field, also inside another resource."""
    faults.error("*", AWAY, resource=TOPIC)
    subscribing = pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=TOPIC)
    message = pubsub.PubsubMessage(data=b"a")
    covered: dict[str, Any] = {
        "Publish": pubsub.PublishRequest(topic=TOPIC, messages=[message]),
        "CreateSubscription": subscribing,
        "CreateTopic": pubsub.Topic(name=TOPIC),
        "UpdateTopic": pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=TOPIC)),
    }
    assert all(fails(wire, method, request) for method, request in covered.items())
    assert not fails(wire, "Publish", pubsub.PublishRequest(topic=OTHER, messages=[message]))


def test_a_stream_fault_limited_to_a_subscription_spares_streams_of_other_subscriptions(
    faults: Faults, wire: Wire
) -> None:
    """The rule holds for open and for new streams."""
    second = f"{SUBSCRIPTION}-2"
    wire.call("CreateSubscription", pubsub.Subscription(name=second, topic=TOPIC))
    hit, spared = wire.stream(), wire.stream(subscription=second)
    assert hit.is_quiet()
    assert spared.is_quiet()
    assert faults.abort_streams(AWAY, resource=SUBSCRIPTION).hits == 1
    assert hit.end() is grpc.StatusCode.UNAVAILABLE
    assert spared.is_quiet()
    faults.error("StreamingPull", AWAY, resource=SUBSCRIPTION)
    assert wire.stream().end() is grpc.StatusCode.UNAVAILABLE
    assert wire.stream(subscription=second).is_quiet()


def test_a_stream_fault_with_a_count_ends_that_many_streaming_pulls(
    faults: Faults, wire: Wire
) -> None:
    """The other streams continue."""
    streams = [wire.stream() for _ in range(3)]
    wait_until_idle(*streams)
    assert faults.close_streams(times=2).hits == 2
    wire.publish("a")
    ended = 0
    for stream in streams:
        try:
            assert stream.data(1) == ["a"]
        except StopIteration:
            ended += 1
    assert ended == 2


def luck(seed: int, calls: int = 60) -> list[bool]:
    """Return which of some calls fail, with a probability of one half."""
    with Emulator(clock=ManualClock(), fault_seed=seed) as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        fault = emulator.faults.error("GetTopic", AWAY, probability=0.5)
        failed = [fails(wire, "GetTopic", get(TOPIC)) for _ in range(calls)]
        assert fault.hits == sum(failed)
        wire.close()
    return failed


def test_faults_with_the_same_probability_and_seed_affect_the_same_calls() -> None:
    """The same seed fails the same calls. Another seed fails others."""
    first = luck(seed=1)
    assert first == luck(seed=1)
    assert first != luck(seed=2)
    assert 10 < sum(first) < 50


def test_two_faults_with_a_probability_affect_calls_independently_of_each_other(
    faults: Faults,
) -> None:
    """A fault with another scope affects other calls."""
    rolls = [
        [fault.claim() for _ in range(60)]
        for fault in (
            faults.drop("GetTopic", probability=0.5),
            faults.drop("Pull", probability=0.5),
            faults.drop("GetTopic", resource="orders", probability=0.5),
        )
    ]
    assert rolls[0] != rolls[1] != rolls[2] != rolls[0]


def test_calls_spared_by_the_probability_of_a_fault_do_not_use_up_the_count_of_the_fault(
    faults: Faults, wire: Wire
) -> None:
    """`times` counts the calls that fail, not those that are spared."""
    faults.error("GetTopic", AWAY, times=3, probability=0.3)
    assert sum(fails(wire, "GetTopic", get(TOPIC)) for _ in range(60)) == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"probability": 0}, "probability must be above 0 and at most 1: 0"),
        ({"probability": 1.5}, "probability must be above 0 and at most 1"),
        ({"probability": float("nan")}, "probability must be above 0 and at most 1"),
        ({"resource": ""}, "resource must be a name, an id, or a pattern"),
        ({"times": 0}, "times must be 1 or more"),
        ({"method": "publish"}, "method must be the name of an RPC"),
    ],
)
def test_creating_an_invalid_fault_scope_raises_a_value_error(
    arguments: dict[str, Any], text: str
) -> None:
    """The error has the name of the argument and its value."""
    with pytest.raises(ValueError, match=text):
        Scope(**arguments)


def test_a_fault_resource_pattern_without_a_slash_is_compared_with_resource_ids() -> None:
    """`*` in such a pattern cannot match across the parts of a full name."""
    assert matches("o*", TOPIC)
    assert not matches("p*", TOPIC)
    assert matches("projects/test/*/orders", TOPIC)
    assert not matches("Orders", TOPIC)


def test_all_resource_names_in_a_request_are_found_for_the_comparison_with_a_fault_scope() -> None:
    """Every field that holds a name counts."""
    assert named(pubsub.SeekRequest(subscription="s", snapshot="n")) == ("s", "n")
    request = schema.CreateSchemaRequest(parent="projects/p", schema=schema.Schema(name="x"))
    assert named(request) == ("projects/p", "x")
