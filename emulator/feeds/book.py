"""The feeds of an engine's topics: found by name, and made when somebody first asks for one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from emulator.engine import Engine, Record
from emulator.engine.topic import Topic
from emulator.storage.durability import Durability, durability_of
from protocol.errors import InvalidArgument
from protocol.messages import feeds_pb2 as feeds

from .feed import Feed
from .observer import FeedObserver
from .saved import FeedNote, FeedValue, remains
from .settings import DEFAULTS, Settings


def random_epoch() -> int:
    """Not 0, which stands for an epoch that is not known."""
    return secrets.randbits(63) | 1


class FeedBook:
    """All feeds of an engine. A topic holds its own; here is what they have in common.

    Args:
        engine: whose topics they are.
        default_durability: the class of topics that name none.
        observer: told of every change of a feed.
        new_epoch: numbers for the lives of topics, no two alike.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        default_durability: Durability,
        observer: FeedObserver,
        new_epoch: Callable[[], int],
    ) -> None:
        self._registry = engine.registry
        self._default_durability = default_durability
        self._observer = observer
        self._new_epoch = new_epoch

    def feed(self, name: str) -> Feed:
        """The feed of a topic, which becomes one if it is none; raises NotFound without a topic."""
        return self.of(self._registry.topic(name), DEFAULTS)

    def of(self, topic: Topic, settings: Settings) -> Feed:
        """A topic's feed; one that is made has these settings."""
        if isinstance(topic.feed, Feed):
            return topic.feed
        feed = self._enter(topic, settings, self._new_epoch())
        self._observer.configured(feed)
        return feed

    def restore(
        self, value: bytes, note: bytes, topic: Topic, records: Mapping[int, Record]
    ) -> None:
        """Give a topic back the feed that storage has kept; see engine.saved.RestoreFeed.

        The observer is told only if something was lost, or may have been.
        """
        kept, noted = FeedValue.decode(value), FeedNote.decode(note)
        all_was_kept = self.durability_of(topic) is Durability.FSYNC
        left = remains(kept, noted, records, topic.log.head_seq, all_was_kept=all_was_kept)
        feed = self._enter(topic, Settings.of(kept.config), kept.epoch)
        feed.restore(left.records, left.floors, left.lost)
        if (left.silent, left.lost) != (kept.silent, noted.lost):
            self._observer.configured(feed)

    def gone(self, name: str, epoch: int) -> Feed:
        """The feed of a topic that was deleted: all that it has is its end."""
        registry = self._registry
        feed = Feed(
            name,
            registry.new_log(name),
            Settings(),
            epoch,
            now=registry.now,
            timetable=registry.timetable,
            observer=FeedObserver(),
        )
        feed.close()
        return feed

    def _enter(self, topic: Topic, settings: Settings, epoch: int) -> Feed:
        topic.feed = feed = Feed(
            topic.config.name,
            topic.log,
            settings,
            epoch,
            now=self._registry.now,
            timetable=self._registry.timetable,
            observer=self._observer,
        )
        return feed

    def durability_of(self, topic: Topic) -> Durability:
        """The class of a topic: what of it survives the broker."""
        try:
            return durability_of(topic.config, self._default_durability)
        except InvalidArgument:
            # Where nothing is kept nobody has looked at the label.
            return self._default_durability

    def state(self, feed: Feed, *, created: bool = False) -> feeds.Feed:
        """A feed as it is told of."""
        feed.trim(self._registry.now())
        durability = self.durability_of(self._registry.topic(feed.name))
        return feeds.Feed(
            topic=feed.name,
            config=feed.settings.config(durability),
            epoch=feed.epoch,
            head_seq=feed.head,
            earliest_seq=feed.earliest,
            count=feed.count,
            bytes=feed.bytes,
            watchers=feed.watchers,
            created=created,
        )
