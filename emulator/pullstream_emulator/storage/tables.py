"""The tables of the database, and the checksums of their rows."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

# The format of the tables. A database with another number belongs to another version.
FORMAT = 3

# Identifies the file as a pullstream database: "pull" in ASCII.
APPLICATION_ID = 0x70756C6C

# A commit writes whole pages, one of them for its mark. Large pages make a row of many messages
# cheap: against pages of 4 KiB, publishing 100 messages a request takes 8 % less CPU of the broker.
# Small pages keep a small commit small: one message takes SQLite 0.10 ms of CPU instead of 0.09.
PAGE_BYTES = 16_384


class Table:
    """A table whose rows end with a checksum of all other columns.

    Args:
        name: The name of the table.
        columns: The columns with their types, without the checksum.
        keys: The number of columns, from the first on, that are the primary key.
        amount: The amount of a row in the table's total: "1" or the name of a column.

    Attributes:
        names: The names of the columns, without the checksum.
        order: The ORDER BY expression of the primary key.
        definition: The CREATE TABLE statement.
        insert: The INSERT statement for a row whose key is new.
        replace: The INSERT statement that replaces a row with the same key.
        where: The WHERE clauses, by the number of compared columns.
    """

    def __init__(
        self, name: str, columns: Sequence[str], *, keys: int = 1, amount: str = "1"
    ) -> None:
        self.name = name
        self.keys = keys
        self.amount = amount
        self.names = [column.split()[0] for column in columns]
        self.order = ", ".join(self.names[:keys])
        self.definition = (
            f"CREATE TABLE {name} ({', '.join(columns)}, seal INTEGER NOT NULL, "
            f"PRIMARY KEY ({self.order})) WITHOUT ROWID"
        )
        values = f"INTO {name} VALUES ({'?, ' * len(columns)}?)"
        self.insert, self.replace = f"INSERT {values}", f"INSERT OR REPLACE {values}"
        conditions = [f"{column} = ?" for column in self.names[:keys]]
        self.where = [
            f" WHERE {' AND '.join(conditions[:count])}" if count else ""
            for count in range(keys + 1)
        ]
        self._amount_at = None if amount == "1" else self.names.index(amount)

    def seal(self, row: Sequence[Any]) -> int:
        """Return the checksum of a row, because SQLite does not detect a flipped bit."""
        plain: list[Any] = [self.name]
        blobs = []
        for value in row:
            if isinstance(value, bytes):
                plain.append(len(value))
                blobs.append(value)
            else:
                plain.append(value)
        seal = zlib.crc32(repr(plain).encode(errors="surrogatepass"))
        for blob in blobs:
            seal = zlib.crc32(blob, seal)
        return seal

    def amount_of(self, row: Sequence[Any]) -> int:
        """Return the part of a row in the table's total: its message count, or 1."""
        return 1 if self._amount_at is None else int(row[self._amount_at])


# One row for each topic that is not deleted or is still needed. `config` of a deleted topic is
# NULL. No message of a topic has a number above `reserved`.
TOPICS = Table("topics", ["id INTEGER", "name TEXT NOT NULL", "config BLOB", "reserved INTEGER"])

# `since` is the head of the topic when the subscription was created. `base` belongs to its
# AckBitmap.
SUBSCRIPTIONS = Table(
    "subscriptions",
    [
        "id INTEGER",
        "name TEXT NOT NULL",
        "topic INTEGER",
        "config BLOB NOT NULL",
        "since INTEGER",
        "base INTEGER",
    ],
)

# The chunks of a subscription's AckBitmap.
CHUNKS = Table("chunks", ["subscription INTEGER", "chunk INTEGER", "bits BLOB NOT NULL"], keys=2)

# The number of failed deliveries, for messages that have any.
ATTEMPTS = Table("attempts", ["subscription INTEGER", "seq INTEGER", "attempts INTEGER"], keys=2)

# Each row has up to one chunk of consecutive messages of a topic: `count` messages from `first` on.
MESSAGES = Table(
    "messages",
    ["topic INTEGER", "first INTEGER", "count INTEGER", "encoded BLOB NOT NULL"],
    keys=2,
    amount="count",
)

# All other resources, by kind and name. `topic` is the topic of a snapshot or feed, otherwise 0.
RESOURCES = Table(
    "resources", ["kind TEXT", "name TEXT", "value BLOB NOT NULL", "topic INTEGER"], keys=2
)

# The continuously changing progress of some of these resources.
NOTES = Table("notes", ["kind TEXT", "name TEXT", "value BLOB NOT NULL"], keys=2)

# In the order of a mark's totals.
TABLES = (TOPICS, SUBSCRIPTIONS, CHUNKS, ATTEMPTS, MESSAGES, RESOURCES, NOTES)

# The mark of the newest commit, encoded, in its only row.
MARK_TABLE = "CREATE TABLE mark (value BLOB NOT NULL)"

# The tables as in SQLite's own list, sqlite_master.
DEFINITIONS = (
    *(("table", table.name, table.name, table.definition) for table in TABLES),
    ("table", "mark", "mark", MARK_TABLE),
)
