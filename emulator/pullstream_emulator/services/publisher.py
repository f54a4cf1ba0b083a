"""google.pubsub.v1.Publisher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.resources.topics import Validate
from pullstream_protocol.clock import Clock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import IDEMPOTENCY_KEY, PUBLISHER

from .published_requests import PublishedRequests
from .reply_first import ReplyFirst
from .rpc_methods import CallContext, RpcMethod, UnaryMethod, on_field
from .schema_checks import SchemaChecks


def _publish_keywords(context: CallContext) -> dict[str, Any]:
    """Return the keyword arguments of `PublisherService.publish` for a call."""
    metadata = dict(context.invocation_metadata() or ())
    return {"peer": context.peer(), "idempotency_key": metadata.get(IDEMPOTENCY_KEY, "")}


class PublisherService:
    """Topics and publishing."""

    service = PUBLISHER

    def __init__(
        self, engine: Engine, reply_first: ReplyFirst, checks: SchemaChecks, clock: Clock
    ) -> None:
        self._engine = engine
        self._checks = checks
        self._reply_first = reply_first
        self._earlier = PublishedRequests(clock)

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; Publish replies after the streams that it wakes."""
        return {
            "CreateTopic": UnaryMethod(self._engine.create_topic),
            "UpdateTopic": UnaryMethod(self._engine.update_topic),
            "Publish": UnaryMethod(
                self.publish,
                keywords=_publish_keywords,
                prepare=self._checks.check,
                finish=self._reply_first.let_streams_write,
            ),
            "GetTopic": on_field("topic", self._engine.get_topic),
            "ListTopics": UnaryMethod(self._engine.list_topics),
            "ListTopicSubscriptions": UnaryMethod(self._engine.list_topic_subscriptions),
            "ListTopicSnapshots": UnaryMethod(self._engine.list_topic_snapshots),
            "DeleteTopic": on_field("topic", self._engine.delete_topic),
            "DetachSubscription": UnaryMethod(self.detach_subscription),
        }

    def detach_subscription(
        self, request: pubsub.DetachSubscriptionRequest
    ) -> pubsub.DetachSubscriptionResponse:
        """Detach a subscription from its topic, and drop its backlog."""
        self._engine.detach_subscription(request.subscription)
        return pubsub.DetachSubscriptionResponse()

    def publish(
        self,
        request: pubsub.PublishRequest,
        *,
        peer: str = "",
        idempotency_key: str = "",
        validate: Validate | None = None,
    ) -> pubsub.PublishResponse:
        """Publish all messages or none, after a check against the schema.

        A request with the idempotency key of an earlier one gets its message IDs, and publishes
        nothing.
        """
        ids: Sequence[str] | None = None
        topic = self._engine.registry.topic(request.topic)
        if idempotency_key:
            ids = self._earlier.ids_of(topic, idempotency_key)
        if ids is None:
            self._reply_first.published(peer)
            ids = self._engine.publish(request, validate)
            if idempotency_key:
                self._earlier.remember(topic, idempotency_key, ids)
        return pubsub.PublishResponse(message_ids=ids)
