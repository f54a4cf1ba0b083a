"""Translation of the engine's changes into SQL writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pullstream_emulator.engine.observer import Resource

from . import batch
from .ack_bitmap import ALL, BYTES, CHUNK, AckBitmap, masks_of
from .database import Database
from .tables import ATTEMPTS, CHUNKS, MESSAGES, NOTES, RESOURCES, SUBSCRIPTIONS, TOPICS

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

# The highest integer of SQLite.
_LAST = 2**63 - 1

Change = Callable[["SqlWriter"], None]


@dataclass
class OnDiskSubscription:
    """The state of a subscription on disk.

    Attributes:
        topic: The number of its topic.
        progress: The messages that it has finished.
        retains: Whether it retains acknowledged messages.
        tried: Sequence numbers of the messages whose failed attempts are on disk.
    """

    topic: int
    progress: AckBitmap
    retains: bool = False
    tried: set[int] = field(default_factory=set)


@dataclass
class OnDiskTopic:
    """The state of a topic on disk, from its creation until nothing needs it.

    Attributes:
        named: Whether it is not deleted.
        retains: Whether its settings retain finished messages.
        subscriptions: Its subscriptions, by number.
        keepers: The names of its snapshots and of its feed.
    """

    named: bool = True
    retains: bool = False
    subscriptions: dict[int, OnDiskSubscription] = field(default_factory=dict)
    keepers: set[str] = field(default_factory=set)

    @property
    def keeps_finished(self) -> bool:
        """Whether messages that every subscription has finished may still be needed."""
        return (
            self.retains
            or bool(self.keepers)
            or any(subscription.retains for subscription in self.subscriptions.values())
        )

    @property
    def is_over(self) -> bool:
        """Whether it is deleted and no subscription, snapshot or feed needs it."""
        return not (self.named or self.subscriptions or self.keepers)

    def is_finished(self, first: int, count: int) -> bool:
        """Return whether every subscription has finished `count` numbers from `first` on.

        The numbers must be in one chunk.
        """
        chunk, bit = divmod(first, CHUNK)
        mask = (ALL >> (CHUNK - count)) << bit
        return all(
            subscription.progress.bits(chunk) & mask == mask
            for subscription in self.subscriptions.values()
        )


class SqlWriter:
    """Writes changes to the database, many in one transaction. One thread at a time may use it.

    Topics and subscriptions have numbers. A number is not used again while data of its topic or
    subscription is on disk. A message is not written if every subscription has finished it before
    the write. Its row is deleted when every subscription has finished it. Neither applies while
    settings, a snapshot or a feed retain the message.

    After a failed transaction each change may be executed again. This is safe because a change
    writes the resulting state, and the pending writes are cleared only after the commit.
    """

    def __init__(
        self,
        database: Database,
        topics: dict[int, OnDiskTopic],
        subscriptions: dict[int, OnDiskSubscription],
    ) -> None:
        self._database = database
        self.topics = topics
        self.subscriptions = subscriptions
        self._published: defaultdict[int, list[Sequence[Record]]] = defaultdict(list)
        # Pending writes, which the end of the transaction carries out.
        self._progressed: set[tuple[int, int]] = set()
        self._attempts: dict[tuple[int, int], int] = {}
        self._finished: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._discarded: dict[int, int] = {}
        self._sweeps: set[int] = set()
        self._notes: dict[tuple[Resource, str], bytes] = {}

    def write(self, changes: Sequence[Change]) -> None:
        """Write changes to disk: all of them, or none if it raises."""
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
        self._published.clear()
        self._progressed.clear()
        self._attempts.clear()
        self._finished.clear()
        self._discarded.clear()
        self._sweeps.clear()
        self._notes.clear()

    # ---- resources -----------------------------------------------------------------------------

    def save_topic(self, key: int, name: str, config: bytes, retains: bool, reserved: int) -> None:
        """Insert or replace a topic.

        Args:
            key: Its number.
            name: Its full name.
            config: Its settings, serialized.
            retains: Whether its settings retain finished messages.
            reserved: The highest reserved sequence number. A higher number on disk stays.
        """
        topic = self.topics.setdefault(key, OnDiskTopic())
        with self._letting_go(key):
            topic.retains = retains
        for row in self._database.rows(TOPICS, key):
            reserved = max(reserved, row[3])
        self._database.put(TOPICS, [(key, name, config, reserved)])

    def reserve(self, key: int, reserved: int) -> None:
        """Replace the highest reserved sequence number of a topic."""
        for _, name, config, _ in self._database.rows(TOPICS, key).fetchall():
            self._database.put(TOPICS, [(key, name, config, reserved)])

    def remove_topic(self, key: int) -> None:
        """Mark a topic as deleted. Its row stays while a subscription or snapshot needs it."""
        topic = self.topics.get(key)
        if topic is not None:
            topic.named = topic.retains = False
            self._sweeps.add(key)
            for _, name, _, reserved in self._database.rows(TOPICS, key).fetchall():
                self._database.put(TOPICS, [(key, name, None, reserved)])

    def save_subscription(
        self, key: int, name: str, topic: int, config: bytes, retains: bool, since: int
    ) -> None:
        """Insert or replace a subscription.

        Args:
            key: Its number.
            name: Its full name.
            topic: The number of its topic.
            config: Its settings, serialized.
            retains: Whether it retains acknowledged messages.
            since: The head of its topic when it was created. Only the first call uses it.
        """
        subscription = self.subscriptions.get(key)
        if subscription is None:
            subscription = OnDiskSubscription(topic, AckBitmap.after(since))
            self.subscriptions[key] = self.topics[topic].subscriptions[key] = subscription
            self._progressed.update((key, chunk) for chunk in subscription.progress.chunks)
        with self._letting_go(topic):
            subscription.retains = retains
        for row in self._database.rows(SUBSCRIPTIONS, key):
            since = row[4]
        self._database.put(
            SUBSCRIPTIONS, [(key, name, topic, config, since, subscription.progress.base)]
        )

    def remove_subscription(self, key: int) -> None:
        """Delete a subscription, its acknowledgements and its counts of failed deliveries."""
        subscription = self.subscriptions.pop(key, None)
        if subscription is not None:
            self.topics[subscription.topic].subscriptions.pop(key)
            self._sweeps.add(subscription.topic)
        for table in (SUBSCRIPTIONS, CHUNKS, ATTEMPTS):
            self._database.remove(table, key)

    def save_resource(self, kind: Resource, name: str, value: bytes, topic: int = 0) -> None:
        """Insert or replace another resource.

        Args:
            kind: Its kind.
            name: Its full name.
            value: The resource, serialized.
            topic: The number of the topic whose messages it retains; 0 for none.
        """
        self._database.put(RESOURCES, [(kind.value, name, value, topic)])
        if topic in self.topics:
            self.topics[topic].keepers.add(name)

    def remove_resource(self, kind: Resource, name: str, topic: int = 0) -> None:
        """Delete a resource and its note.

        Args:
            kind: Its kind.
            name: Its full name.
            topic: The number of the topic whose messages it retained; 0 for none.
        """
        self._database.remove(RESOURCES, kind.value, name)
        self._notes.pop((kind, name), None)
        self._database.remove(NOTES, kind.value, name)
        if topic in self.topics:
            with self._letting_go(topic):
                self.topics[topic].keepers.discard(name)

    def note(self, kind: Resource, name: str, value: bytes) -> None:
        """Write a note at the end of the transaction.

        Of several notes with the same name only the last one is written.

        Args:
            kind: The kind of the resource.
            name: The full name of the note.
            value: The note. Empty: the note is removed.
        """
        self._notes[kind, name] = value

    @contextmanager
    def _letting_go(self, key: int) -> Iterator[None]:
        """Run a block that may end the retention of a topic's finished messages.

        If it does, these messages are removed at the end of the transaction.
        """
        kept = self.topics[key].keeps_finished
        yield
        if kept and not self.topics[key].keeps_finished:
            self._sweeps.add(key)

    # ---- messages ------------------------------------------------------------------------------

    def publish(self, topic: int, records: Sequence[Record]) -> None:
        """Add new messages, which the end of the transaction writes."""
        self._published[topic].append(records)

    def finish(self, key: int, seqs: Collection[int]) -> None:
        """Mark messages as finished, and clear their counts of failed deliveries."""
        subscription = self.subscriptions.get(key)
        if subscription is None:
            return
        masks = masks_of(seqs)
        self._progressed.update((key, chunk) for chunk in subscription.progress.finish(masks))
        finished = self._finished[subscription.topic]
        for chunk, mask in masks.items():
            finished[chunk] = finished.get(chunk, 0) | mask
        if subscription.tried:
            if len(seqs) < len(subscription.tried):
                done = subscription.tried.intersection(seqs)
            else:
                done = {seq for seq in subscription.tried if seq in seqs}
            subscription.tried -= done
            self._attempts.update(((key, seq), 0) for seq in done)

    def reopen(self, key: int, seqs: Collection[int]) -> None:
        """Mark finished messages as unfinished, after a seek."""
        subscription = self.subscriptions.get(key)
        if subscription is not None:
            chunks = subscription.progress.reopen(masks_of(seqs))
            self._progressed.update((key, chunk) for chunk in chunks)

    def fail(self, key: int, attempts: Mapping[int, int]) -> None:
        """Record the number of failed deliveries of some messages."""
        subscription = self.subscriptions.get(key)
        if subscription is not None:
            subscription.tried.update(attempts)
            self._attempts.update(((key, seq), count) for seq, count in attempts.items())

    def discard(self, key: int, up_to: int) -> None:
        """Record that nothing retains the messages of a topic up to this number any more."""
        self._discarded[key] = up_to

    # ---- settlement ----------------------------------------------------------------------------

    def _write_messages(self) -> None:
        rows = []
        for key, published in self._published.items():
            topic = self.topics.get(key)
            if topic is None:
                continue
            for first, messages in batch.rows(published):
                if topic.keeps_finished or not topic.is_finished(first, len(messages)):
                    rows.append((key, first, len(messages), batch.encode(messages)))
        # No number is used twice, and a failed transaction has left nothing.
        self._database.put(MESSAGES, rows, are_new=True)

    def _write_progress(self) -> None:
        rows, bases = [], {}
        for key, chunk in self._progressed:
            subscription = self.subscriptions.get(key)
            if subscription is None:
                continue
            bases[key] = subscription.progress.base
            bits = subscription.progress.chunks.get(chunk)
            if bits is None:
                self._database.remove(CHUNKS, key, chunk)
            else:
                rows.append((key, chunk, bits.to_bytes(BYTES, "little")))
        self._database.put(CHUNKS, rows)
        for key, base in bases.items():
            for row in self._database.rows(SUBSCRIPTIONS, key).fetchall():
                if row[5] != base:
                    self._database.put(SUBSCRIPTIONS, [(*row[:5], base)])

    def _write_notes(self) -> None:
        notes = self._notes.items()
        self._database.put(
            NOTES, [(kind.value, name, value) for (kind, name), value in notes if value]
        )
        for (kind, name), value in notes:
            if not value:
                self._database.remove(NOTES, kind.value, name)

    def _write_attempts(self) -> None:
        rows = []
        for (key, seq), count in self._attempts.items():
            if key not in self.subscriptions:
                continue
            if count:
                rows.append((key, seq, count))
            else:
                self._database.remove(ATTEMPTS, key, seq)
        self._database.put(ATTEMPTS, rows)

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
                    self._database.remove(TOPICS, key)

    def _rows(self, topic: int, low: int, high: int) -> list[tuple[int, int]]:
        """Return first number and count of each row that may have a message in this range."""
        return self._database.execute(
            "SELECT first, count FROM messages WHERE topic = :topic AND first <= :high AND "
            "first >= ifnull((SELECT max(first) FROM messages WHERE topic = :topic AND "
            "first <= :low), :low)",
            {"topic": topic, "low": low, "high": high},
        ).fetchall()

    def _remove(self, key: int, topic: OnDiskTopic, rows: Iterable[tuple[int, int]]) -> None:
        """Delete the given rows, except rows that a subscription has not finished."""
        for first, count in rows:
            if topic.is_finished(first, count):
                self._database.remove(MESSAGES, key, first)
