"""Which calls a fault covers: by resource, by pattern, by chance."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from emulator import Emulator
from emulator.faults import Faults
from emulator.faults.scope import Scope, matches, named
from protocol.clock import ManualClock
from protocol.errors import Unavailable
from protocol.messages import pubsub_pb2 as pubsub
from protocol.messages import schema_pb2 as schema
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire

OTHER = f"{PROJECT}/topics/refunds"
AWAY = Unavailable("away")


def fails(wire: Wire, method: str, request: Any) -> bool:
    """Whether a call ends with the fault's error; all others succeed."""
    error = wire.start(method, request).exception()
    assert error is None or error.code() is grpc.StatusCode.UNAVAILABLE
    return error is not None


def get(topic: str) -> pubsub.GetTopicRequest:
    return pubsub.GetTopicRequest(topic=topic)


@pytest.fixture
def faults(emulator: Emulator, wire: Wire) -> Faults:
    """Those of a broker with two topics and a subscription."""
    wire.create()
    wire.call("CreateTopic", pubsub.Topic(name=OTHER))
    return emulator.faults


@pytest.mark.parametrize("resource", [TOPIC, "orders", "ord*", "projects/test/topics/o*", "or?ers"])
def test_a_fault_of_one_resource_leaves_the_others_alone(
    resource: str, faults: Faults, wire: Wire
) -> None:
    """It is named in full, by its id, or by a pattern of either."""
    fault = faults.error("GetTopic", AWAY, resource=resource)
    assert [fails(wire, "GetTopic", get(name)) for name in (TOPIC, OTHER)] == [True, False]
    assert fault.hits == 1


def test_it_covers_every_call_that_names_the_resource(faults: Faults, wire: Wire) -> None:
    """In whichever field, also inside of another resource."""
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


def test_streams_are_told_apart_by_their_subscription(faults: Faults, wire: Wire) -> None:
    """Open ones and new ones."""
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


def test_only_so_many_streams_are_ended(faults: Faults, wire: Wire) -> None:
    """The rest goes on."""
    streams = [wire.stream() for _ in range(3)]
    assert all(stream.is_quiet() for stream in streams)
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
    """Which of some calls fail, with a chance of one half."""
    with Emulator(clock=ManualClock(), fault_seed=seed) as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        fault = emulator.faults.error("GetTopic", AWAY, probability=0.5)
        failed = [fails(wire, "GetTopic", get(TOPIC)) for _ in range(calls)]
        assert fault.hits == sum(failed)
        wire.close()
    return failed


def test_chance_is_the_same_in_every_run() -> None:
    """With the same seed the same calls fail, with another one others do."""
    first = luck(seed=1)
    assert first == luck(seed=1)
    assert first != luck(seed=2)
    assert 10 < sum(first) < 50


def test_two_faults_do_not_share_their_luck(faults: Faults, wire: Wire) -> None:
    """One with another scope hits other calls."""
    rolls = [
        [fault.claim() for _ in range(60)]
        for fault in (
            faults.drop("GetTopic", probability=0.5),
            faults.drop("Pull", probability=0.5),
            faults.drop("GetTopic", resource="orders", probability=0.5),
        )
    ]
    assert rolls[0] != rolls[1] != rolls[2] != rolls[0]


def test_what_is_spared_by_chance_does_not_count(faults: Faults, wire: Wire) -> None:
    """`times` is how often it acts, not how often it might have."""
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
def test_a_scope_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    """With the name of the argument and its value."""
    with pytest.raises(ValueError, match=text):
        Scope(**arguments)


def test_patterns_without_a_slash_are_for_ids() -> None:
    """So that `*` in them does not run over a whole name."""
    assert matches("o*", TOPIC)
    assert not matches("p*", TOPIC)
    assert matches("projects/test/*/orders", TOPIC)
    assert not matches("Orders", TOPIC)


def test_a_request_names_what_it_is_about() -> None:
    """By every field that holds a name."""
    assert named(pubsub.SeekRequest(subscription="s", snapshot="n")) == ("s", "n")
    request = schema.CreateSchemaRequest(parent="projects/p", schema=schema.Schema(name="x"))
    assert named(request) == ("projects/p", "x")
