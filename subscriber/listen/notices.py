"""What a listener is told: messages, failures, answers, and what happened to all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from protocol.errors import PullstreamError
from protocol.messages import channels_pb2 as channels
from protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from .interest import Interest


class ChannelFailure(PullstreamError):
    """The publisher said that nothing more will come of a key, or, with key None, of a channel."""

    def __init__(self, channel: str, key: str | None, reason: str) -> None:
        super().__init__(reason)
        self.channel = channel
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reset:
    """The publisher had forgotten us: it was started anew, or had not heard of us for too long.

    It has been told all subscriptions again. What was published in between is lost.
    """


@dataclass(frozen=True, slots=True)
class Dropped:
    """So many messages were dropped here, as the publisher keeps only so much for a subscriber."""

    count: int


ListenEvent: TypeAlias = "Reset | Dropped"


class ChannelMessage:
    """A message of a channel. Cheap to make: what it has is read when asked for."""

    __slots__ = ("_item",)

    def __init__(self, item: channels.PollResponse.Item) -> None:
        self._item = item

    @property
    def channel(self) -> str:
        return self._item.channel

    @property
    def key(self) -> str:
        """Its ordering key; "" if it has none."""
        return self._item.key

    @property
    def ordering_key(self) -> str:
        """Another name of `key`."""
        return self._item.key

    @property
    def seq(self) -> int:
        """Its number on the publisher, which counts all that is published there."""
        return self._item.seq

    @property
    def data(self) -> bytes:
        return self._item.message.data

    @property
    def attributes(self) -> Mapping[str, str]:
        return self._item.message.attributes

    @property
    def message_id(self) -> str:
        return self._item.message.message_id

    @property
    def publish_time(self) -> datetime:
        """In UTC."""
        moment: datetime = self._item.message.publish_time.ToDatetime(timezone.utc)
        return moment

    @property
    def raw(self) -> pubsub.PubsubMessage:
        """The message as it was sent."""
        return self._item.message

    def __repr__(self) -> str:
        return f"ChannelMessage(channel={self.channel!r}, key={self.key!r}, seq={self.seq})"


class Arrived(NamedTuple):
    """A message for a subscription, unless that is over by then."""

    interest: Interest
    item: channels.PollResponse.Item


class Failed(NamedTuple):
    """A subscription is over, and why."""

    interest: Interest
    error: PullstreamError


class Answered(NamedTuple):
    """The publisher has taken a subscription, or not, and why."""

    interest: Interest
    error: PullstreamError | None


Notice: TypeAlias = "Arrived | Failed | Answered | Reset | Dropped"
