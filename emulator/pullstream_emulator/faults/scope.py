"""Scope of a fault: the calls it covers, and how often it acts on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from google.protobuf.message import Message

from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.names import short_id
from pullstream_protocol.rpcs import BY_METHOD

EVERY = "*"

# The request fields that name a resource; some hold the whole resource.
_NAMING = frozenset(
    (
        *("channel", "name", "parent", "project", "resource"),
        *("schema", "snapshot", "subscription", "topic"),
    )
)


@dataclass(frozen=True)
class Scope:
    """The calls that a fault covers, the probability that it acts, and how often it may act.

    Attributes:
        method: Name of an RPC, or "*".
        resource: Name or id of a resource, or a pattern.
        probability: Probability that the fault acts on a covered call; above 0, at most 1.
        times: How often the fault may act; None means no limit.

    Raises:
        ValueError: A value is out of range.
    """

    method: str = EVERY
    resource: str = EVERY
    probability: float = 1.0
    times: int | None = None

    def __post_init__(self) -> None:
        if self.method != EVERY and self.method not in BY_METHOD:
            raise ValueError(
                f"method must be the name of an RPC such as 'Publish', or '*': {self.method!r}"
            )
        if not self.resource:
            raise ValueError("resource must be a name, an id, or a pattern such as 'orders-*'")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1: {self.probability}")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times must be 1 or more, or None: {self.times}")

    def covers(self, method: str, resources: Iterable[str]) -> bool:
        """Return whether a call of `method` that names `resources` is covered."""
        if self.method not in (EVERY, method):
            return False
        return self.resource == EVERY or any(matches(self.resource, name) for name in resources)


def matches(pattern: str, name: str) -> bool:
    """Return whether a name fits a pattern with `*` and `?`; a pattern without `/` is for ids."""
    return fnmatchcase(name if "/" in pattern else short_id(name), pattern)


def named(request: Message) -> tuple[str, ...]:
    """Return the resources that a request names."""
    if isinstance(request, feeds.WatchRequest):
        return tuple(request.spec.topics)
    if isinstance(request, channels.CommandsRequest):
        return tuple({command.channel: None for command in request.commands})
    values = [
        getattr(request, field.name) for field in request.DESCRIPTOR.fields if field.name in _NAMING
    ]
    return tuple(value if isinstance(value, str) else value.name for value in values)
