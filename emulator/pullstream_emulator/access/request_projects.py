"""The projects that a request uses."""

from __future__ import annotations

from functools import reduce
from types import MappingProxyType
from typing import Any

from google.protobuf.message import Message

_TOPIC = ("topic",)
_SUBSCRIPTION = ("subscription",)
_SNAPSHOT = ("snapshot",)
_PROJECT = ("project",)
_PARENT = ("parent",)
_NAME = ("name",)
_RESOURCE = ("resource",)

# The fields of each request that name a resource. A subscription may belong to another project than
# its topic; its creator needs access to both.
RESOURCE_FIELDS = MappingProxyType(
    {
        "Topic": ("name", "schema_settings.schema"),
        "UpdateTopicRequest": ("topic.name", "topic.schema_settings.schema"),
        "PublishRequest": _TOPIC,
        "GetTopicRequest": _TOPIC,
        "ListTopicsRequest": _PROJECT,
        "ListTopicSubscriptionsRequest": _TOPIC,
        "ListTopicSnapshotsRequest": _TOPIC,
        "DeleteTopicRequest": _TOPIC,
        "DetachSubscriptionRequest": _SUBSCRIPTION,
        "Subscription": ("name", "topic", "dead_letter_policy.dead_letter_topic"),
        "GetSubscriptionRequest": _SUBSCRIPTION,
        "UpdateSubscriptionRequest": (
            "subscription.name",
            "subscription.dead_letter_policy.dead_letter_topic",
        ),
        "ListSubscriptionsRequest": _PROJECT,
        "DeleteSubscriptionRequest": _SUBSCRIPTION,
        "ModifyAckDeadlineRequest": _SUBSCRIPTION,
        "AcknowledgeRequest": _SUBSCRIPTION,
        "PullRequest": _SUBSCRIPTION,
        "StreamingPullRequest": _SUBSCRIPTION,
        "ModifyPushConfigRequest": _SUBSCRIPTION,
        "GetSnapshotRequest": _SNAPSHOT,
        "ListSnapshotsRequest": _PROJECT,
        "CreateSnapshotRequest": ("name", "subscription"),
        "UpdateSnapshotRequest": ("snapshot.name",),
        "DeleteSnapshotRequest": _SNAPSHOT,
        "SeekRequest": ("subscription", "snapshot"),
        "GetSubscriptionStateRequest": _SUBSCRIPTION,
        "SetMaxWaitingRequest": _SUBSCRIPTION,
        "CreateSchemaRequest": _PARENT,
        "GetSchemaRequest": _NAME,
        "ListSchemasRequest": _PARENT,
        "ListSchemaRevisionsRequest": _NAME,
        "CommitSchemaRequest": _NAME,
        "RollbackSchemaRequest": _NAME,
        "DeleteSchemaRevisionRequest": _NAME,
        "DeleteSchemaRequest": _NAME,
        "ValidateSchemaRequest": _PARENT,
        "ValidateMessageRequest": ("parent", "name"),
        "SetIamPolicyRequest": _RESOURCE,
        "GetIamPolicyRequest": _RESOURCE,
        "TestIamPermissionsRequest": _RESOURCE,
        "PutFeedRequest": _TOPIC,
        "GetFeedRequest": _TOPIC,
        "ListFeedsRequest": _PROJECT,
        "AppendRequest": _TOPIC,
        "DeleteMessagesRequest": _TOPIC,
        "ReadRequest": _TOPIC,
        # The map's keys. An existing watch, named by its id, is open to its creator only.
        "WatchRequest": ("spec.topics",),
        # A router may connect topics of other projects; its creator needs access to all of them.
        "PutRouterRequest": ("router.name", "router.source", "router.dest"),
        "GetRouterRequest": _NAME,
        "ListRoutersRequest": ("project", "source", "dest"),
        "DeleteRouterRequest": _NAME,
        "PutCursorRequest": ("cursor.name", "cursor.topic"),
        "GetCursorRequest": _NAME,
        "ListCursorsRequest": _PROJECT,
        "DeleteCursorRequest": _NAME,
        "CommandsRequest": ("commands.channel",),
        # These name a subscriber's session, which only its own principal may use.
        "PollRequest": (),
        "UnregisterRequest": (),
        "PublishFailureRequest": ("channel",),
    }
)


def projects_of(request: Message) -> list[str]:
    """Return the projects that `request` names, each once.

    Malformed names are ignored: no resource has such a name, so the call fails in the method.
    """
    found: dict[str, None] = {}
    for path in RESOURCE_FIELDS[request.DESCRIPTOR.name]:
        value: Any = reduce(_field, path.split("."), request)
        for name in [value] if isinstance(value, str) else value:
            parts = name.split("/")
            if parts[0] == "projects" and len(parts) > 1:
                found[parts[1]] = None
    return list(found)


def _field(value: Any, name: str) -> Any:
    """Return a field of a message; for a list of messages, the field of each."""
    if isinstance(value, Message):
        return getattr(value, name)
    return [getattr(each, name) for each in value]
