"""The Publisher service: topics, and publishing by single calls.

Methods take requests, keywords and call options as those of `subscriber.admin` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from protocol import names
from protocol.messages import pubsub_pb2 as pubsub

from .paging import Pager
from .request import make_message
from .rpc import CallOptions
from .service import ServiceClient

if TYPE_CHECKING:
    from google.protobuf.field_mask_pb2 import FieldMask
    from typing_extensions import Unpack

Dict = Mapping[str, Any]


class TopicAdminClient(ServiceClient):
    """Manages topics and publishes to them. Made like every client; see `ServiceClient`."""

    @staticmethod
    def schema_path(project: str, schema: str) -> str:
        """`projects/PROJECT/schemas/SCHEMA`."""
        return names.schema_path(project, schema)

    @staticmethod
    def parse_schema_path(path: str) -> dict[str, str]:
        """`{"project": ..., "schema": ...}`, or `{}` if `path` is not a schema's name."""
        return names.parse("schemas", path)

    def create_topic(
        self,
        request: pubsub.Topic | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Topic:
        """Make a topic; `request` can set more than its name.

        Raises:
            AlreadyExists: there is a topic of this name.
        """
        return self._call("CreateTopic", pubsub.Topic, request, options, name=name)

    def get_topic(
        self,
        request: pubsub.GetTopicRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Topic:
        """The settings of a topic."""
        return self._call("GetTopic", pubsub.Topic, request, options, topic=topic)

    def update_topic(
        self,
        request: pubsub.UpdateTopicRequest | Dict | None = None,
        *,
        topic: pubsub.Topic | Dict | None = None,
        update_mask: FieldMask | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Topic:
        """Change the settings that `update_mask` names: `{"paths": ["labels"]}`."""
        fields = {"topic": topic, "update_mask": update_mask}
        return self._call("UpdateTopic", pubsub.Topic, request, options, **fields)

    def list_topics(
        self,
        request: pubsub.ListTopicsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[pubsub.Topic]:
        """The topics of a project, `projects/P`; later pages are got as they are reached."""
        return self._list("ListTopics", "topics", request, options, project=project)

    def list_topic_subscriptions(
        self,
        request: pubsub.ListTopicSubscriptionsRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[str]:
        """The full names of the subscriptions attached to a topic."""
        return self._list("ListTopicSubscriptions", "subscriptions", request, options, topic=topic)

    def list_topic_snapshots(
        self,
        request: pubsub.ListTopicSnapshotsRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[str]:
        """The full names of the snapshots of a topic."""
        return self._list("ListTopicSnapshots", "snapshots", request, options, topic=topic)

    def delete_topic(
        self,
        request: pubsub.DeleteTopicRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a topic. Its subscriptions stay, with their backlog, and get nothing new."""
        self._call("DeleteTopic", Empty, request, options, topic=topic)

    def detach_subscription(
        self,
        request: pubsub.DetachSubscriptionRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.DetachSubscriptionResponse:
        """Cut a subscription off its topic and drop its backlog."""
        response = pubsub.DetachSubscriptionResponse
        return self._call(
            "DetachSubscription", response, request, options, subscription=subscription
        )

    def publish(
        self,
        topic: str,
        messages: Iterable[pubsub.PubsubMessage | Dict],
        **options: Unpack[CallOptions],
    ) -> list[str]:
        """Publish `messages` by one call and return their ids, in the same order.

        Batching is the caller's: a request holds 1 to 1000 messages and at most 10,000,000 bytes.
        It is stored as a whole or not at all. A dict has the fields of a PubsubMessage: `data`
        (bytes), `attributes` (a dict of texts), `ordering_key`.

        Raises:
            InvalidArgument: there are too many messages, or one is empty or too large.
            NotFound: there is no such topic.
        """
        ready = [
            make_message(pubsub.PubsubMessage, message) if isinstance(message, Mapping) else message
            for message in messages
        ]
        fields = {"topic": topic, "messages": ready}
        response = self._call("Publish", pubsub.PublishResponse, None, options, **fields)
        return list(response.message_ids)
