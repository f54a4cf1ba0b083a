"""Database keys of topics and subscriptions, and the resources that retain messages.

The engine's thread uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullstream_emulator.engine.observer import Resource
from pullstream_emulator.engine.persisted_state import SnapshotValue
from pullstream_emulator.engine.settings.durability import Durability

from .writer import WriteBatch

# Sequence numbers are reserved on disk in blocks of RESERVE. The next block is reserved when fewer
# than half of a block are left. A subscriber may see a number long before its message is on disk,
# and after a crash this number must not be used again. So the first block is reserved when a topic
# is created, and again at every start, before a number is used. If a block is used before the next
# one is on disk, the publishers of the topic wait. So the block after that is twice as large.
RESERVE = 1 << 16
MAX_RESERVE = 1 << 22


@dataclass(eq=False)
class TopicEntry:
    """One incarnation of a topic. A topic that is created again after its deletion is another one.

    Attributes:
        key: Its number in the database.
        durability: Its durability class.
        head: Its newest sequence number.
        kept: Whether its messages may be on disk.
        reserved: The highest reserved sequence number.
        safe: The highest sequence number that was reserved on disk before `reserving`.
        reserving: The batch that writes the reservation up to `reserved`.
        block: The number of sequence numbers that the next reservation has.
        waited: Whether a publisher has waited for `reserving`.
    """

    key: int
    durability: Durability
    head: int = 0
    kept: bool = False
    reserved: int = 0
    safe: int = 0
    reserving: WriteBatch | None = None
    block: int = RESERVE
    waited: bool = False

    def reserve(self, group: WriteBatch) -> None:
        """Record that `group` writes the reservation of the next numbers."""
        if not self._is_reserving:
            self.safe = self.reserved
        self.reserving, self.reserved = group, self.next_reserved

    def enlarge_block(self) -> None:
        """Double the next reservation if publishers waited for the last one."""
        if self.waited or not self.is_safe:
            self.block = min(2 * self.block, MAX_RESERVE)
            self.waited = False

    @property
    def needs_more(self) -> bool:
        """Whether less than half of a block of reserved sequence numbers is left."""
        return self.head + self.block // 2 > self.reserved

    @property
    def next_reserved(self) -> int:
        """The highest sequence number of a reservation that is made now."""
        return self.head + self.block

    @property
    def is_safe(self) -> bool:
        """Whether the newest number may be returned to clients."""
        return self.has_numbers(0)

    def has_numbers(self, count: int) -> bool:
        """Return whether the next numbers, at most 1,000, are reserved on disk."""
        return self.head + count <= self.safe or not self._is_reserving

    @property
    def _is_reserving(self) -> bool:
        return self.reserving is not None and not self.reserving.written.done()


@dataclass(eq=False)
class SubscriptionEntry:
    """A subscription.

    Attributes:
        key: Its number in the database.
        topic: Its topic.
        is_exactly_once: Whether its acknowledgements are confirmed.
    """

    key: int
    topic: TopicEntry
    is_exactly_once: bool = False


class Retainers:
    """Snapshots and feeds, which retain messages that all subscriptions have finished."""

    def __init__(
        self, topics: Mapping[str, TopicEntry], subscriptions: Mapping[str, SubscriptionEntry]
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._known: dict[tuple[Resource, str], TopicEntry] = {}

    def enter(self, kind: Resource, name: str, topic: TopicEntry) -> None:
        """Add a resource.

        Args:
            kind: The kind of the resource.
            name: Its full name.
            topic: The topic whose messages it retains.
        """
        self._known[kind, name] = topic

    def topic_of(self, kind: Resource, name: str, value: bytes) -> int:
        """Return the number of the topic whose messages a resource retains; 0 for none.

        The topic of a resource does not change, even if its name is used again for another topic.

        Args:
            kind: The kind of the resource.
            name: Its full name.
            value: The resource, serialized.
        """
        topic = self._known.get((kind, name))
        if topic is None:
            if kind is Resource.SNAPSHOT:
                topic = self._subscriptions[SnapshotValue.decode(value).subscription].topic
            elif kind is Resource.FEED:
                topic = self._topics[name]
            else:
                return 0
            self._known[kind, name] = topic
        return topic.key

    def remove(self, kind: Resource, name: str) -> int:
        """Remove a resource, and return the same as `topic_of`."""
        topic = self._known.pop((kind, name), None)
        return 0 if topic is None else topic.key
