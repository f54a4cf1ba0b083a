"""Updates by field mask: the named fields are replaced as a whole, the others stay.

A named field that the request leaves unset gets its default. One bad path refuses the whole update.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Generic, TypeVar

from google.protobuf.message import Message

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub

M = TypeVar("M", bound=Message)


class UpdateRule(Generic[M]):
    """The fields of a resource that an update may name, and the words of the error texts.

    Args:
        request: Name of the request message, for error texts.
        resource: Name of the resource message, for error texts.
        example: A right and a wrong spelling of a path, for error texts.
        mutable: The fields that an update may change.
    """

    def __init__(
        self, request: str, resource: str, example: tuple[str, str], mutable: Sequence[str]
    ) -> None:
        self._request = request
        self._resource = resource
        self._example = example
        self._mutable = frozenset(mutable)

    def apply(self, paths: Sequence[str], changed: M, current: M) -> M:
        """Return a copy of `current` with the fields at `paths` taken from `changed`.

        Args:
            paths: The paths of the update_mask.
            changed: The resource in the request.
            current: The present resource.

        Raises:
            InvalidArgument: There are no paths, or a path is unknown or cannot be changed.
        """
        if not paths:
            raise InvalidArgument(
                f"The update_mask in the {self._request} must be set, and must contain a non-empty "
                "paths list."
            )
        for path in paths:
            self._check(path, current)
        result = deepcopy(current)
        for path in paths:
            _copy_field(path.split("."), changed, result)
        return result

    def _check(self, path: str, resource: Message) -> None:
        refusal = f"Invalid update_mask provided in the {self._request}: "
        if not _is_field(path.split("."), resource):
            right, wrong = self._example
            raise InvalidArgument(
                f"{refusal}'{path}' is not a known {self._resource} field. Note that field paths "
                f"must be of the form '{right}' rather than '{wrong}'."
            )
        if path.split(".")[0] not in self._mutable:
            raise InvalidArgument(
                f"{refusal}the '{path}' field in the {self._resource} is not mutable."
            )


def _is_field(path: list[str], message: Message) -> bool:
    descriptor = message.DESCRIPTOR
    for depth, name in enumerate(path):
        field = descriptor.fields_by_name.get(name)
        if field is None:
            return False
        last = depth == len(path) - 1
        # A message field without presence is a list or a map. A path cannot lead into these.
        if not last and (field.message_type is None or not field.has_presence):
            return False
        if field.message_type is not None:
            descriptor = field.message_type
    return True


def _copy_field(path: list[str], source: Message, target: Message) -> None:
    *parents, name = path
    for parent in parents:
        source = getattr(source, parent)
        target = getattr(target, parent)
    target.ClearField(name)
    if target.DESCRIPTOR.fields_by_name[name].has_presence and not source.HasField(name):
        return
    value = getattr(source, name)
    if hasattr(value, "MergeFrom"):
        # A message, a list or a map.
        getattr(target, name).MergeFrom(value)
    else:
        setattr(target, name, value)


TOPIC = UpdateRule[pubsub.Topic](
    "UpdateTopicRequest",
    "Topic",
    ("schema_settings", "schemaSettings"),
    (
        "labels",
        "message_storage_policy",
        "kms_key_name",
        "schema_settings",
        "message_retention_duration",
        "ingestion_data_source_settings",
        "message_transforms",
    ),
)

SUBSCRIPTION = UpdateRule[pubsub.Subscription](
    "UpdateSubscriptionRequest",
    "Subscription",
    ("push_config", "pushConfig"),
    (
        "ack_deadline_seconds",
        "push_config",
        "bigquery_config",
        "cloud_storage_config",
        "bigtable_config",
        "retain_acked_messages",
        "message_retention_duration",
        "labels",
        "expiration_policy",
        "dead_letter_policy",
        "retry_policy",
        "enable_exactly_once_delivery",
        "message_transforms",
    ),
)

SNAPSHOT = UpdateRule[pubsub.Snapshot](
    "UpdateSnapshotRequest", "Snapshot", ("expire_time", "expireTime"), ("labels", "expire_time")
)
