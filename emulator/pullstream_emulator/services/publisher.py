"""google.pubsub.v1.Publisher."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.empty_pb2 import Empty

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.resources.topics import Validate
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import PUBLISHER

from .reply_first import ReplyFirst
from .rpc_methods import RpcMethod, UnaryMethod, peer_of
from .schema_checks import SchemaChecks


class PublisherService:
    """Topics and publishing."""

    service = PUBLISHER

    def __init__(self, engine: Engine, head_start: ReplyFirst, checks: SchemaChecks) -> None:
        self._engine = engine
        self._checks = checks
        self._head_start = head_start

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; Publish replies after the streams that it wakes."""
        return {
            "CreateTopic": UnaryMethod(self._engine.create_topic),
            "UpdateTopic": UnaryMethod(self._engine.update_topic),
            "Publish": UnaryMethod(
                self.publish, keywords=peer_of, finish=self._head_start.let_others_go
            ),
            "GetTopic": UnaryMethod(self.get_topic),
            "ListTopics": UnaryMethod(self._engine.list_topics),
            "ListTopicSubscriptions": UnaryMethod(self._engine.list_topic_subscriptions),
            "ListTopicSnapshots": UnaryMethod(self._engine.list_topic_snapshots),
            "DeleteTopic": UnaryMethod(self.delete_topic),
            "DetachSubscription": UnaryMethod(self.detach_subscription),
        }

    def get_topic(self, request: pubsub.GetTopicRequest) -> pubsub.Topic:
        """Return the settings of a topic, or raise NotFound."""
        return self._engine.get_topic(request.topic)

    def delete_topic(self, request: pubsub.DeleteTopicRequest) -> Empty:
        """Delete a topic; its subscriptions keep their backlogs."""
        self._engine.delete_topic(request.topic)
        return Empty()

    def detach_subscription(
        self, request: pubsub.DetachSubscriptionRequest
    ) -> pubsub.DetachSubscriptionResponse:
        """Detach a subscription from its topic, and drop its backlog."""
        self._engine.detach_subscription(request.subscription)
        return pubsub.DetachSubscriptionResponse()

    def publish(self, request: pubsub.PublishRequest, *, peer: str = "") -> pubsub.PublishResponse:
        """Publish all messages or none, after a check against the schema; offload a long check."""

        def publish(request: pubsub.PublishRequest, validate: Validate) -> pubsub.PublishResponse:
            self._head_start.published(peer)
            ids = self._engine.publish(request, validate)
            return pubsub.PublishResponse(message_ids=ids)

        return self._checks.carry_out(request, publish)
