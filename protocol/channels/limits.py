"""How much a publisher of channels keeps, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

# Of one reply to a poll. Other clients than ours refuse replies above 4 MiB.
MAX_REPLY_ITEMS = 5000
MAX_REPLY_BYTES = 4_000_000

# Of one batch; ours send at most 2,000.
MAX_COMMANDS = 10_000

# Lengths of texts, in bytes.
MAX_SUBSCRIBER_ID_BYTES = 256
MAX_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Bounds of a publisher of channels.

    sessions: subscribers at a time; one more is refused.
    interests: channels and keys that one subscriber may be subscribed to.
    mailbox_bytes, mailbox_items: what is kept for one subscriber; beyond it the oldest is dropped,
        which the subscriber is told. A message that is larger than a mailbox is refused.
    subscriber_timeout: seconds without a sign of life after which a subscriber is forgotten.
    sweep_interval: seconds between two looks for such subscribers.
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
