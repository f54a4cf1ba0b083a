"""A broker under attack: what hostile requests name is there, and its state can be compared."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import Message

from emulator import Emulator
from protocol.messages import iam_pb2 as iam
from protocol.messages import pubsub_pb2 as pubsub
from protocol.messages import schema_pb2 as schema
from protocol.rpcs import Rpc
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.hostile import SNAPSHOT
from tests.emulator.wire import Wire

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

# How long a Pull may wait, in seconds: most have nothing to wait for.
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
            ("CreateTopic", pubsub.Topic(name=TOPIC)),
            ("CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)),
            (
                "CreateSnapshot",
                pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION),
            ),
            (
                "CreateSchema",
                schema.CreateSchemaRequest(parent=PROJECT, schema=avro, schema_id="province"),
            ),
        ]
        for call in calls:
            self.wire.start(*call).exception()

    def refusal(self, rpc: Rpc, data: bytes) -> grpc.Call | None:
        """Send a request; returns the failed call, or None if it succeeded."""
        timeout = SHORT if rpc.method == "Pull" else 20.0
        call: Any = self.wire.raw(rpc.method).future(data, timeout=timeout)
        return call if call.exception() is not None else None

    def state(self) -> list[bytes]:
        """All that a client can list, the policy of the topic, and the backlog."""
        calls: list[tuple[str, Message]] = [
            ("ListTopics", pubsub.ListTopicsRequest(project=PROJECT)),
            ("ListSubscriptions", pubsub.ListSubscriptionsRequest(project=PROJECT)),
            ("ListSnapshots", pubsub.ListSnapshotsRequest(project=PROJECT)),
            ("ListSchemas", schema.ListSchemasRequest(parent=PROJECT)),
            ("GetIamPolicy", iam.GetIamPolicyRequest(resource=TOPIC)),
        ]
        # All on their way before the first is answered: this is done for every request.
        answers = [self.wire.start(*each) for each in calls]
        return [
            b"%d" % self.emulator.backlog(SUBSCRIPTION),
            *(answer.result().SerializeToString(deterministic=True) for answer in answers),
        ]

    def check_refused(self, rpc: Rpc, data: bytes) -> bool:
        """Send a request; if it is refused, this must be for a reason and without any effect."""
        self.prepare()
        before = self.state()
        refused = self.refusal(rpc, data)
        if refused is None:
            return False
        allowed = REFUSALS | (
            {grpc.StatusCode.DEADLINE_EXCEEDED} if rpc.method == "Pull" else set()
        )
        assert refused.code() in allowed, refused.details()
        assert 0 < len(refused.details()) < 1000
        assert self.state() == before
        return True
