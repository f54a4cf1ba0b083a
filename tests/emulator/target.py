"""A broker for hostile requests. Their resources exist, and the broker's state can be compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import DecodeError, Message

from pullstream_emulator import Emulator
from pullstream_emulator.config.seeds import Call
from pullstream_emulator.engine import Engine
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import AlreadyExists, FailedPrecondition
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import RPCS, Rpc
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, TOPIC
from tests.emulator.wire import TIMEOUT, Wire

# Each kind of request belongs to one method.
METHODS: dict[type[Message], str] = {rpc.request: rpc.method for rpc in RPCS}

# The allowed codes of a refusal. The other codes concern the broker's own state, and official
# clients retry most of them for minutes.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    # For SetIamPolicy with the etag of an older policy.
    grpc.StatusCode.ABORTED,
}

AVRO = '{"type": "record", "name": "Province", "fields": [{"name": "name", "type": "string"}]}'

T = TypeVar("T")

# Calls that may wait, and their time limit in these tests, in seconds. Most have nothing to wait
# for.
WAITING = {"Pull", "Read", "Watch", "Poll"}
SHORT = 0.1


class Target:
    """A broker with one resource of each kind, and a view of its visible state."""

    def __init__(self, emulator: Emulator, wire: Wire) -> None:
        self.emulator = emulator
        self.wire = wire

    def prepare(self) -> None:
        """Create the resources that most requests name, if a request has deleted them."""
        avro = schema.Schema(type=schema.Schema.AVRO, definition=AVRO)
        calls = (
            pubsub.Topic(name=TOPIC),
            feeds.PutFeedRequest(topic=TOPIC),
            pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC),
            pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION),
            schema.CreateSchemaRequest(parent=PROJECT, schema=avro, schema_id="province"),
        )

        def make_all(call: Call) -> None:
            for each in calls:
                # The subscription and the snapshot may belong to different topics by now.
                with suppress(AlreadyExists, FailedPrecondition):
                    call(METHODS[type(each)], each)

        self._inside(make_all)

    def _inside(self, work: Callable[[Call], T]) -> T:
        """Call the service directly.

        These calls are frequent, and the requests under test need the network.
        """

        def on_loop(engine: Engine) -> T:
            return work(self.emulator.broker.call)

        return self.emulator.inspect(on_loop)

    def refusal(self, rpc: Rpc, data: bytes) -> grpc.Call | None:
        """Send a request. Return the failed call, or None if it succeeded."""
        timeout = SHORT if rpc.method in WAITING and _is_request(rpc, data) else TIMEOUT
        call: Any = self.wire.raw(rpc.method).future(data, timeout=timeout)
        return call if call.exception() is not None else None

    def state(self) -> list[bytes]:
        """Return all listed resources, the topic as a feed, its policy, and the backlog."""
        calls = (
            pubsub.ListTopicsRequest(project=PROJECT),
            pubsub.ListSubscriptionsRequest(project=PROJECT),
            pubsub.ListSnapshotsRequest(project=PROJECT),
            schema.ListSchemasRequest(parent=PROJECT),
            iam.GetIamPolicyRequest(resource=TOPIC),
        )

        def ask_all(call: Call) -> list[bytes]:
            feed = call("GetFeed", feeds.GetFeedRequest(topic=TOPIC))
            # A watch of an earlier request may just be ending.
            feed.watchers = 0
            told = [feed, *(call(METHODS[type(each)], each) for each in calls)]
            return [each.SerializeToString(deterministic=True) for each in told]

        return [b"%d" % self.emulator.backlog(SUBSCRIPTION), *self._inside(ask_all)]

    def check_refused(self, rpc: Rpc, data: bytes) -> bool:
        """Send a request.

        If it is refused, check that the code is allowed and that the state is unchanged.
        """
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
    """Return the codes with which a call may end. One that waits may also time out."""
    return REFUSALS | ({grpc.StatusCode.DEADLINE_EXCEEDED} if rpc.method in WAITING else set())


def _is_request(rpc: Rpc, data: bytes) -> bool:
    try:
        rpc.request.FromString(data)
    except DecodeError:
        return False
    return True


@contextmanager
def under_attack(*, rest: bool = False) -> Iterator[Target]:
    with Emulator(clock=ManualClock(), rest=rest) as emulator, Wire(emulator.endpoint) as wire:
        yield Target(emulator, wire)


# For modules that import it.
@pytest.fixture(autouse=True)
def no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no error occurred inside the broker, whatever it answers."""
    yield
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
