"""The unary RPCs of the Subscriber service: subscriptions, snapshots, pull and acknowledge.

Each method takes either the whole request as `request=` (a message or a dict), or the fields that
the official client has as keywords. The keywords of `CallOptions` are allowed in both cases. Each
method raises the `RpcError` for the status with which the server refused the call, such as
`NotFound`, `InvalidArgument` or `PermissionDenied`, even if its docstring names no errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .rpc.base_client import BaseClient
from .rpc.paging import Pager
from .rpc.rpcs import CallOptions, ListOptions
from .rpc.unary_client import request_of

if TYPE_CHECKING:
    from datetime import datetime

    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.field_mask_pb2 import FieldMask
    from google.protobuf.timestamp_pb2 import Timestamp
    from typing_extensions import Unpack

Dict = Mapping[str, Any]

# Seconds. Google's default.
DEFAULT_ACK_DEADLINE = 10


class SubscriptionFields(CallOptions, total=False):
    """Further keywords of `create_subscription`.

    Attributes:
        retain_acked_messages: Whether acknowledged messages are kept, so that a seek brings them
            back.
        message_retention_duration: How long messages are kept.
        labels: Names and values for the user's own use.
        enable_message_ordering: Whether the messages of an ordering key arrive in order.
        expiration_policy: When an unused subscription is deleted.
        filter: Only messages whose attributes match are delivered.
        dead_letter_policy: Where messages go that fail too often.
        retry_policy: How long a failed message waits for its redelivery.
        enable_exactly_once_delivery: Whether an acknowledged message is never delivered again.
        bigquery_config: Exports the messages to BigQuery.
        bigtable_config: Exports the messages to Bigtable.
        cloud_storage_config: Exports the messages to Cloud Storage.
        message_transforms: Change the messages before their delivery.
        tags: Tags of the resource, at creation.
    """

    retain_acked_messages: bool
    message_retention_duration: Duration | Dict
    labels: Mapping[str, str]
    enable_message_ordering: bool
    expiration_policy: pubsub.ExpirationPolicy | Dict
    filter: str
    dead_letter_policy: pubsub.DeadLetterPolicy | Dict
    retry_policy: pubsub.RetryPolicy | Dict
    enable_exactly_once_delivery: bool
    bigquery_config: pubsub.BigQueryConfig | Dict
    bigtable_config: pubsub.BigtableConfig | Dict
    cloud_storage_config: pubsub.CloudStorageConfig | Dict
    message_transforms: Sequence[pubsub.MessageTransform | Dict]
    tags: Mapping[str, str]


class SubscriberAdmin(BaseClient):
    """Manages subscriptions and snapshots, and pulls and acknowledges with single calls."""

    # ---- subscriptions ---------------------------------------------------------------------

    def create_subscription(
        self,
        request: pubsub.Subscription | Dict | None = None,
        *,
        name: str | None = None,
        topic: str | None = None,
        push_config: pubsub.PushConfig | Dict | None = None,
        ack_deadline_seconds: int | None = None,
        **options: Unpack[SubscriptionFields],
    ) -> pubsub.Subscription:
        """Create a subscription.

        Every field of a subscription is a keyword.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name, `projects/P/subscriptions/S`. Default: the server chooses one.
            topic: Full name of the topic, `projects/P/topics/T`.
            push_config: Where the server pushes the messages. Default: nowhere; subscribers pull
                them.
            ack_deadline_seconds: Seconds from 10 to 600. Default: 10, which is sent as in the
                official client, because some servers have no default.
            **options: Further fields, see `SubscriptionFields`; and `retry`, `timeout` and
                `metadata`, see `CallOptions`.

        Returns:
            The subscription as the server stores it.

        Raises:
            AlreadyExists: A subscription of this name exists.
            NotFound: The topic does not exist.
        """
        fields = {
            "name": name,
            "topic": topic,
            "push_config": push_config,
            "ack_deadline_seconds": ack_deadline_seconds,
        }
        subscription: pubsub.Subscription = request_of(
            "CreateSubscription", request, fields, options
        )
        if not subscription.ack_deadline_seconds:
            # A copy, because the message may belong to the caller.
            unset, subscription = subscription, pubsub.Subscription()
            subscription.CopyFrom(unset)
            subscription.ack_deadline_seconds = DEFAULT_ACK_DEADLINE
        return self._call("CreateSubscription", pubsub.Subscription, subscription, options)

    def get_subscription(
        self,
        request: pubsub.GetSubscriptionRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Subscription:
        """Return the settings of a subscription.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The subscription does not exist.
        """
        fields = {"subscription": subscription}
        return self._call("GetSubscription", pubsub.Subscription, request, options, **fields)

    def update_subscription(
        self,
        request: pubsub.UpdateSubscriptionRequest | Dict | None = None,
        *,
        subscription: pubsub.Subscription | Dict | None = None,
        update_mask: FieldMask | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Subscription:
        """Change settings of a subscription.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: The name and the new values.
            update_mask: The settings to change, such as `{"paths": ["ack_deadline_seconds"]}`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The subscription as the server stores it.

        Raises:
            NotFound: The subscription does not exist.
        """
        fields = {"subscription": subscription, "update_mask": update_mask}
        return self._call("UpdateSubscription", pubsub.Subscription, request, options, **fields)

    def list_subscriptions(
        self,
        request: pubsub.ListSubscriptionsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[pubsub.Subscription]:
        """List the subscriptions of a project.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            project: Full name of the project, `projects/P`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListSubscriptions", "subscriptions", request, options, project=project)

    def delete_subscription(
        self,
        request: pubsub.DeleteSubscriptionRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a subscription and its backlog.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The subscription does not exist.
        """
        self._call("DeleteSubscription", Empty, request, options, subscription=subscription)

    def modify_push_config(
        self,
        request: pubsub.ModifyPushConfigRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        push_config: pubsub.PushConfig | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Change where the server pushes messages.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            push_config: The new setting. An empty one turns the subscription into a pull
                subscription.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The subscription does not exist.
        """
        fields = {"subscription": subscription, "push_config": push_config}
        self._call("ModifyPushConfig", Empty, request, options, **fields)

    # ---- snapshots -------------------------------------------------------------------------

    def create_snapshot(
        self,
        request: pubsub.CreateSnapshotRequest | Dict | None = None,
        *,
        name: str | None = None,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Snapshot:
        """Save which messages of a subscription are unacknowledged, for `seek`.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            name: Full name of the snapshot, `projects/P/snapshots/S`.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The snapshot as the server stores it.
        """
        fields = {"name": name, "subscription": subscription}
        return self._call("CreateSnapshot", pubsub.Snapshot, request, options, **fields)

    def get_snapshot(
        self,
        request: pubsub.GetSnapshotRequest | Dict | None = None,
        *,
        snapshot: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Snapshot:
        """Return a snapshot's topic, labels and expiry time.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            snapshot: Full name of the snapshot, `projects/P/snapshots/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The snapshot does not exist.
        """
        return self._call("GetSnapshot", pubsub.Snapshot, request, options, snapshot=snapshot)

    def update_snapshot(
        self,
        request: pubsub.UpdateSnapshotRequest | Dict | None = None,
        *,
        snapshot: pubsub.Snapshot | Dict | None = None,
        update_mask: FieldMask | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Snapshot:
        """Change settings of a snapshot.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            snapshot: The name and the new values.
            update_mask: The settings to change, such as `{"paths": ["labels"]}`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The snapshot as the server stores it.
        """
        fields = {"snapshot": snapshot, "update_mask": update_mask}
        return self._call("UpdateSnapshot", pubsub.Snapshot, request, options, **fields)

    def list_snapshots(
        self,
        request: pubsub.ListSnapshotsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[ListOptions],
    ) -> Pager[pubsub.Snapshot]:
        """List the snapshots of a project.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            project: Full name of the project, `projects/P`.
            **options: `page_size`, `page_token`, `retry`, `timeout` and `metadata`; see
                `ListOptions` and `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListSnapshots", "snapshots", request, options, project=project)

    def delete_snapshot(
        self,
        request: pubsub.DeleteSnapshotRequest | Dict | None = None,
        *,
        snapshot: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a snapshot, and the messages that only it retained.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            snapshot: Full name of the snapshot, `projects/P/snapshots/S`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.
        """
        self._call("DeleteSnapshot", Empty, request, options, snapshot=snapshot)

    def seek(
        self,
        request: pubsub.SeekRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        time: datetime | Timestamp | None = None,
        snapshot: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.SeekResponse:
        """Move a subscription to a time or a snapshot.

        The server marks messages as acknowledged or unacknowledged accordingly.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            time: Target time. A `datetime` without a time zone is local time.
            snapshot: Full name of the target snapshot, instead of a time.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An empty response.
        """
        fields = {"subscription": subscription, "time": time, "snapshot": snapshot}
        return self._call("Seek", pubsub.SeekResponse, request, options, **fields)

    # ---- messages by hand ------------------------------------------------------------------

    def pull(
        self,
        request: pubsub.PullRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        return_immediately: bool | None = None,
        max_messages: int | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.PullResponse:
        """Pull messages with one call.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            return_immediately: Return at once if there is no message. Default: the server waits for
                the first message.
            max_messages: Maximum number of messages, at least 1. Required.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            A response with up to `max_messages` messages, or with none.

        Raises:
            DeadlineExceeded: No message arrived within `timeout` seconds.
        """
        return self._call(
            "Pull",
            pubsub.PullResponse,
            request,
            options,
            subscription=subscription,
            return_immediately=return_immediately,
            max_messages=max_messages,
        )

    def acknowledge(
        self,
        request: pubsub.AcknowledgeRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        ack_ids: Sequence[str] | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Acknowledge pulled messages.

        Without an error, the server has received the request. Only with exactly-once delivery does
        this also mean that the messages are not redelivered.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            ack_ids: The ack IDs of the messages.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.
        """
        fields = {"subscription": subscription, "ack_ids": ack_ids}
        self._call("Acknowledge", Empty, request, options, **fields)

    def modify_ack_deadline(
        self,
        request: pubsub.ModifyAckDeadlineRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        ack_ids: Sequence[str] | None = None,
        ack_deadline_seconds: int | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Change the ack deadline of pulled messages.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            subscription: Full name of the subscription, `projects/P/subscriptions/S`.
            ack_ids: The ack IDs of the messages.
            ack_deadline_seconds: Seconds from now until the leases end, from 0 to 600. 0 asks for
                redelivery at once.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.
        """
        self._call(
            "ModifyAckDeadline",
            Empty,
            request,
            options,
            subscription=subscription,
            ack_ids=ack_ids,
            ack_deadline_seconds=ack_deadline_seconds,
        )
