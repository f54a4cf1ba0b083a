"""A broker under attack: what hostile requests name is there, and its state can be compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import DecodeError, Message

from emulator import Emulator
from emulator.broker import Broker
from emulator.config.seeds import Call
from emulator.engine import Engine
from protocol.clock import ManualClock
from protocol.errors import AlreadyExists, FailedPrecondition
from protocol.messages import feeds_pb2 as feeds
from protocol.messages import iam_pb2 as iam
from protocol.messages import pubsub_pb2 as pubsub
from protocol.messages import schema_pb2 as schema
from protocol.rpcs import Rpc
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.hostile import SNAPSHOT
from tests.emulator.wire import PATIENCE, Wire

# What a refused request may be told. The others speak of the broker's own state, and official
# clients try most of them again for minutes.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    # SetIamPolicy with the tag of an older policy.
    grpc.StatusCode.ABORTED,
}

AVRO = '{"type": "record", "name": "Province", "fields": [{"name": "name", "type": "string"}]}'

T = TypeVar("T")

# Calls that may wait, and how long they do here, in seconds: most have nothing to wait for.
WAITING = {"Pull", "Read", "Watch", "Poll"}
SHORT = 0.1


class Target:
    """A broker with one resource of each kind, and what can be seen of its state."""

    def __init__(self, emulator: Emulator, wire: Wire) -> None:
        self.emulator = emulator
        self.wire = wire

    def prepare(self) -> None:
        """Make what most requests name, if one of them has deleted it."""
        avro = schema.Schema(type=schema.Schema.AVRO, definition=AVRO)
        calls: list[tuple[str, Message]] = [
            ("create_topic", pubsub.Topic(name=TOPIC)),
            ("put_feed", feeds.PutFeedRequest(topic=TOPIC)),
            ("create_subscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)),
            (
                "create_snapshot",
                pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION),
            ),
            (
                "create_schema",
                schema.CreateSchemaRequest(parent=PROJECT, schema=avro, schema_id="province"),
            ),
        ]

        def make_all(call: Call) -> None:
            for each in calls:
                # A subscription's topic may be another one than the snapshot's by now.
                with suppress(AlreadyExists, FailedPrecondition):
                    call(*each)

        self._inside(make_all)

    def _inside(self, work: Callable[[Call], T]) -> T:
        """Calls that need no wire: there are very many, and the requests under test need it."""

        def on_loop(engine: Engine) -> T:
            broker = Broker.holding(engine)
            assert broker is not None
            return work(broker.call)

        return self.emulator.inspect(on_loop)

    def refusal(self, rpc: Rpc, data: bytes) -> grpc.Call | None:
        """Send a request; returns the failed call, or None if it succeeded."""
        timeout = SHORT if rpc.method in WAITING and _is_request(rpc, data) else PATIENCE
        call: Any = self.wire.raw(rpc.method).future(data, timeout=timeout)
        return call if call.exception() is not None else None

    def state(self) -> list[bytes]:
        """All that a client can list, the topic as a feed, its policy, and the backlog."""
        calls: list[tuple[str, Message]] = [
            ("list_topics", pubsub.ListTopicsRequest(project=PROJECT)),
            ("list_subscriptions", pubsub.ListSubscriptionsRequest(project=PROJECT)),
            ("list_snapshots", pubsub.ListSnapshotsRequest(project=PROJECT)),
            ("list_schemas", schema.ListSchemasRequest(parent=PROJECT)),
            ("get_iam_policy", iam.GetIamPolicyRequest(resource=TOPIC)),
        ]

        def ask_all(call: Call) -> list[bytes]:
            feed = call("get_feed", feeds.GetFeedRequest(topic=TOPIC))
            # A watch of an earlier request may just be ending.
            feed.watchers = 0
            told = [feed, *(call(*each) for each in calls)]
            return [each.SerializeToString(deterministic=True) for each in told]

        return [b"%d" % self.emulator.backlog(SUBSCRIPTION), *self._inside(ask_all)]

    def check_refused(self, rpc: Rpc, data: bytes) -> bool:
        """Send a request; if it is refused, this must be for a reason and without any effect."""
        self.prepare()
        before = self.state()
        refused = self.refusal(rpc, data)
        if refused is None:
            return False
        assert refused.code() in allowed(rpc), refused.details()
        assert 0 < len(refused.details()) < 1000
        assert self.state() == before
        return True


def allowed(rpc: Rpc) -> set[grpc.StatusCode]:
    """What a call may end with; one that waits may also have done so in vain."""
    return REFUSALS | ({grpc.StatusCode.DEADLINE_EXCEEDED} if rpc.method in WAITING else set())


def _is_request(rpc: Rpc, data: bytes) -> bool:
    try:
        rpc.request.FromString(data)
    except DecodeError:
        return False
    return True


@contextmanager
def under_attack(*, rest: bool = False) -> Iterator[Target]:
    with Emulator(clock=ManualClock(), rest=rest) as emulator:
        wire = Wire(emulator.endpoint)
        yield Target(emulator, wire)
        wire.close()


# For modules that import it.
@pytest.fixture(autouse=True)
def no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing may go wrong inside the broker, however it answers."""
    yield
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
