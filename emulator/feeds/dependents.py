"""What depends on feeds: routers between them, cursors in them, and storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator.engine import Engine, Record
from emulator.engine.observer import Observer, Resource

from .cursors import Cursors
from .feed import Feed
from .observer import FeedObserver
from .route_ends import Ends
from .routers import Routers
from .saved import FeedNote, FeedValue


class Dependents(FeedObserver):
    """The routers and cursors of a broker, and what storage is told of its feeds.

    Args:
        feed_of: gives the feed of a topic; see Ends.
        observer: of the broker's resources; None: nothing is kept.
    """

    def __init__(
        self, engine: Engine, feed_of: Callable[[str], Feed], observer: Observer | None = None
    ) -> None:
        self._engine = engine
        self._observer = observer
        now = engine.registry.now
        self.routers = Routers(
            Ends(engine, feed_of),
            now=now,
            timetable=engine.registry.timetable,
            observer=observer,
        )
        self.cursors = Cursors(feed_of=feed_of, wall=lambda: now().wall, observer=observer)

    def configured(self, feed: Feed) -> None:
        # In this order: no feed is on disk without its note.
        self._note(feed)
        self._save(feed)
        self.routers.freed(feed.name)

    def appended(self, feed: Feed, records: Sequence[Record]) -> None:
        self.routers.appended(feed.name, records)

    def skipped(self, feed: Feed, first: int, last: int) -> None:
        if self._observer is not None:
            self._observer.skipped(feed.name, first, last)
            for subscription in self._engine.registry.topics[feed.name].subscriptions:
                self._observer.finished(subscription, range(first, last + 1))
        self._note(feed)
        self.routers.lost(feed.name)

    def deleted(self, feed: Feed) -> None:
        self._save(feed)

    def trimmed(self, feed: Feed) -> None:
        self._note(feed)
        self.routers.freed(feed.name)

    def topic_deleted(self, name: str) -> None:
        """Also one that is no feed: a router may be about to copy to it."""
        self.routers.deleted(name)
        self.cursors.deleted(name)

    def closed(self, feed: Feed) -> None:
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
