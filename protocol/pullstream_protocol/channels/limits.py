"""Limits of a publisher of channels."""

from __future__ import annotations

from dataclasses import dataclass

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
