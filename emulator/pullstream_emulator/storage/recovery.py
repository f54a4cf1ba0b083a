"""Recovery: builds a new database from the intact rows of a damaged one."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from pullstream_emulator.engine.observer import Resource
from pullstream_emulator.logs.persisted_feed import FeedValue
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .ack_bitmap import BYTES, CHUNK
from .inspection import UNREADABLE, Findings, Reader, remains
from .marks import MARK_NAME, Mark
from .rebuilding import FILE_NAME, LOG_NAME, rebuild
from .tables import (
    ATTEMPTS,
    CHUNKS,
    MESSAGES,
    NOTES,
    RESOURCES,
    SUBSCRIPTIONS,
    TABLES,
    TOPICS,
    Table,
)

_log = logging.getLogger("pullstream.emulator")

# Sequence numbers that are skipped, because lost commits may have used them for messages.
_LEFT_OUT = 1 << 32

_DELETED = "_deleted-topic_"

_Row = tuple[Any, ...]


def recover(directory: Path, found: Findings) -> Mark:
    """Replace a damaged database by a new one with its intact rows, and log the losses.

    The damaged files are kept in a new directory.

    Returns:
        The mark of the new database.
    """
    aside = _set_aside(directory)
    try:
        with closing(Reader(directory)) as reader:
            rows = _Remains(reader, found).rows()
            mark = _rebuild(directory, found, rows)
    except (*UNREADABLE, FileNotFoundError):
        # The file is missing or is not a database.
        mark = _rebuild(directory, found, {})
    found.intact = dict(zip(TABLES, mark.totals, strict=True))
    for damage in [*found.damage, *found.losses()]:
        _log.warning("%s was damaged: %s", directory, damage)
    _log.warning(
        "%s was recovered with %s; the damaged files are kept in %s",
        directory,
        remains(found.intact),
        aside,
    )
    return mark


def _rebuild(directory: Path, found: Findings, rows: dict[Table, Iterable[_Row]]) -> Mark:
    marks = [mark for mark in (found.mark, found.expected) if mark is not None]
    return rebuild(
        directory,
        rows,
        starts=max([mark.starts for mark in marks], default=0),
        commit=max([mark.commit for mark in marks], default=0),
    )


def _set_aside(directory: Path) -> Path:
    """Link the files into a new directory, because new files will replace them."""
    aside = directory / time.strftime("damaged-%Y%m%d-%H%M%S", time.gmtime())
    aside.mkdir(mode=0o700, exist_ok=True)
    for name in (FILE_NAME, LOG_NAME, MARK_NAME):
        source, target = directory / name, aside / name
        if source.exists() and not target.exists():
            try:
                os.link(source, target)
            except OSError:
                # Some file systems have no links.
                shutil.copy2(source, target)
    return aside


class _Remains:
    """The intact rows of a database, without rows that refer to lost rows."""

    def __init__(self, reader: Reader, found: Findings) -> None:
        self._reader = reader
        self._found = found
        # For each topic with messages: the highest sequence number, and the chunks with messages.
        self._heads: dict[int, int] = {}
        self._chunks: dict[int, set[int]] = {}
        for topic, first, count, _ in self._distinct(MESSAGES):
            head = first + count - 1
            self._heads[topic] = max(head, self._heads.get(topic, 0))
            self._chunks.setdefault(topic, set()).update(range(first // CHUNK, head // CHUNK + 1))
        self._topics = {row[0]: row for row in self._distinct(TOPICS)}
        self._subscriptions = {row[0]: row for row in self._distinct(SUBSCRIPTIONS)}
        self._name_lost_topics()
        for key, (_, name, config, reserved) in self._topics.items():
            highest = max(reserved, self._heads.get(key, 0)) + _LEFT_OUT
            self._topics[key] = (key, name, config, highest)

    def rows(self) -> dict[Table, Iterable[_Row]]:
        return {
            TOPICS: self._topics.values(),
            SUBSCRIPTIONS: self._subscriptions.values(),
            CHUNKS: self._progress(),
            ATTEMPTS: self._of(ATTEMPTS, self._subscriptions),
            MESSAGES: self._of(MESSAGES, self._topics),
            RESOURCES: self._resources(),
            NOTES: self._distinct(NOTES),
        }

    def _distinct(self, table: Table) -> Iterator[_Row]:
        """Yield the intact rows once. Damaged pages may have the same row twice."""
        seen = set()
        for row in self._reader.rows(table):
            key = row[: table.keys]
            if key not in seen:
                seen.add(key)
                yield row

    def _of(self, table: Table, owners: dict[int, _Row]) -> Iterator[_Row]:
        return (row for row in self._distinct(table) if row[0] in owners)

    def _name_lost_topics(self) -> None:
        """Restore topics with a lost row. The name is in their subscriptions; settings are lost."""
        names = {name for _, name, config, _ in self._topics.values() if config is not None}
        for _, _, key, data, _, _ in self._subscriptions.values():
            if key not in self._topics:
                name = _config(data).topic
                config = None
                if name != _DELETED and name not in names:
                    names.add(name)
                    config = pubsub.Topic(name=name).SerializeToString()
                self._topics[key] = (key, name, config, 0)

    def _progress(self) -> Iterator[_Row]:
        """Yield the progress. For a lost row, the messages are unfinished and are redelivered."""
        known = set()
        for row in self._of(CHUNKS, self._subscriptions):
            known.add(row[:2])
            yield row
        if self._found.is_short_of(CHUNKS):
            for key, _, topic, _, since, _ in self._subscriptions.values():
                for chunk in self._chunks.get(topic, ()):
                    before = max(0, min(CHUNK, since + 1 - chunk * CHUNK))
                    if (key, chunk) not in known and before < CHUNK:
                        bits = (1 << before) - 1
                        yield key, chunk, bits.to_bytes(BYTES, "little")

    def _resources(self) -> Iterator[_Row]:
        for kind, name, value, topic in self._distinct(RESOURCES):
            if topic and topic not in self._topics:
                continue
            if kind == Resource.FEED.value:
                if self._topics[topic][2] is None:
                    continue
                # Readers get a gap for each missing number up to this one.
                head = self._topics[topic][3]
                value = FeedValue.decode(value)._replace(head=head).encode()
            yield kind, name, value, topic


def _config(data: bytes) -> pubsub.Subscription:
    try:
        return pubsub.Subscription.FromString(data)
    except DecodeError:
        return pubsub.Subscription(topic=_DELETED)
