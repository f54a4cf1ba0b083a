"""Table of all RPCs, from which the client's stubs and the broker's handlers are built.

Google's services keep their gRPC paths, so that official clients and servers understand them. The
messages are pullstream's (see pullstream_protocol/messages), with the same bytes on the wire. The
additional services of pullstream have names that begin with `pullstream.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from google.protobuf.empty_pb2 import Empty

from .messages import channels_pb2 as channels
from .messages import feeds_pb2 as feeds
from .messages import iam_pb2 as iam
from .messages import pubsub_pb2 as pubsub
from .messages import pulls_pb2 as pulls
from .messages import schema_pb2 as schema

if TYPE_CHECKING:
    from google.protobuf.message import Message

PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"
SCHEMA_SERVICE = "google.pubsub.v1.SchemaService"
IAM_POLICY = "google.iam.v1.IAMPolicy"
# The additional services of pullstream.
PULLS = "pullstream.pulls.v1.Pulls"
FEEDS = "pullstream.feeds.v1.Feeds"
CHANNELS = "pullstream.channels.v1.Channels"

# Metadata key of a ModifyAckDeadline call with 0 seconds: the client returns messages that it did
# not try to handle. The broker of pullstream does not count a delivery attempt then. Other servers
# ignore the key.
UNSEEN = "pullstream-unseen"

# Metadata key of a Publish call: names the request. The broker of pullstream answers a repeated
# request with the message IDs of the first one. Other servers ignore the key.
IDEMPOTENCY_KEY = "pullstream-idempotency-key"


class Kind(Enum):
    """The number of messages that each side of an RPC sends: one, or a stream."""

    UNARY = "unary"
    SERVER_STREAM = "stream of responses"
    BIDI = "bidirectional stream"


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC.

    Attributes:
        service: The full name of the gRPC service.
        method: The name of the method.
        request: The type of the request message.
        response: The type of the response message.
        kind: Unary or a kind of stream.
        reads: Whether the RPC only reads: a second execution is harmless.
    """

    service: str
    method: str
    request: type[Message]
    response: type[Message]
    kind: Kind = Kind.UNARY
    reads: bool = False

    @property
    def path(self) -> str:
        """The path of the RPC on the wire: `/SERVICE/METHOD`."""
        return f"/{self.service}/{self.method}"


_read = partial(Rpc, reads=True)

RPCS: tuple[Rpc, ...] = (
    Rpc(PUBLISHER, "CreateTopic", pubsub.Topic, pubsub.Topic),
    Rpc(PUBLISHER, "UpdateTopic", pubsub.UpdateTopicRequest, pubsub.Topic),
    Rpc(PUBLISHER, "Publish", pubsub.PublishRequest, pubsub.PublishResponse),
    _read(PUBLISHER, "GetTopic", pubsub.GetTopicRequest, pubsub.Topic),
    _read(PUBLISHER, "ListTopics", pubsub.ListTopicsRequest, pubsub.ListTopicsResponse),
    _read(
        PUBLISHER,
        "ListTopicSubscriptions",
        pubsub.ListTopicSubscriptionsRequest,
        pubsub.ListTopicSubscriptionsResponse,
    ),
    _read(
        PUBLISHER,
        "ListTopicSnapshots",
        pubsub.ListTopicSnapshotsRequest,
        pubsub.ListTopicSnapshotsResponse,
    ),
    Rpc(PUBLISHER, "DeleteTopic", pubsub.DeleteTopicRequest, Empty),
    Rpc(
        PUBLISHER,
        "DetachSubscription",
        pubsub.DetachSubscriptionRequest,
        pubsub.DetachSubscriptionResponse,
    ),
    Rpc(SUBSCRIBER, "CreateSubscription", pubsub.Subscription, pubsub.Subscription),
    _read(SUBSCRIBER, "GetSubscription", pubsub.GetSubscriptionRequest, pubsub.Subscription),
    Rpc(SUBSCRIBER, "UpdateSubscription", pubsub.UpdateSubscriptionRequest, pubsub.Subscription),
    _read(
        SUBSCRIBER,
        "ListSubscriptions",
        pubsub.ListSubscriptionsRequest,
        pubsub.ListSubscriptionsResponse,
    ),
    Rpc(SUBSCRIBER, "DeleteSubscription", pubsub.DeleteSubscriptionRequest, Empty),
    Rpc(SUBSCRIBER, "ModifyAckDeadline", pubsub.ModifyAckDeadlineRequest, Empty),
    Rpc(SUBSCRIBER, "Acknowledge", pubsub.AcknowledgeRequest, Empty),
    Rpc(SUBSCRIBER, "Pull", pubsub.PullRequest, pubsub.PullResponse),
    Rpc(
        SUBSCRIBER,
        "StreamingPull",
        pubsub.StreamingPullRequest,
        pubsub.StreamingPullResponse,
        Kind.BIDI,
    ),
    Rpc(SUBSCRIBER, "ModifyPushConfig", pubsub.ModifyPushConfigRequest, Empty),
    _read(SUBSCRIBER, "GetSnapshot", pubsub.GetSnapshotRequest, pubsub.Snapshot),
    _read(SUBSCRIBER, "ListSnapshots", pubsub.ListSnapshotsRequest, pubsub.ListSnapshotsResponse),
    Rpc(SUBSCRIBER, "CreateSnapshot", pubsub.CreateSnapshotRequest, pubsub.Snapshot),
    Rpc(SUBSCRIBER, "UpdateSnapshot", pubsub.UpdateSnapshotRequest, pubsub.Snapshot),
    Rpc(SUBSCRIBER, "DeleteSnapshot", pubsub.DeleteSnapshotRequest, Empty),
    Rpc(SUBSCRIBER, "Seek", pubsub.SeekRequest, pubsub.SeekResponse),
    Rpc(SCHEMA_SERVICE, "CreateSchema", schema.CreateSchemaRequest, schema.Schema),
    _read(SCHEMA_SERVICE, "GetSchema", schema.GetSchemaRequest, schema.Schema),
    _read(SCHEMA_SERVICE, "ListSchemas", schema.ListSchemasRequest, schema.ListSchemasResponse),
    _read(
        SCHEMA_SERVICE,
        "ListSchemaRevisions",
        schema.ListSchemaRevisionsRequest,
        schema.ListSchemaRevisionsResponse,
    ),
    Rpc(SCHEMA_SERVICE, "CommitSchema", schema.CommitSchemaRequest, schema.Schema),
    Rpc(SCHEMA_SERVICE, "RollbackSchema", schema.RollbackSchemaRequest, schema.Schema),
    Rpc(SCHEMA_SERVICE, "DeleteSchemaRevision", schema.DeleteSchemaRevisionRequest, schema.Schema),
    Rpc(SCHEMA_SERVICE, "DeleteSchema", schema.DeleteSchemaRequest, Empty),
    _read(
        SCHEMA_SERVICE,
        "ValidateSchema",
        schema.ValidateSchemaRequest,
        schema.ValidateSchemaResponse,
    ),
    _read(
        SCHEMA_SERVICE,
        "ValidateMessage",
        schema.ValidateMessageRequest,
        schema.ValidateMessageResponse,
    ),
    Rpc(IAM_POLICY, "SetIamPolicy", iam.SetIamPolicyRequest, iam.Policy),
    _read(IAM_POLICY, "GetIamPolicy", iam.GetIamPolicyRequest, iam.Policy),
    _read(
        IAM_POLICY,
        "TestIamPermissions",
        iam.TestIamPermissionsRequest,
        iam.TestIamPermissionsResponse,
    ),
    _read(
        PULLS, "GetSubscriptionState", pulls.GetSubscriptionStateRequest, pulls.SubscriptionState
    ),
    Rpc(PULLS, "SetMaxWaiting", pulls.SetMaxWaitingRequest, pulls.SubscriptionState),
    Rpc(FEEDS, "PutFeed", feeds.PutFeedRequest, feeds.Feed),
    _read(FEEDS, "GetFeed", feeds.GetFeedRequest, feeds.Feed),
    _read(FEEDS, "ListFeeds", feeds.ListFeedsRequest, feeds.ListFeedsResponse),
    Rpc(FEEDS, "Append", feeds.AppendRequest, feeds.AppendResponse),
    Rpc(FEEDS, "DeleteMessages", feeds.DeleteMessagesRequest, feeds.DeleteMessagesResponse),
    _read(FEEDS, "Read", feeds.ReadRequest, feeds.ReadResponse),
    _read(FEEDS, "Watch", feeds.WatchRequest, feeds.Frame, Kind.SERVER_STREAM),
    Rpc(FEEDS, "PutRouter", feeds.PutRouterRequest, feeds.Router),
    _read(FEEDS, "GetRouter", feeds.GetRouterRequest, feeds.Router),
    _read(FEEDS, "ListRouters", feeds.ListRoutersRequest, feeds.ListRoutersResponse),
    Rpc(FEEDS, "DeleteRouter", feeds.DeleteRouterRequest, Empty),
    Rpc(FEEDS, "PutCursor", feeds.PutCursorRequest, feeds.Cursor),
    _read(FEEDS, "GetCursor", feeds.GetCursorRequest, feeds.Cursor),
    _read(FEEDS, "ListCursors", feeds.ListCursorsRequest, feeds.ListCursorsResponse),
    Rpc(FEEDS, "DeleteCursor", feeds.DeleteCursorRequest, Empty),
    Rpc(CHANNELS, "Commands", channels.CommandsRequest, channels.CommandsResponse),
    Rpc(CHANNELS, "Poll", channels.PollRequest, channels.PollResponse),
    Rpc(CHANNELS, "Unregister", channels.UnregisterRequest, Empty),
    Rpc(CHANNELS, "PublishFailure", channels.PublishFailureRequest, Empty),
)

# Method names are unique across all services, so one name finds one RPC.
BY_METHOD: dict[str, Rpc] = {rpc.method: rpc for rpc in RPCS}
