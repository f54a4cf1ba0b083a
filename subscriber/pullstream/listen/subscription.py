"""Subscription to a key or to a whole channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from pullstream_protocol.errors import PullstreamError
from pullstream_protocol.messages import channels_pb2 as channels

from .events import ChannelMessage, Dropped, Reset

OnMessage: TypeAlias = Callable[[ChannelMessage], object]
OnFailure: TypeAlias = Callable[[PullstreamError], object]
OnDone: TypeAlias = Callable[["PullstreamError | None"], object]


class ChannelSubscription:
    """One subscription and its callbacks.

    Attributes:
        channel: The name of the channel.
        key: The ordering key. None for the whole channel.
        on_message: Called with each message.
        on_failure: Called with the error that ends the subscription.
        on_done: Called when the publisher has accepted or refused the subscription.
        is_wanted: False after the user has unsubscribed, or the subscription has failed. Set by the
            ListenSession under its owner's lock; read by the callback thread.
        is_answered: Whether the publisher has accepted the subscription.
    """

    __slots__ = ("channel", "is_answered", "is_wanted", "key", "on_done", "on_failure",
                 "on_message")  # fmt: skip

    def __init__(
        self,
        channel: str,
        key: str | None,
        on_message: OnMessage,
        on_failure: OnFailure | None = None,
        on_done: OnDone | None = None,
    ) -> None:
        self.channel: str = channel
        self.key: str | None = key
        self.on_message: OnMessage = on_message
        self.on_failure: OnFailure | None = on_failure
        self.on_done: OnDone | None = on_done
        self.is_wanted: bool = True
        self.is_answered: bool = False


class Arrived(NamedTuple):
    """A message for a subscription. It is skipped if the subscription ends before its turn.

    Attributes:
        interest: The subscription.
        item: The message as it came from the publisher.
    """

    interest: ChannelSubscription
    item: channels.PollResponse.Item


class Failed(NamedTuple):
    """A subscription has failed.

    Attributes:
        interest: The subscription.
        error: The reason.
    """

    interest: ChannelSubscription
    error: PullstreamError


class Answered(NamedTuple):
    """The publisher has accepted or refused a subscription.

    Attributes:
        interest: The subscription.
        error: The reason of the refusal. None if the publisher has accepted it.
    """

    interest: ChannelSubscription
    error: PullstreamError | None


Notice: TypeAlias = "Arrived | Failed | Answered | Reset | Dropped"
