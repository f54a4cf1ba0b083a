"""The part of the state on disk that the next write needs, for each topic and subscription."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ack_bitmap import ALL, CHUNK, AckBitmap


@dataclass
class OnDiskSubscription:
    """The state of a subscription on disk.

    Attributes:
        topic: The number of its topic.
        progress: The messages that it has finished.
        retains: Whether it retains acknowledged messages.
        tried: Sequence numbers of the messages whose failed attempts are on disk.
    """

    topic: int
    progress: AckBitmap
    retains: bool = False
    tried: set[int] = field(default_factory=set)


@dataclass
class OnDiskTopic:
    """The state of a topic on disk, from its creation until nothing needs it.

    Attributes:
        named: Whether it is not deleted.
        retains: Whether its settings retain finished messages.
        subscriptions: Its subscriptions, by number.
        keepers: The names of its snapshots and of its feed.
    """

    named: bool = True
    retains: bool = False
    subscriptions: dict[int, OnDiskSubscription] = field(default_factory=dict)
    keepers: set[str] = field(default_factory=set)

    @property
    def keeps_finished(self) -> bool:
        """Whether messages that every subscription has finished may still be needed."""
        return (
            self.retains
            or bool(self.keepers)
            or any(subscription.retains for subscription in self.subscriptions.values())
        )

    @property
    def is_over(self) -> bool:
        """Whether it is deleted and no subscription, snapshot or feed needs it."""
        return not (self.named or self.subscriptions or self.keepers)

    def is_finished(self, first: int, count: int) -> bool:
        """Return whether every subscription has finished `count` numbers from `first` on.

        The numbers must be in one chunk.
        """
        chunk, bit = divmod(first, CHUNK)
        mask = (ALL >> (CHUNK - count)) << bit
        return all(
            subscription.progress.bits(chunk) & mask == mask
            for subscription in self.subscriptions.values()
        )
