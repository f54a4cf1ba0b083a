"""Adds the full names of resources, and similar ids, to errors.

Servers quote the last part of a name: "Resource not found (resource=billing)". A topic and a
subscription may share that, and a wrong project does not show.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf.message import Message

from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument, NotFound, RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schemas

# Seconds for the list of the resources that exist.
LIST_TIMEOUT = 1.0

# The list calls of the collections: the method, its request, and the fields of the project and of
# the listed resources.
_LISTS: dict[str, tuple[str, type[Message], str, str]] = {
    "topics": ("ListTopics", pubsub.ListTopicsRequest, "project", "topics"),
    "subscriptions": (
        "ListSubscriptions",
        pubsub.ListSubscriptionsRequest,
        "project",
        "subscriptions",
    ),
    "snapshots": ("ListSnapshots", pubsub.ListSnapshotsRequest, "project", "snapshots"),
    "schemas": ("ListSchemas", schemas.ListSchemasRequest, "parent", "schemas"),
}


def names_in(message: Message) -> Iterator[str]:
    """Yield the values of the text fields of a request that look like resource names."""
    for _, value in message.ListFields():
        if isinstance(value, str):
            if value.startswith("projects/"):
                yield value
        elif isinstance(value, Message):
            yield from names_in(value)


def name_resource(error: RpcError, meant: Iterable[str]) -> str | None:
    """Add the kind and the full name of the resource to an error, or the rule for names.

    Args:
        error: The error of a call.
        meant: The full names in its request.

    Returns:
        The full name of a resource that does not exist; None if it is not known.
    """
    if isinstance(error, InvalidArgument) and error.message.startswith("Invalid resource name"):
        error.restate(f"{error.message} ({names.ID_RULE})")
    if not isinstance(error, NotFound):
        return None
    for name in meant:
        if f"resource={names.short_id(name)})" in error.message and name.count("/") == 3:
            collection = name.split("/")[2]
            error.restate(f"{error.message} The {collection[:-1]} {name} does not exist.")
            return name
    return None


class SimilarNames(NamedTuple):
    """A call that lists the resources like a missing one.

    Attributes:
        method: Name of the list call.
        request: Its request.
        add_to_error: Takes the response, and adds the ids that resemble the missing one.
    """

    method: str
    request: Any
    add_to_error: Callable[[Any], None]


def search_similar(error: RpcError, method: str, meant: Iterable[str]) -> SimilarNames | None:
    """Name the resource in an error, and return a search for similar names.

    Args:
        error: The error of a call.
        method: Name of its RPC.
        meant: The full names in its request.

    Returns:
        None if the resource is not known, cannot be listed, or should not exist after the call.
    """
    missing = name_resource(error, meant)
    collection = missing.split("/")[2] if missing is not None else ""
    if missing is None or collection not in _LISTS or method.startswith("Delete"):
        return None
    list_method, request, project, field = _LISTS[collection]
    fields: dict[str, Any] = {
        project: names.project_path(names.project_of(missing)),
        "page_size": 1000,
    }

    def add_to_error(listed: Any) -> None:
        ids = [names.short_id(one.name) for one in getattr(listed, field)]
        similar = difflib.get_close_matches(names.short_id(missing), ids)
        if similar:
            error.restate(f"{error.message} Similar {collection}: {', '.join(similar)}.")

    return SimilarNames(list_method, request(**fields), add_to_error)
