"""What the database keeps of a topic and of a subscription, as far as the next change needs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .progress import ALL, CHUNK, Progress


@dataclass
class KeptSubscription:
    """topic: its number. retains: it keeps what is acknowledged.

    tried: its messages with failed attempts on record.
    """

    topic: int
    progress: Progress
    retains: bool = False
    tried: set[int] = field(default_factory=set)


@dataclass
class KeptTopic:
    """One life of a topic, from its creation until nothing needs it.

    named: nobody has deleted it yet. retains: its settings keep messages beyond their finish.
    keepers: the snapshots of it, and its feed.
    """

    named: bool = True
    retains: bool = False
    subscriptions: dict[int, KeptSubscription] = field(default_factory=dict)
    keepers: set[str] = field(default_factory=set)

    @property
    def keeps_finished(self) -> bool:
        """Whether somebody may ask for messages that every subscription has finished."""
        return (
            self.retains
            or bool(self.keepers)
            or any(subscription.retains for subscription in self.subscriptions.values())
        )

    @property
    def is_over(self) -> bool:
        return not (self.named or self.subscriptions or self.keepers)

    def is_finished(self, first: int, count: int) -> bool:
        """Whether every subscription has finished some numbers, which are of one chunk."""
        chunk, bit = divmod(first, CHUNK)
        mask = (ALL >> (CHUNK - count)) << bit
        return all(
            subscription.progress.bits(chunk) & mask == mask
            for subscription in self.subscriptions.values()
        )
