"""google.pubsub.v1.Publisher."""

from __future__ import annotations

from google.protobuf.empty_pb2 import Empty

from emulator.engine import Engine
from protocol.messages import pubsub_pb2 as pubsub

from .head_start import HeadStart


class PublisherService:
    """Topics and publishing, straight from the engine."""

    def __init__(self, engine: Engine, head_start: HeadStart) -> None:
        self._engine = engine
        self._head_start = head_start
        self.finish_publish = head_start.let_others_go
        self.create_topic = engine.create_topic
        self.update_topic = engine.update_topic
        self.list_topics = engine.list_topics
        self.list_topic_subscriptions = engine.list_topic_subscriptions
        self.list_topic_snapshots = engine.list_topic_snapshots

    def get_topic(self, request: pubsub.GetTopicRequest) -> pubsub.Topic:
        return self._engine.get_topic(request.topic)

    def delete_topic(self, request: pubsub.DeleteTopicRequest) -> Empty:
        self._engine.delete_topic(request.topic)
        return Empty()

    def detach_subscription(
        self, request: pubsub.DetachSubscriptionRequest
    ) -> pubsub.DetachSubscriptionResponse:
        self._engine.detach_subscription(request.subscription)
        return pubsub.DetachSubscriptionResponse()

    def publish(self, request: pubsub.PublishRequest, *, peer: str = "") -> pubsub.PublishResponse:
        self._head_start.published(peer)
        return pubsub.PublishResponse(message_ids=self._engine.publish(request))
