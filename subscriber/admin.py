"""The unary RPCs of the Subscriber service: subscriptions, snapshots, and messages by hand.

Each method takes its request whole, `request=` a message or a dict, or the fields that the official
client has as keywords; and the keywords of `CallOptions`. A method whose docstring names no error
still raises the `RpcError` of the status with which the server refused: `NotFound`,
`InvalidArgument`, `PermissionDenied`, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from protocol.messages import pubsub_pb2 as pubsub

from .paging import Pager
from .rpc import CallOptions
from .service import ServiceClient

if TYPE_CHECKING:
    from datetime import datetime

    from google.protobuf.field_mask_pb2 import FieldMask
    from google.protobuf.timestamp_pb2 import Timestamp
    from typing_extensions import Unpack

Dict = Mapping[str, Any]


class SubscriberAdmin(ServiceClient):
    """Manages subscriptions and snapshots, and pulls and acknowledges by single calls."""

    # ---- subscriptions ---------------------------------------------------------------------

    def create_subscription(
        self,
        request: pubsub.Subscription | Dict | None = None,
        *,
        name: str | None = None,
        topic: str | None = None,
        push_config: pubsub.PushConfig | Dict | None = None,
        ack_deadline_seconds: int | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Subscription:
        """Make a subscription; only `request` can set what the keywords do not name.

        `ack_deadline_seconds` is 10 to 600, by default 10. Without a `name` the server chooses one.

        Raises:
            AlreadyExists: there is a subscription of this name.
            NotFound: there is no such topic.
        """
        return self._call(
            "CreateSubscription",
            pubsub.Subscription,
            request,
            options,
            name=name,
            topic=topic,
            push_config=push_config,
            ack_deadline_seconds=ack_deadline_seconds,
        )

    def get_subscription(
        self,
        request: pubsub.GetSubscriptionRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Subscription:
        """The settings of a subscription."""
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
        """Change the settings that `update_mask` names: `{"paths": ["ack_deadline_seconds"]}`."""
        fields = {"subscription": subscription, "update_mask": update_mask}
        return self._call("UpdateSubscription", pubsub.Subscription, request, options, **fields)

    def list_subscriptions(
        self,
        request: pubsub.ListSubscriptionsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[pubsub.Subscription]:
        """The subscriptions of a project, `projects/P`; later pages are got as they are reached."""
        return self._list("ListSubscriptions", "subscriptions", request, options, project=project)

    def delete_subscription(
        self,
        request: pubsub.DeleteSubscriptionRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a subscription and its backlog."""
        self._call("DeleteSubscription", Empty, request, options, subscription=subscription)

    def modify_push_config(
        self,
        request: pubsub.ModifyPushConfigRequest | Dict | None = None,
        *,
        subscription: str | None = None,
        push_config: pubsub.PushConfig | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Change where messages are pushed to; an empty `push_config` makes it a pull again."""
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
        """Remember which messages of a subscription are unacknowledged, for `seek`."""
        fields = {"name": name, "subscription": subscription}
        return self._call("CreateSnapshot", pubsub.Snapshot, request, options, **fields)

    def get_snapshot(
        self,
        request: pubsub.GetSnapshotRequest | Dict | None = None,
        *,
        snapshot: str | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Snapshot:
        """A snapshot's topic, labels and time of expiry."""
        return self._call("GetSnapshot", pubsub.Snapshot, request, options, snapshot=snapshot)

    def update_snapshot(
        self,
        request: pubsub.UpdateSnapshotRequest | Dict | None = None,
        *,
        snapshot: pubsub.Snapshot | Dict | None = None,
        update_mask: FieldMask | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> pubsub.Snapshot:
        """Change what `update_mask` names, such as `{"paths": ["labels"]}`."""
        fields = {"snapshot": snapshot, "update_mask": update_mask}
        return self._call("UpdateSnapshot", pubsub.Snapshot, request, options, **fields)

    def list_snapshots(
        self,
        request: pubsub.ListSnapshotsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[pubsub.Snapshot]:
        """The snapshots of a project, `projects/P`; later pages are got as they are reached."""
        return self._list("ListSnapshots", "snapshots", request, options, project=project)

    def delete_snapshot(
        self,
        request: pubsub.DeleteSnapshotRequest | Dict | None = None,
        *,
        snapshot: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a snapshot and let go of the messages that only it kept."""
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
        """Move a subscription to a `time` or a `snapshot`, marking messages acked or unacked.

        A `datetime` without a time zone is read as UTC.
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
        """Up to `max_messages` messages (required, 1 or more) by one call.

        The server waits for the first one, unless `return_immediately`, and may return none.

        Raises:
            DeadlineExceeded: there was none within `timeout` seconds.
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

        Returning says that the server took the request. Only for an exactly-once subscription does
        it also say that no message comes again.
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
        """Give pulled messages 0 to 600 seconds from now; 0 asks for their redelivery at once."""
        self._call(
            "ModifyAckDeadline",
            Empty,
            request,
            options,
            subscription=subscription,
            ack_ids=ack_ids,
            ack_deadline_seconds=ack_deadline_seconds,
        )
