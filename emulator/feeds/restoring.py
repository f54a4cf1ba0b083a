"""A feed, rebuilt from what storage kept of it."""

from __future__ import annotations

from collections.abc import Mapping

from emulator.engine import Record
from emulator.engine.topic import Topic
from emulator.storage.durability import Durability

from .book import FeedBook
from .observer import FeedObserver
from .saved import FeedNote, FeedValue, remains
from .settings import Settings


def restore(
    book: FeedBook,
    observer: FeedObserver,
    value: bytes,
    note: bytes,
    topic: Topic,
    records: Mapping[int, Record],
) -> None:
    """Give a topic its feed back; see engine.saved.RestoreFeed.

    The observer is told only if something was lost, or may have been.
    """
    kept, noted = FeedValue.decode(value), FeedNote.decode(note)
    all_was_kept = book.durability_of(topic) is Durability.FSYNC
    left = remains(kept, noted, records, topic.log.head_seq, all_was_kept=all_was_kept)
    feed = book.enter(topic, Settings.of(kept.config), kept.epoch)
    feed.restore(left.records, left.floors, left.lost)
    if (left.silent, left.lost) != (kept.silent, noted.lost):
        observer.configured(feed)
