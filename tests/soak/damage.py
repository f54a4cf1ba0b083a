"""`make damage`: a data directory is damaged in thousands of ways. All must be noticed.

    python -m tests.soak.damage --database 1200 --log 500 --rows 650 --seed 7

Each trial damages a copy of one of two directories: a broker was stopped on one, and killed on the
other. A bit of the database or of the log is flipped, rows are changed, copied or deleted by
SQLite, or files are cut off or deleted. Then the start of a broker must be refused with one line
that says so, or everything must be served as before. A refused start must have changed no file, and
`recover` must continue with messages that were there before. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pullstream_emulator.broker import Broker
from pullstream_emulator.engine import Consumer
from pullstream_emulator.engine.settings.durability import Durability
from pullstream_emulator.storage.database import LOCK_NAME, Database
from pullstream_emulator.storage.errors import StorageError
from pullstream_emulator.storage.loading import Contents
from pullstream_emulator.storage.marks import MARK_NAME
from pullstream_emulator.storage.rebuilding import FILE_NAME, LOG_NAME
from pullstream_emulator.storage.storage import Storage
from pullstream_emulator.storage.tables import TABLES
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from tests.emulator.quick_disk import QUICK_DISK

PROJECT = "projects/p"
ORDERS, LOG, COPY = (f"{PROJECT}/topics/{name}" for name in ("orders", "events", "copy"))
BILLING, AUDIT = (f"{PROJECT}/subscriptions/{name}" for name in ("billing", "audit"))

# A refusal has one of these words.
WORDS = ("damaged", "missing", "lost")

# The data from which an engine is rebuilt.
Served = dict[str, Any]


class Originals(NamedTuple):
    """The two original directories.

    Attributes:
        closed: After a broker has stopped in order.
        killed: With a log, as after a kill.
    """

    closed: Path
    killed: Path


def fill(directory: Path, killed: Path) -> None:
    """Let a broker at class fsync fill a directory, and copy it before the broker ends."""
    broker = Broker(ManualClock(), storage=Storage(directory, Durability.FSYNC))
    assert broker.storage is not None
    _resources(broker)
    for start in range(0, 3000, 100):
        data = [b"message %d " % number * 4 for number in range(start, start + 100)]
        messages = [pubsub.PubsubMessage(data=each) for each in data]
        broker.call("Publish", pubsub.PublishRequest(topic=ORDERS, messages=messages))
        broker.call("Append", feeds.AppendRequest(topic=LOG, messages=messages[:20]))
        broker.dependents.routers.work()
        broker.storage.flush()
        if start == 1500:
            _settle(broker)
    shutil.copytree(directory, killed)
    broker.close()


def _resources(broker: Broker) -> None:
    for name in (ORDERS, LOG, COPY):
        broker.call("CreateTopic", pubsub.Topic(name=name, labels={"team": "a"}))
    for name in (BILLING, AUDIT):
        settings = pubsub.Subscription(name=name, topic=ORDERS, ack_deadline_seconds=60)
        broker.call("CreateSubscription", settings)
    for name in (LOG, COPY):
        feed = feeds.PutFeedRequest(topic=name, config=feeds.FeedConfig(cap_records=400))
        broker.call("PutFeed", feed)
    router = feeds.Router(name=f"{PROJECT}/routers/copy", source=LOG, dest=COPY)
    broker.call("PutRouter", feeds.PutRouterRequest(router=router))
    definition = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    avro = schema.Schema(type=schema.Schema.AVRO, definition=definition)
    request = schema.CreateSchemaRequest(parent=PROJECT, schema_id="numbers", schema=avro)
    broker.call("CreateSchema", request)
    policy = iam.Policy(bindings=[iam.Binding(role="roles/viewer", members=["allUsers"])])
    broker.call("SetIamPolicy", iam.SetIamPolicyRequest(resource=ORDERS, policy=policy))


def _settle(broker: Broker) -> None:
    """Acknowledge every other message, and let some fail."""
    engine = broker.engine
    consumer = Consumer(ack_deadline=60, wake=lambda: None)
    taken = engine.take(engine.join(BILLING, consumer), consumer)
    ack_ids = [ack_id for ack_id, _ in taken]
    engine.acknowledge(BILLING, ack_ids[::2])
    engine.modify_ack_deadline(BILLING, ack_ids[1:40:2], 0)
    snapshot = pubsub.CreateSnapshotRequest(name=f"{PROJECT}/snapshots/half", subscription=BILLING)
    broker.call("CreateSnapshot", snapshot)


def served(directory: Path, *, recover: bool = False) -> Served:
    """Return the data that a broker serves when it starts on a directory.

    Raises:
        StorageError: It does not start.
    """
    with closing(Database(directory, recover=recover)) as database:
        contents = Contents(database)
        saved = contents.saved()
        found = {
            "topics": [(t.head_seq, t.value, list(t.records)) for t in saved.topics],
            "subscriptions": [(s.value, s.since, list(s.unfinished)) for s in saved.subscriptions],
            "resources": contents.resources,
            "notes": dict(contents.notes),
        }
    # An engine must accept the data.
    Broker(ManualClock(), storage=Storage(directory, Durability.FSYNC)).close()
    return found


# ---- kinds of damage -----------------------------------------------------------------------------


def flip(file: Path, dice: random.Random) -> str:
    """Flip one bit."""
    data = bytearray(file.read_bytes())
    at, bit = dice.randrange(len(data)), dice.randrange(8)
    data[at] ^= 1 << bit
    file.write_bytes(data)
    return f"bit {bit} of byte {at} of {file.name}"


def cut(directory: Path, dice: random.Random) -> str:
    """Cut off or delete a file, or the database with its log."""
    files = [file for file in sorted(directory.iterdir()) if file.name != LOCK_NAME]
    file = dice.choice(files)
    kind = dice.choice(["delete", "empty", "cut", "both"])
    if kind == "both":
        for name in (FILE_NAME, LOG_NAME):
            (directory / name).unlink(missing_ok=True)
        return "no database, no log"
    if kind == "delete":
        file.unlink()
        return f"no {file.name}"
    size = dice.randrange(file.stat().st_size) if kind == "cut" else 0
    with file.open("rb+") as opened:
        opened.truncate(size)
    return f"{file.name} cut to {size} bytes"


def change_rows(directory: Path, dice: random.Random) -> str:
    """Delete, copy or change rows, as a user might with SQLite."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as database:
        filled = [t for t in TABLES if database.execute(f"SELECT 1 FROM {t.name}").fetchone()]
        table = dice.choice(filled)
        name = table.name
        where = table.where[table.keys]
        columns = [*table.names, "seal"]
        rows = database.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
        row = dice.choice(rows)
        key = row[: table.keys]
        kind = dice.choice(["delete", "delete many", "copy", "change", "swap", "drop", "mark"])
        if kind == "delete":
            database.execute(f"DELETE FROM {name}{where}", key)
        elif kind == "delete many":
            database.execute(f"DELETE FROM {name}{table.where[1]}", key[:1])
        elif kind == "copy":
            values = list(row)
            at = dice.randrange(table.keys)
            values[at] = values[at] + (1000 if isinstance(values[at], int) else "x")
            places = ", ".join("?" for _ in values)
            database.execute(f"INSERT OR REPLACE INTO {name} VALUES ({places})", values)
        elif kind == "change":
            column = dice.choice(columns)
            value = _other(row[columns.index(column)], dice)
            database.execute(f"UPDATE OR REPLACE {name} SET {column} = ?{where}", (value, *key))
        elif kind == "swap":
            other, column = dice.choice(rows), dice.choice(columns[table.keys :])
            for ours, theirs in ((row, other), (other, row)):
                value = theirs[columns.index(column)]
                query = f"UPDATE {name} SET {column} = ?{where}"
                database.execute(query, (value, *ours[: table.keys]))
        elif kind == "drop":
            database.execute(f"DROP TABLE {name}")
        else:
            database.execute("DELETE FROM mark")
        database.commit()
    return f"{kind} in {name}: {key}"


def _other(value: Any, dice: random.Random) -> Any:
    if isinstance(value, int):
        return value + dice.choice([-1, 1, 1 << 20])
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return dice.choice([value[:-1], value + b"x", value[::-1] + b"y"])
    return b"not null any more"


# ---- trials --------------------------------------------------------------------------------------


class Trials:
    """Damages copies of the originals; `failures` are the trials that went wrong."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self._originals = Originals(folder / "closed", folder / "killed")
        fill(*self._originals)
        self._expected = {path: served(self._copy(path)) for path in self._originals}
        self._known = {
            record
            for expected in self._expected.values()
            for _, _, records in expected["topics"]
            for record in records
        }

    def flip_database(self, count: int) -> None:
        for number in range(count):
            original = self._originals[number % 2]
            self._try(original, lambda copy: flip(copy / FILE_NAME, self._dice), "database")

    def flip_log(self, count: int) -> None:
        for _ in range(count):
            damage = lambda copy: flip(copy / LOG_NAME, self._dice)  # noqa: E731
            self._try(self._originals.killed, damage, "log")

    def change_rows(self, count: int) -> None:
        for number in range(count):
            original = self._originals[number % 2]
            self._try(original, lambda copy: change_rows(copy, self._dice), "rows")

    def cut_files(self, count: int) -> None:
        for number in range(count):
            original = self._originals[number % 2]
            self._try(original, lambda copy: cut(copy, self._dice), "files")

    def _copy(self, original: Path) -> Path:
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(original, copy))

    def _try(self, original: Path, damage: Callable[[Path], str], kind: str) -> None:
        copy = self._copy(original)
        what = f"{kind}, {original.name}: {damage(copy)}"
        before = _files(copy)
        try:
            found = served(copy)
        except StorageError as error:
            text = str(error)
            self.outcomes[f"{kind}: refused"] += 1
            if "\n" in text or not any(word in text for word in WORDS):
                self.failures.append(f"{what}: {text!r}")
            if _files(copy) != before:
                self.failures.append(f"{what}: files were changed by a start that was refused")
            self._recover(copy, what)
        except Exception:
            self.failures.append(f"{what}: {traceback.format_exc()}")
        else:
            self.outcomes[f"{kind}: as before"] += 1
            if found != self._expected[original]:
                self.failures.append(f"{what}: something else is served")

    def _recover(self, copy: Path, what: str) -> None:
        try:
            remaining = served(copy, recover=True)
            served(copy)
        except Exception:
            self.failures.append(f"{what}: not recovered: {traceback.format_exc()}")
        else:
            records = [record for _, _, records in remaining["topics"] for record in records]
            if not self._known.issuperset(records):
                self.failures.append(f"{what}: recovered messages that nobody has published")


def _files(directory: Path) -> dict[str, bytes]:
    names = (FILE_NAME, LOG_NAME, MARK_NAME)
    return {name: (directory / name).read_bytes() for name in names if (directory / name).exists()}


def report(trials: Trials) -> Iterator[str]:
    for outcome, count in sorted(trials.outcomes.items()):
        yield f"{outcome}: {count}"
    yield f"failures: {len(trials.failures)}"
    yield from trials.failures[:10]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--database", type=int, default=1200, help="bits to flip in the database")
    parser.add_argument("--log", type=int, default=500, help="bits to flip in the log")
    parser.add_argument("--rows", type=int, default=650, help="changes of rows")
    parser.add_argument("--files", type=int, default=200, help="files to cut off or delete")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("pullstream.emulator").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=QUICK_DISK) as folder:
        trials = Trials(Path(folder), options.seed)
        trials.flip_database(options.database)
        trials.flip_log(options.log)
        trials.change_rows(options.rows)
        trials.cut_files(options.files)
    print("\n".join(report(trials)))
    return 1 if trials.failures else 0


if __name__ == "__main__":
    sys.exit(main())
