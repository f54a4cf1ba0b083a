"""Events of a listener: messages, failures, answers to subscriptions, and losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeAlias

from pullstream_protocol.errors import PullstreamError
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class ChannelFailure(PullstreamError):
    """The publisher has ended a key, or, with key None, a channel: no more messages will come.

    Attributes:
        channel: The name of the channel.
        key: The ordering key. None for the whole channel.
        reason: The publisher's text.
    """

    def __init__(self, channel: str, key: str | None, reason: str) -> None:
        super().__init__(reason)
        self.channel = channel
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Reset:
    """The publisher lost the session: it was restarted, or the listener was silent for too long.

    The listener has sent all its subscriptions again. Messages that were published in between are
    lost.
    """


@dataclass(frozen=True, slots=True)
class Dropped:
    """The publisher dropped messages at this point, because it keeps a limited number of them.

    Attributes:
        count: The number of dropped messages.
    """

    count: int


ListenEvent: TypeAlias = "Reset | Dropped"


class ChannelMessage:
    """A message of a channel. Its fields are read on access, so that it is cheap to create."""

    __slots__ = ("_item",)

    def __init__(self, item: channels.PollResponse.Item) -> None:
        self._item = item

    @property
    def channel(self) -> str:
        """Name of the channel."""
        return self._item.channel

    @property
    def key(self) -> str:
        """The ordering key; "" if the message has none."""
        return self._item.key

    @property
    def ordering_key(self) -> str:
        """Same as `key`."""
        return self._item.key

    @property
    def seq(self) -> int:
        """The sequence number. The publisher numbers all its messages together."""
        return self._item.seq

    @property
    def data(self) -> bytes:
        """The message's data."""
        return self._item.message.data

    @property
    def attributes(self) -> Mapping[str, str]:
        """The message's attributes by name."""
        return self._item.message.attributes

    @property
    def message_id(self) -> str:
        """The id from the published message; `seq` in decimal if that had none."""
        return self._item.message.message_id

    @property
    def publish_time(self) -> datetime:
        """The time of publishing, in UTC."""
        moment: datetime = self._item.message.publish_time.ToDatetime(timezone.utc)
        return moment

    @property
    def raw(self) -> pubsub.PubsubMessage:
        """The message as a protobuf message."""
        return self._item.message

    def __repr__(self) -> str:
        return f"ChannelMessage(channel={self.channel!r}, key={self.key!r}, seq={self.seq})"
