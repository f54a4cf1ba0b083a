"""What the database holds, and how each change of the engine's alters it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from emulator.engine.observer import Resource

from . import batch
from .database import Database, sealed
from .kept import KeptSubscription, KeptTopic
from .progress import BYTES, CHUNK, Progress, masks_of

if TYPE_CHECKING:
    from emulator.engine import Record

# Highest number that SQLite compares with.
_LAST = 2**63 - 1

_OF_SUBSCRIPTION = (
    ("subscriptions", "id"),
    ("chunks", "subscription"),
    ("attempts", "subscription"),
)

Change = Callable[["Ledger"], None]


class Ledger:
    """Carries changes to the database, many in one transaction. One thread at a time may use it.

    Topics and subscriptions are known by numbers that are never given twice while something of
    theirs is kept. A message is not written if everybody has finished it by then, and its row goes
    when everybody has, unless somebody's settings or a snapshot retain it.

    Each change may be carried out again after a transaction that failed: what it writes is the
    state that it leads to, and what has to be written is forgotten only after it was.
    """

    def __init__(
        self,
        database: Database,
        topics: dict[int, KeptTopic],
        subscriptions: dict[int, KeptSubscription],
    ) -> None:
        self._database = database
        self.topics = topics
        self.subscriptions = subscriptions
        self._published: defaultdict[int, list[Record]] = defaultdict(list)
        # What the next settlement has to look at.
        self._progressed: set[tuple[int, int]] = set()
        self._attempts: dict[tuple[int, int], int] = {}
        self._finished: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._discarded: dict[int, int] = {}
        self._sweeps: set[int] = set()
        self._notes: dict[tuple[Resource, str], bytes] = {}

    def write(self, changes: Sequence[Change]) -> None:
        """Carry out changes, all or (when it raises) none; they are on disk afterwards."""
        self._published.clear()
        with self._database.transaction():
            for change in changes:
                change(self)
            self._write_messages()
            self._write_progress()
            self._write_attempts()
            self._remove_finished()
            self._write_notes()
        for key in [key for key in self._sweeps if key in self.topics]:
            if self.topics[key].is_over:
                del self.topics[key]
        self._progressed.clear()
        self._attempts.clear()
        self._finished.clear()
        self._discarded.clear()
        self._sweeps.clear()
        self._notes.clear()

    # ---- resources -----------------------------------------------------------------------------

    def save_topic(self, key: int, name: str, config: bytes, retains: bool, reserved: int) -> None:
        topic = self.topics.setdefault(key, KeptTopic())
        with self._letting_go(key):
            topic.retains = retains
        self._database.execute(
            "INSERT INTO topics VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "config = excluded.config, reserved = max(reserved, excluded.reserved)",
            (key, name, sealed(config), reserved),
        )

    def reserve(self, key: int, reserved: int) -> None:
        self._database.execute("UPDATE topics SET reserved = ? WHERE id = ?", (reserved, key))

    def remove_topic(self, key: int) -> None:
        topic = self.topics.get(key)
        if topic is not None:
            topic.named = topic.retains = False
            self._sweeps.add(key)
            self._database.execute("UPDATE topics SET config = NULL WHERE id = ?", (key,))

    def save_subscription(
        self, key: int, name: str, topic: int, config: bytes, retains: bool, since: int
    ) -> None:
        """`since`: the head of its topic when it was made, which is of interest the first time."""
        subscription = self.subscriptions.get(key)
        if subscription is None:
            subscription = KeptSubscription(topic, Progress.after(since))
            self.subscriptions[key] = self.topics[topic].subscriptions[key] = subscription
            self._progressed.update((key, chunk) for chunk in subscription.progress.chunks)
        with self._letting_go(topic):
            subscription.retains = retains
        self._database.execute(
            "INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET config = excluded.config",
            (key, name, topic, sealed(config), since, subscription.progress.base),
        )

    def remove_subscription(self, key: int) -> None:
        subscription = self.subscriptions.pop(key, None)
        if subscription is not None:
            self.topics[subscription.topic].subscriptions.pop(key)
            self._sweeps.add(subscription.topic)
        for table, column in _OF_SUBSCRIPTION:
            self._database.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))

    def save_resource(self, kind: Resource, name: str, value: bytes, topic: int = 0) -> None:
        """`topic`: the one whose messages it keeps; 0: it keeps none."""
        self._database.execute(
            "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?)",
            (kind.value, name, sealed(value), topic),
        )
        if topic in self.topics:
            self.topics[topic].keepers.add(name)

    def remove_resource(self, kind: Resource, name: str, topic: int = 0) -> None:
        self._database.execute(
            "DELETE FROM resources WHERE kind = ? AND name = ?", (kind.value, name)
        )
        self._notes.pop((kind, name), None)
        self._database.execute("DELETE FROM notes WHERE kind = ? AND name = ?", (kind.value, name))
        if topic in self.topics:
            with self._letting_go(topic):
                self.topics[topic].keepers.discard(name)

    def note(self, kind: Resource, name: str, value: bytes) -> None:
        """Of several notes of a resource in one transaction only the last is written."""
        self._notes[kind, name] = value

    @contextmanager
    def _letting_go(self, key: int) -> Iterator[None]:
        """The block changes what keeps finished messages of a topic."""
        kept = self.topics[key].keeps_finished
        yield
        if kept and not self.topics[key].keeps_finished:
            self._sweeps.add(key)

    # ---- messages ------------------------------------------------------------------------------

    def publish(self, topic: int, records: Sequence[Record]) -> None:
        self._published[topic].extend(records)

    def finish(self, key: int, seqs: Sequence[int]) -> None:
        subscription = self.subscriptions.get(key)
        if subscription is None:
            return
        masks = masks_of(seqs)
        self._progressed.update((key, chunk) for chunk in subscription.progress.finish(masks))
        finished = self._finished[subscription.topic]
        for chunk, mask in masks.items():
            finished[chunk] = finished.get(chunk, 0) | mask
        if subscription.tried:
            done = subscription.tried.intersection(seqs)
            subscription.tried -= done
            self._attempts.update(((key, seq), 0) for seq in done)

    def reopen(self, key: int, seqs: Sequence[int]) -> None:
        subscription = self.subscriptions.get(key)
        if subscription is not None:
            chunks = subscription.progress.reopen(masks_of(seqs))
            self._progressed.update((key, chunk) for chunk in chunks)

    def fail(self, key: int, attempts: Mapping[int, int]) -> None:
        """How many deliveries of some messages have failed by now."""
        subscription = self.subscriptions.get(key)
        if subscription is not None:
            subscription.tried.update(attempts)
            self._attempts.update(((key, seq), count) for seq, count in attempts.items())

    def discard(self, key: int, up_to: int) -> None:
        """Nothing retains the messages of a topic up to this number any more."""
        self._discarded[key] = up_to

    # ---- settlement ----------------------------------------------------------------------------

    def _write_messages(self) -> None:
        rows = []
        for key, records in self._published.items():
            topic = self.topics.get(key)
            if topic is None:
                continue
            for each in batch.batches(records):
                first, count = each[0].seq, len(each)
                if topic.keeps_finished or not topic.is_finished(first, count):
                    rows.append((key, first, count, batch.encode(key, each)))
        self._database.executemany("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?)", rows)

    def _write_progress(self) -> None:
        kept, gone, bases = [], [], {}
        for key, chunk in self._progressed:
            subscription = self.subscriptions.get(key)
            if subscription is None:
                continue
            bases[key] = subscription.progress.base
            bits = subscription.progress.chunks.get(chunk)
            if bits is None:
                gone.append((key, chunk))
            else:
                kept.append((key, chunk, sealed(bits.to_bytes(BYTES, "little"), key, chunk)))
        for statement, rows in (
            ("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", kept),
            ("DELETE FROM chunks WHERE subscription = ? AND chunk = ?", gone),
            ("UPDATE subscriptions SET base = ? WHERE id = ?", [(b, k) for k, b in bases.items()]),
        ):
            self._database.executemany(statement, rows)

    def _write_notes(self) -> None:
        self._database.executemany(
            "INSERT OR REPLACE INTO notes VALUES (?, ?, ?)",
            [(kind.value, name, sealed(value)) for (kind, name), value in self._notes.items()],
        )

    def _write_attempts(self) -> None:
        known = [
            (*at, count) for at, count in self._attempts.items() if at[0] in self.subscriptions
        ]
        self._database.executemany(
            "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?)", [row for row in known if row[2]]
        )
        self._database.executemany(
            "DELETE FROM attempts WHERE subscription = ? AND seq = ?",
            [row[:2] for row in known if not row[2]],
        )

    def _remove_finished(self) -> None:
        for key, masks in self._finished.items():
            topic = self.topics.get(key)
            if topic is None or topic.keeps_finished or key in self._sweeps:
                continue
            for chunk, mask in masks.items():
                start = chunk * CHUNK
                low, high = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
                self._remove(key, topic, self._rows(key, start + low, start + high))
        for key, up_to in self._discarded.items():
            topic = self.topics.get(key)
            if topic is not None and topic.keeps_finished:
                rows = self._rows(key, 0, up_to)
                self._remove(key, topic, [row for row in rows if sum(row) <= up_to + 1])
        for key in self._sweeps:
            topic = self.topics.get(key)
            if topic is not None and not topic.keeps_finished:
                self._remove(key, topic, self._rows(key, 0, _LAST))
                if topic.is_over:
                    self._database.execute("DELETE FROM topics WHERE id = ?", (key,))

    def _rows(self, topic: int, low: int, high: int) -> list[tuple[int, int]]:
        """First number and count of each row that may hold a message between two numbers."""
        return self._database.execute(
            "SELECT first, count FROM messages WHERE topic = :topic AND first <= :high AND "
            "first >= ifnull((SELECT max(first) FROM messages WHERE topic = :topic AND "
            "first <= :low), :low)",
            {"topic": topic, "low": low, "high": high},
        ).fetchall()

    def _remove(self, key: int, topic: KeptTopic, rows: Iterable[tuple[int, int]]) -> None:
        """Delete those of some rows that every subscription has finished."""
        self._database.executemany(
            "DELETE FROM messages WHERE topic = ? AND first = ?",
            [(key, first) for first, count in rows if topic.is_finished(first, count)],
        )
