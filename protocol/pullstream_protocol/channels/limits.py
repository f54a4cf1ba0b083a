"""Limits of a publisher of channels, and checks of the requests to it."""

from __future__ import annotations

from dataclasses import dataclass

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import channels_pb2 as channels

# Limits of one response to a poll. Other gRPC clients refuse responses above 4 MiB by default.
MAX_REPLY_ITEMS = 5000
MAX_REPLY_BYTES = 4_000_000

# The most commands in one batch. The client of pullstream sends at most 2,000 by default.
MAX_COMMANDS = 10_000

# The longest names, in bytes of UTF-8.
MAX_SUBSCRIBER_ID_BYTES = 256
MAX_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Limits of a publisher of channels. All values must be above 0.

    Attributes:
        sessions: The most subscribers at a time. Further ones are refused.
        interests: The most channels and keys that one subscriber may subscribe to.
        mailbox_bytes: The most bytes that are kept for one subscriber. If there are more, the
            oldest items are dropped, and the subscriber is informed. A message that is larger than
            a mailbox is refused.
        mailbox_items: The most items that are kept for one subscriber, in the same way.
        subscriber_timeout: A subscriber that is silent for this many seconds is dropped.
        sweep_interval: Seconds between two checks for such subscribers.
    """

    sessions: int = 10_000
    interests: int = 1_000_000
    mailbox_bytes: int = 10 * 1024 * 1024
    mailbox_items: int = 100_000
    subscriber_timeout: float = 300.0
    sweep_interval: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")


def check_subscriber_id(subscriber_id: str) -> str:
    """Return the ID; raise InvalidArgument if it is empty or too long."""
    if not subscriber_id:
        raise InvalidArgument("subscriber_id: it is empty; it must be set.")
    _check_length("subscriber_id", subscriber_id, MAX_SUBSCRIBER_ID_BYTES)
    return subscriber_id


def check_commands(request: channels.CommandsRequest) -> None:
    """Raise InvalidArgument if the batch is too large or one of its fields is invalid."""
    check_subscriber_id(request.subscriber_id)
    if request.batch_no < 1:
        raise InvalidArgument(f"batch_no: it is {request.batch_no}; it must be at least 1.")
    if len(request.commands) > MAX_COMMANDS:
        raise InvalidArgument(
            f"commands: the batch has {len(request.commands)}; the limit is {MAX_COMMANDS}."
        )
    for command in request.commands:
        check_names(command.channel, command.key)


def check_poll(request: channels.PollRequest) -> None:
    """Raise InvalidArgument for a bad subscriber ID, or a negative position or limit."""
    check_subscriber_id(request.subscriber_id)
    for field in ("max_processed_seq", "max_messages", "max_bytes"):
        value = getattr(request, field)
        if value < 0:
            raise InvalidArgument(f"{field}: it is {value}; it must not be negative.")


def check_names(channel: str, key: str | None) -> None:
    """Raise InvalidArgument if the channel is not named, or if a name is too long."""
    if not channel:
        raise InvalidArgument("channel: it is empty; it must be set.")
    _check_length("channel", channel, MAX_NAME_BYTES)
    _check_length("key", key or "", MAX_NAME_BYTES)


def unknown_channel(channel: str) -> InvalidArgument:
    """Return the error for a channel that the publisher does not have."""
    return InvalidArgument(f"channel: the channel {channel!r} does not exist.")


def _check_length(field: str, text: str, limit: int) -> None:
    # Check the number of characters first: few texts are long enough to need encoding.
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidArgument(
            f"{field}: it has {len(text.encode())} bytes; the limit is {limit} bytes."
        )
