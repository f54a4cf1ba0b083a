"""The Publisher service: topics, and publishing with single calls.

The methods take requests, keywords and call options like the methods of `pullstream.admin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .publish_error import confirmed_ids
from .rpc.base_client import BaseClient
from .rpc.paging import Pager
from .rpc.request import message_of
from .rpc.rpcs import CallOptions, ListOptions

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.field_mask_pb2 import FieldMask
    from typing_extensions import Unpack

Dict = Mapping[str, Any]


class TopicFields(CallOptions, total=False):
    """Further keywords of `create_topic`.

    Attributes:
        labels: Names and values for the user's own use.
        message_storage_policy: The regions in which messages are stored.
        kms_key_name: The key that encrypts the messages.
        schema_settings: The schema that every message must fit.
        message_retention_duration: How long messages are kept for seeks, also acknowledged ones.
        ingestion_data_source_settings: A source outside Pub/Sub that the topic gets messages from.
        message_transforms: Change the messages before they are stored.
        tags: Tags of the resource, at creation.
    """

    labels: Mapping[str, str]
    message_storage_policy: pubsub.MessageStoragePolicy | Dict
    kms_key_name: str
    schema_settings: pubsub.SchemaSettings | Dict
    message_retention_duration: Duration | Dict
    ingestion_data_source_settings: pubsub.IngestionDataSourceSettings | Dict
    message_transforms: Sequence[pubsub.MessageTransform | Dict]
    tags: Mapping[str, str]


class TopicAdmin(BaseClient):
    """The calls that manage topics."""

    def create_topic(
        self,
        request: pubsub.Topic | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[TopicFields],
    ) -> pubsub.Topic:
        """Create a topic.

        Every field of a topic is a keyword.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name, `projects/P/topics/T`.
            **options: Further fields, see `TopicFields`; and `retry`, `timeout` and `metadata`, see
                `CallOptions`.

        Returns:
            The topic as the server stores it.

        Raises:
            AlreadyExists: A topic of this name exists.
        """
        return self._call("CreateTopic", pubsub.Topic, request, options, name=name)

    def get_topic(
        self,
        request: pubsub.GetTopicRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Topic:
        """Return the settings of a topic.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            topic: Full name of the topic, `projects/P/topics/T`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The topic does not exist.
        """
        return self._call("GetTopic", pubsub.Topic, request, options, topic=topic)

    def update_topic(
        self,
        request: pubsub.UpdateTopicRequest | Dict | None = None,
        *,
        topic: pubsub.Topic | Dict | None = None,
        update_mask: FieldMask | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Topic:
        """Change settings of a topic.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            topic: The name and the new values.
            update_mask: The settings to change, such as `{"paths": ["labels"]}`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The topic as the server stores it.

        Raises:
            NotFound: The topic does not exist.
        """
        fields = {"topic": topic, "update_mask": update_mask}
        return self._call("UpdateTopic", pubsub.Topic, request, options, **fields)

    def list_topics(
        self,
        request: pubsub.ListTopicsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[pubsub.Topic]:
        """List the topics of a project.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            project: Full name of the project, `projects/P`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListTopics", "topics", request, options, project=project)

    def list_topic_subscriptions(
        self,
        request: pubsub.ListTopicSubscriptionsRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[str]:
        """List the full names of the subscriptions that are attached to a topic.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            topic: Full name of the topic, `projects/P/topics/T`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListTopicSubscriptions", "subscriptions", request, options, topic=topic)

    def list_topic_snapshots(
        self,
        request: pubsub.ListTopicSnapshotsRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[str]:
        """List the full names of the snapshots of a topic.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            topic: Full name of the topic, `projects/P/topics/T`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListTopicSnapshots", "snapshots", request, options, topic=topic)

    def delete_topic(
        self,
        request: pubsub.DeleteTopicRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a topic. Its subscriptions keep their backlog and receive nothing new.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            topic: Full name of the topic, `projects/P/topics/T`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The topic does not exist.
        """
        self._call("DeleteTopic", Empty, request, options, topic=topic)

    def detach_subscription(
        self,
        request: pubsub.DetachSubscriptionRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.DetachSubscriptionResponse:
        """Detach a subscription from its topic, and delete its backlog.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An empty response.

        Raises:
            NotFound: The subscription does not exist.
        """
        response = pubsub.DetachSubscriptionResponse
        return self._call(
            "DetachSubscription", response, request, options, subscription=subscription
        )


class TopicAdminClient(TopicAdmin):
    """Manages topics, and publishes with single calls. Thread-safe.

    `PublisherClient` publishes in the background: in batches, with retries, and in the order of
    keys.
    """

    def publish(
        self,
        topic: str,
        messages: Iterable[pubsub.PubsubMessage | Dict],
        **options: Unpack[CallOptions],
    ) -> list[str]:
        """Publish messages with one call.

        The caller batches: a request holds 1 to 1000 messages and at most 10,000,000 bytes. The
        server stores all of them or none. `PublisherClient.publish` batches and retries by itself.

        Args:
            topic: Full name of the topic, `projects/P/topics/T`.
            messages: The messages. A dict has the fields of a PubsubMessage: `data` (bytes),
                `attributes` (a dict of str), `ordering_key` (str).
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The message IDs, in the order of `messages`.

        Raises:
            InvalidArgument: There are too many messages, or a message is empty or too large.
            NotFound: The topic does not exist.
            PublishError: The server's answer has no valid message IDs.
        """
        ready = [message_of(pubsub.PubsubMessage, message) for message in messages]
        fields = {"topic": topic, "messages": ready}
        response = self._call("Publish", pubsub.PublishResponse, None, options, **fields)
        return confirmed_ids(response, len(ready), topic)
