"""PostgreSQL's statement for upserts, on a real server if one is installed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pullstream.spark.ingest.jdbc_target import merge_statement, table_statements
from pullstream.spark.tables.merge import MergeColumns
from tests.optional_tools import missing
from tests.subscriber.spark.postgresql import (
    PostgresqlServer,
    postgresql_server,
    server_programs,
)

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "spark-upserts.md"

COLUMNS = MergeColumns(
    ("shop", "Id"),
    ("at", "pubsub_publish_time", "pubsub_message_id"),
    frozenset({"at", "pubsub_message_id"}),
)
NAMES = ("shop", "Id", "at", "pubsub_publish_time", "pubsub_message_id", "_deleted")
# In this collation, "a" is less than "B".
_TYPES = ("TEXT", "BIGINT", 'TEXT COLLATE "en-x-icu"', "TIMESTAMP", "TEXT", "BOOLEAN")


class Change(NamedTuple):
    """A change of a row, with the values in the order of NAMES."""

    shop: str
    id: int
    at: str | None
    published: str
    message: str
    deleted: str

    @property
    def age(self) -> tuple[bool, str, str, int]:
        return (self.at is not None, self.at or "", self.published, int(self.message))


def quoted(name: str) -> str:
    return f'"{name}"'


def test_the_statement_replaces_rows_only_by_newer_changes() -> None:
    """Null is older than any value, and texts are compared by their bytes."""
    columns = MergeColumns(("id",), ("t", "m"), frozenset({"m"}))
    assert merge_statement("rows", "staging", ["id", "t", "m", "x"], columns, quoted) == (
        'INSERT INTO rows AS t ("id", "t", "m", "x") '
        'SELECT DISTINCT ON ("id") "id", "t", "m", "x" FROM staging s ORDER BY "id", '
        's."t" DESC NULLS LAST, length(s."m") DESC NULLS LAST, '
        's."m" COLLATE "C" DESC NULLS LAST '
        'ON CONFLICT ("id") DO UPDATE SET '
        '"t" = EXCLUDED."t", "m" = EXCLUDED."m", "x" = EXCLUDED."x" '
        'WHERE (EXCLUDED."t" > t."t" OR (EXCLUDED."t" IS NOT NULL AND t."t" IS NULL) '
        'OR (EXCLUDED."t" IS NOT DISTINCT FROM t."t" AND '
        '(length(EXCLUDED."m") > length(t."m") '
        'OR (length(EXCLUDED."m") IS NOT NULL AND length(t."m") IS NULL) '
        'OR (length(EXCLUDED."m") IS NOT DISTINCT FROM length(t."m") AND '
        '(EXCLUDED."m" COLLATE "C" > t."m" COLLATE "C" '
        'OR (EXCLUDED."m" COLLATE "C" IS NOT NULL AND t."m" COLLATE "C" IS NULL) '
        'OR (EXCLUDED."m" COLLATE "C" IS NOT DISTINCT FROM t."m" COLLATE "C" AND false))))))'
    )


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    programs = server_programs()
    if programs is None:
        missing("postgresql", "PostgreSQL is not installed")
    assert programs is not None
    with postgresql_server(programs) as running:
        yield running


def literal(value: str | int | None) -> str:
    return "NULL" if value is None else f"'{value}'"


def test_the_statements_make_a_table_of_changes_that_has_its_index_from_the_beginning(
    server: PostgresqlServer,
) -> None:
    """It has the columns of the staging table, without the numbers of staged rows."""
    server.query(
        'CREATE TABLE orders_staging (shop TEXT NOT NULL, "Id" BIGINT NOT NULL, '
        "ingest_row BIGINT, ingest_copy BIGINT)",
        "BEGIN",
        *table_statements("orders", "orders_staging", ("shop", "Id"), quoted),
        "COMMIT",
    )
    columns = server.query(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_name = 'orders' ORDER BY ordinal_position"
    )
    assert columns == ["shop|text|NO", "Id|bigint|NO"]
    insert = "INSERT INTO orders VALUES ('a', 1) ON CONFLICT (shop, \"Id\") DO NOTHING"
    assert server.query(insert, insert, "SELECT count(*) FROM orders") == ["1"]


def test_a_postgresql_table_equals_all_changes_applied_in_order(server: PostgresqlServer) -> None:
    """Batches with ties, repeated keys and copies of rows come in any order, one of them again."""
    chance = random.Random(3)
    changes = [
        Change(
            chance.choice(["a", "B"]),
            chance.randrange(4),
            chance.choice([None, "a", "B", "ä"]),
            f"2026-11-0{chance.randint(1, 2)} 00:00:00",
            str(number + 80),
            chance.choice("ft"),
        )
        for number in range(60)
    ]
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(NAMES, _TYPES, strict=True))
    server.query(
        f"CREATE TABLE rows ({columns})",
        'CREATE UNIQUE INDEX ON rows ("Id", shop)',
        f"CREATE TABLE staging ({columns})",
    )

    def take(batch: Iterable[Change]) -> None:
        values = ", ".join(f"({', '.join(map(literal, one))})" for one in batch)
        server.query(
            "TRUNCATE staging",
            f"INSERT INTO staging VALUES {values}",
            merge_statement("rows", "staging", NAMES, COLUMNS, quoted),
        )

    chance.shuffle(changes)
    for batch in (changes[:20], changes[20:25] * 2, changes[25:], changes[:20]):
        take(batch)
    applied = {one[:2]: one for one in sorted(changes, key=lambda one: one.age)}
    expected = sorted(
        "|".join("" if one is None else str(one) for one in row) for row in applied.values()
    )
    assert sorted(server.query("SELECT * FROM rows")) == expected


def test_the_documented_statement_drops_old_deletions(server: PostgresqlServer) -> None:
    """The columns are those of Spark's dialect."""
    [statement] = re.findall(r"```sql\n(DELETE .*)\n```", GUIDE.read_text(encoding="utf-8"))
    server.query(
        "CREATE TABLE customers (id BIGINT, pubsub_publish_time TIMESTAMP WITH TIME ZONE, "
        '"_deleted" BOOLEAN)',
        "INSERT INTO customers SELECT id, now() - days * interval '1 day', deleted FROM (VALUES "
        "(1, 8, true), (2, 6, true), (3, 8, false), (4, 8, NULL)) AS rows (id, days, deleted)",
        statement,
    )
    assert server.query("SELECT id FROM customers ORDER BY id") == ["2", "3", "4"]
