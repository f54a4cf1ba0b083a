"""One subscription to a key, or to a whole channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from protocol.errors import PullstreamError

from .notices import ChannelMessage

OnMessage: TypeAlias = Callable[[ChannelMessage], object]
OnFailure: TypeAlias = Callable[[PullstreamError], object]
OnDone: TypeAlias = Callable[["PullstreamError | None"], object]


class Interest:
    """What was subscribed to, and whom to call.

    is_wanted: until it is unsubscribed or has failed. Set by the link under its owner's lock, read
        by the thread of the callbacks.
    is_answered: whether the publisher has taken it.
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
