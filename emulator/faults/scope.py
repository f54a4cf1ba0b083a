"""Which calls a fault is for, and how often it acts on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from google.protobuf.message import Message

from protocol.messages import channels_pb2 as channels
from protocol.messages import feeds_pb2 as feeds
from protocol.names import short_id
from protocol.rpcs import BY_METHOD

EVERY = "*"

# The fields by which requests name what they are about; some hold a whole resource.
_NAMING = frozenset(
    (
        *("channel", "name", "parent", "project", "resource"),
        *("schema", "snapshot", "subscription", "topic"),
    )
)


@dataclass(frozen=True)
class Scope:
    """What calls it covers, the chance that it acts on one, and how often it may act.

    Raises ValueError for values that make no sense.
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
        """Whether a call of `method` that names `resources` is within it."""
        if self.method not in (EVERY, method):
            return False
        return self.resource == EVERY or any(matches(self.resource, name) for name in resources)


def matches(pattern: str, name: str) -> bool:
    """Whether a resource name fits a pattern with `*` and `?`; one without `/` is for its id."""
    return fnmatchcase(name if "/" in pattern else short_id(name), pattern)


def named(request: Message) -> tuple[str, ...]:
    """The resources that a request names."""
    if isinstance(request, feeds.WatchRequest):
        return tuple(request.spec.topics)
    if isinstance(request, channels.CommandsRequest):
        return tuple({command.channel: None for command in request.commands})
    values = [
        getattr(request, field.name) for field in request.DESCRIPTOR.fields if field.name in _NAMING
    ]
    return tuple(value if isinstance(value, str) else value.name for value in values)
