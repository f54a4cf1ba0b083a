"""What depends on feeds: routers between them, cursors in them, and storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator.engine import Engine, Record
from emulator.engine.observer import Observer, Resource

from .cursors import Cursors, Place
from .feed import Feed
from .feed_ends import FeedEnds
from .observer import FeedObserver
from .routers import Routers
from .saved import FeedNote, FeedValue


class Dependents(FeedObserver):
    """The routers and cursors of a broker, and what storage is told of its feeds.

    Args:
        feed_of: gives the feed of a topic; see FeedEnds.
        observer: of the broker's resources; None: nothing is kept.
    """

    def __init__(
        self, engine: Engine, feed_of: Callable[[str], Feed], observer: Observer | None = None
    ) -> None:
        self._engine = engine
        self._observer = observer
        now = engine.registry.now
        self.routers = Routers(
            FeedEnds(engine, feed_of),
            now=now,
            timetable=engine.registry.timetable,
            observer=observer,
        )

        def place(topic: str) -> Place:
            feed = feed_of(topic)
            return Place(feed.epoch, feed.head)

        self.cursors = Cursors(place=place, wall=lambda: now().wall, observer=observer)

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

    def closed(self, feed: Feed) -> None:
        self.routers.deleted(feed.name)
        self.cursors.deleted(feed.name)
        if self._observer is not None:
            self._observer.removed(Resource.FEED, feed.name)

    def _save(self, feed: Feed) -> None:
        if self._observer is not None:
            value = FeedValue(feed.settings.config(), feed.epoch, list(feed.missing()))
            self._observer.saved(Resource.FEED, feed.name, value.encode())

    def _note(self, feed: Feed) -> None:
        if self._observer is not None:
            note = FeedNote(feed.floors, feed.lost)
            self._observer.noted(Resource.FEED, feed.name, note.encode())
