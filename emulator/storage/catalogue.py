"""What the engine's side of storage knows of topics, subscriptions, and what keeps messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator.engine.observer import Resource
from emulator.engine.saved import SnapshotValue

from .durability import Durability
from .writer import Group

# Sequence numbers that are reserved on disk at a time, and how many of them are left when the next
# are. The first ones are reserved before there is a topic, or a start, that could use them: a
# subscriber may see a number long before its message is on disk, and after a crash it must not be
# used again.
RESERVE = 1 << 16
ENOUGH = RESERVE // 2


@dataclass(eq=False)
class TopicEntry:
    """One life of a topic: a topic that was deleted and made again is another one.

    key: its number in the database. kept: there may be messages of it on disk.
    reserved: highest sequence number that was reserved, in the group `reserving` if that is not on
        disk yet; safe: the highest that was before that.
    """

    key: int
    durability: Durability
    head: int = 0
    kept: bool = False
    reserved: int = 0
    safe: int = 0
    reserving: Group | None = None

    def reserve(self, group: Group) -> None:
        """`group` brings the next numbers to disk."""
        if not self._is_reserving:
            self.safe = self.reserved
        self.reserving, self.reserved = group, self.next_reserved

    @property
    def needs_more(self) -> bool:
        return self.head + ENOUGH > self.reserved

    @property
    def next_reserved(self) -> int:
        return self.head + RESERVE

    @property
    def is_safe(self) -> bool:
        """Whether the newest number may be told to anybody."""
        return self.head <= self.safe or not self._is_reserving

    @property
    def _is_reserving(self) -> bool:
        return self.reserving is not None and not self.reserving.written.done()


@dataclass(eq=False)
class SubscriptionEntry:
    """key: its number in the database."""

    key: int
    topic: TopicEntry


class Keepers:
    """Snapshots and feeds: what keeps a topic's messages, whoever has finished them."""

    def __init__(
        self, topics: Mapping[str, TopicEntry], subscriptions: Mapping[str, SubscriptionEntry]
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._known: dict[tuple[Resource, str], TopicEntry] = {}

    def enter(self, kind: Resource, name: str, topic: TopicEntry) -> None:
        self._known[kind, name] = topic

    def topic_of(self, kind: Resource, name: str, value: bytes) -> int:
        """The number of the topic whose messages a resource keeps; 0 if it keeps none.

        It is that of the first time, whatever becomes of the name. value: the resource, serialized.
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
        """Forget a resource; returns as `topic_of`."""
        topic = self._known.pop((kind, name), None)
        return 0 if topic is None else topic.key
