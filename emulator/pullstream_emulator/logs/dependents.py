"""Dependents of feeds: routers between them, cursors in them, and storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullstream_emulator.engine import Engine, Record
from pullstream_emulator.engine.observer import Observer, Resource

from .cursors import Cursors
from .feed import Feed, FeedObserver
from .persisted_feed import FeedNote, FeedValue
from .router_endpoints import RouterEndpoints
from .routers import Routers


class Dependents(FeedObserver):
    """The routers and cursors of a broker; also passes changes of feeds on to storage.

    Args:
        engine: The engine that owns the topics.
        feed_of: Returns the feed of a topic; see RouterEndpoints.
        on_more: See Routers.
        observer: Persists the broker's resources. None stores nothing.
    """

    def __init__(
        self,
        engine: Engine,
        feed_of: Callable[[str], Feed],
        *,
        on_more: Callable[[], object],
        observer: Observer | None = None,
    ) -> None:
        self._engine = engine
        self._observer = observer
        now = engine.registry.now
        self.routers = Routers(
            RouterEndpoints(engine, feed_of),
            now=now,
            timetable=engine.registry.timetable,
            on_more=on_more,
            observer=observer,
        )
        self.cursors = Cursors(feed_of=feed_of, wall=lambda: now().wall, observer=observer)

    def configured(self, feed: Feed) -> None:
        """Store the feed, and let the routers that wait for room in it try again."""
        # Note first, so that storage never has a feed without its note.
        self._note(feed)
        self._save(feed)
        self.routers.freed(feed.name)

    def appended(self, feed: Feed, records: Sequence[Record]) -> None:
        """Copy the records to the destinations of the feed's routers."""
        self.routers.appended(feed.name, records)

    def skipped(self, feed: Feed, first: int, last: int) -> None:
        """Report the numbers as finished for every subscription, and inform the feed's routers."""
        if self._observer is not None:
            self._observer.skipped(feed.name, first, last)
            for subscription in self._engine.registry.topics[feed.name].subscriptions:
                self._observer.finished(subscription, range(first, last + 1))
        self._note(feed)
        self.routers.lost(feed.name)

    def deleted(self, feed: Feed) -> None:
        """Store the feed, whose deleted records must stay deleted after a restart."""
        self._save(feed)

    def trimmed(self, feed: Feed) -> None:
        """Store the floors, and let the routers that wait for room in the feed try again."""
        self._note(feed)
        self.routers.freed(feed.name)

    def topic_deleted(self, name: str) -> None:
        """Delete the routers and cursors of a topic. It need not be a feed: it may be a dest."""
        self.routers.deleted(name)
        self.cursors.deleted(name)

    def closed(self, feed: Feed) -> None:
        """Remove the stored feed."""
        if self._observer is not None:
            self._observer.removed(Resource.FEED, feed.name)

    def _save(self, feed: Feed) -> None:
        if self._observer is not None:
            config, silent = feed.settings.config(), list(feed.missing())
            value = FeedValue(config, feed.epoch, feed.head, silent)
            self._observer.saved(Resource.FEED, feed.name, value.encode())

    def _note(self, feed: Feed) -> None:
        if self._observer is not None:
            note = FeedNote(feed.floors, feed.lost)
            self._observer.noted(Resource.FEED, feed.name, note.encode())
