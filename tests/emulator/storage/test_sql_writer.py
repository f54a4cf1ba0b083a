"""The SQL writer after failed writes: a repetition leads to the same result."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullstream_emulator.engine import Record
from pullstream_emulator.storage.database import Database
from pullstream_emulator.storage.loading import Contents
from pullstream_emulator.storage.sql_writer import Change, SqlWriter
from tests.emulator.quick_disk import QUICK_DISK

TABLES = ("topics", "subscriptions", "chunks", "attempts", "messages", "resources")


class Story:
    """Changes as an engine makes them: only existing objects change."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw
        self._numbers = itertools.count(1)
        self._topics: list[int] = []
        self._heads: dict[int, int] = {}
        # For each subscription: its topic, the head of the topic at creation, and whether it
        # retains.
        self._subscriptions: dict[int, tuple[int, int, bool]] = {}

    def next(self) -> Change:
        """Apply one more random change."""
        kinds = [self._make_topic]
        if self._topics:
            kinds += [self._change_topic, self._publish, self._subscribe]
        if self._subscriptions:
            kinds += [self._configure, self._finish, self._reopen, self._fail, self._unsubscribe]
        if len(self._topics) > 1:
            kinds.append(self._remove_topic)
        change: Change = self._draw(st.sampled_from(kinds))()
        return change

    def _topic(self) -> int:
        return self._draw(st.sampled_from(self._topics))

    def _subscription(self) -> int:
        return self._draw(st.sampled_from(sorted(self._subscriptions)))

    def _make_topic(self) -> Change:
        key = next(self._numbers)
        self._topics.append(key)
        self._heads[key] = 0
        return self._save_topic(key)

    def _change_topic(self) -> Change:
        return self._save_topic(self._topic())

    def _save_topic(self, key: int) -> Change:
        retains = self._draw(st.booleans())
        reserved = self._heads[key]
        return lambda ledger: ledger.save_topic(key, f"topic {key}", b"", retains, reserved)

    def _remove_topic(self) -> Change:
        key = self._topic()
        self._topics.remove(key)
        return lambda ledger: ledger.remove_topic(key)

    def _subscribe(self) -> Change:
        key = next(self._numbers)
        topic = self._topic()
        self._subscriptions[key] = (topic, self._heads[topic], self._draw(st.booleans()))
        return self._save_subscription(key)

    def _configure(self) -> Change:
        return self._save_subscription(self._subscription())

    def _save_subscription(self, key: int) -> Change:
        topic, since, retains = self._subscriptions[key]
        name = f"subscription {key}"
        return lambda ledger: ledger.save_subscription(key, name, topic, b"", retains, since)

    def _unsubscribe(self) -> Change:
        key = self._subscription()
        del self._subscriptions[key]
        return lambda ledger: ledger.remove_subscription(key)

    def _publish(self) -> Change:
        key = self._topic()
        first = self._heads[key] + 1
        self._heads[key] += self._draw(st.sampled_from([1, 5, 700, 1024]))
        seqs = range(first, self._heads[key] + 1)
        records = [Record(seq, "", b"message %d" % seq, 0) for seq in seqs]

        def publish(ledger: SqlWriter) -> None:
            # A message is written only after its number was reserved.
            ledger.reserve(key, seqs[-1])
            ledger.publish(key, records)

        return publish

    def _finish(self) -> Change:
        key = self._subscription()
        seqs = self._messages(key)
        return lambda ledger: ledger.finish(key, seqs)

    def _reopen(self) -> Change:
        key = self._subscription()
        # Messages without retention may be gone, depending on the time of the write.
        seqs = self._messages(key) if self._subscriptions[key][2] else range(0)
        return lambda ledger: ledger.reopen(key, seqs)

    def _fail(self) -> Change:
        key = self._subscription()
        attempts = dict.fromkeys(self._messages(key)[:3], self._draw(st.integers(1, 3)))
        return lambda ledger: ledger.fail(key, attempts)

    def _messages(self, key: int) -> range:
        """Return some messages that were published since the subscription was created."""
        topic, since, _ = self._subscriptions[key]
        first = self._draw(st.integers(since + 1, self._heads[topic] + 1))
        return range(first, self._draw(st.integers(first, self._heads[topic] + 1)))


class FaultyDatabase(Database):
    """A database whose commits fail while `is_full`, after all other steps."""

    is_full = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")

    def contents(self) -> dict[str, list[Any]]:
        return {table: sorted(self.execute(f"SELECT * FROM {table}")) for table in TABLES}


@settings(max_examples=25)
@given(data=st.data(), groups=st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=8))
def test_a_failed_write_of_sql_changes_can_be_repeated_without_loss(
    data: st.DataObject, groups: list[tuple[int, bool]]
) -> None:
    """The repetition may include newer changes. In the meantime the database is unchanged."""
    with (
        tempfile.TemporaryDirectory(dir=QUICK_DISK) as sound,
        tempfile.TemporaryDirectory(dir=QUICK_DISK) as faulty,
        closing(Database(Path(sound))) as expected,
        closing(FaultyDatabase(Path(faulty))) as database,
    ):
        story = Story(data)
        written, ledger = SqlWriter(expected, {}, {}), SqlWriter(database, {}, {})
        unwritten: list[Change] = []
        for count, is_full in groups:
            changes = [story.next() for _ in range(count)]
            written.write(changes)
            unwritten += changes
            before = database.contents()
            database.is_full = is_full
            if is_full:
                with pytest.raises(sqlite3.OperationalError):
                    ledger.write(unwritten)
                assert database.contents() == before
            else:
                ledger.write(unwritten)
                unwritten.clear()
        database.is_full = False
        ledger.write(unwritten)
        assert restored(database) == restored(expected)


def restored(database: Database) -> tuple[Any, ...]:
    """Return the data that an engine would restore."""
    contents = Contents(database)
    saved = contents.saved()
    return (
        {(topic.head_seq, topic.value) for topic in saved.topics},
        contents.subscriptions,
        [list(subscription.unfinished) for subscription in saved.subscriptions],
        contents.kept_topics.keys(),
    )
