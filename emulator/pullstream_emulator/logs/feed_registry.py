"""Registry of feeds: finds the feed of a topic, and creates it on first use."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from pullstream_emulator.engine import Engine, Record
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.resources.topic import Topic
from pullstream_emulator.engine.settings.durability import Durability, durability_of
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import feeds_pb2 as feeds

from .feed import Feed, FeedObserver
from .persisted_feed import FeedNote, FeedValue, recovered_feed
from .settings import DEFAULTS, FeedSettings


def random_epoch() -> int:
    """Return a random epoch. Never 0, which means "epoch unknown"."""
    return secrets.randbits(63) | 1


class FeedRegistry:
    """All feeds of an engine.

    Each topic holds its own feed; the registry holds the dependencies that all feeds share.

    Args:
        engine: The engine that owns the topics.
        default_durability: Durability class of topics that do not name one.
        observer: Notified of every change of a feed.
        new_epoch: Returns the epoch of a new feed. No two calls may return the same number.
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
        """Return the feed of a topic; create it with default settings if there is none.

        Raises:
            NotFound: The topic does not exist.
        """
        return self.feed_of(self._registry.topic(name), DEFAULTS)

    def feed_of(self, topic: Topic, settings: FeedSettings) -> Feed:
        """Return a topic's feed; create it with these settings if there is none."""
        if isinstance(topic.feed, Feed):
            return topic.feed
        feed = self._enter(topic, settings, self._new_epoch())
        self._observer.configured(feed)
        return feed

    def restore(
        self, value: bytes, note: bytes, topic: Topic, records: Mapping[int, Record]
    ) -> None:
        """Rebuild a topic's feed from storage; see persistence.persisted_state.RestoreFeed.

        The observer is notified only if records were lost, or may have been lost.

        Args:
            value: The encoded FeedValue.
            note: The encoded FeedNote.
            topic: The restored topic.
            records: The stored records, by sequence number.
        """
        kept, noted = FeedValue.decode(value), FeedNote.decode(note)
        all_was_kept = self.durability_of(topic) is Durability.FSYNC
        left = recovered_feed(kept, noted, records, topic.log.head_seq, all_was_kept=all_was_kept)
        feed = self._enter(topic, FeedSettings.from_config(kept.config), kept.epoch)
        feed.restore(left.records, left.floors, left.lost)
        if (left.silent, left.lost) != (kept.silent, noted.lost):
            self._observer.configured(feed)

    def gone(self, name: str, epoch: int) -> Feed:
        """Return a closed, empty feed for a deleted topic, which reports only the deletion."""
        feed = self._new(self._registry.new_log(name), FeedSettings(), epoch, FeedObserver())
        feed.close()
        return feed

    def _enter(self, topic: Topic, settings: FeedSettings, epoch: int) -> Feed:
        topic.feed = feed = self._new(topic.log, settings, epoch, self._observer)
        return feed

    def _new(self, log: Log, settings: FeedSettings, epoch: int, observer: FeedObserver) -> Feed:
        now, timetable = self._registry.now, self._registry.timetable
        return Feed(
            log.topic, log, settings, epoch, now=now, timetable=timetable, observer=observer
        )

    def durability_of(self, topic: Topic) -> Durability:
        """Return the durability class of a topic."""
        try:
            return durability_of(topic.config, self._default_durability)
        except InvalidArgument:
            # Without storage the label is not validated, so it may be malformed.
            return self._default_durability

    def state(self, feed: Feed, *, created: bool = False) -> feeds.Feed:
        """Return the state of a feed as the API reports it."""
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
