"""PostgreSQL's statement for upserts, on a real server if one is installed."""

from __future__ import annotations

import getpass
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pullstream.spark.ingest.jdbc_target import merge_statement
from pullstream.spark.tables.merge import MergeColumns

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


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, which Debian does not put on the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((one for one in folders if (one / "initdb").exists()), None)


_PROGRAMS = _programs()


@pytest.fixture(scope="module")
def server() -> Iterator[list[str]]:
    """Yield the arguments of psql for a server that listens in a folder."""
    if _PROGRAMS is None:
        pytest.skip("PostgreSQL is not installed")
    # The server refuses to run as root, and its socket's path must be short.
    user = "postgres" if os.geteuid() == 0 else getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        shutil.chown(folder, user)

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [_PROGRAMS / program, "-D", folder / "data", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user if os.geteuid() == 0 else None,
            cwd=folder,
        )

    try:
        run("initdb", "-A", "trust", "-U", "test", "--no-sync", "--encoding", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield [
                str(_PROGRAMS / "psql"),
                "-h",
                str(folder),
                "-U",
                "test",
                "-qAtv",
                "ON_ERROR_STOP=1",
                "postgres",
            ]
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def query(server: list[str], *statements: str) -> list[str]:
    done = subprocess.run(
        server, input=";\n".join(statements), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def literal(value: str | int | None) -> str:
    return "NULL" if value is None else f"'{value}'"


def test_a_postgresql_table_equals_all_changes_applied_in_order(server: list[str]) -> None:
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
    query(
        server,
        f"CREATE TABLE rows ({columns})",
        'CREATE UNIQUE INDEX ON rows ("Id", shop)',
        f"CREATE TABLE staging ({columns})",
    )

    def take(batch: Iterable[Change]) -> None:
        values = ", ".join(f"({', '.join(map(literal, one))})" for one in batch)
        query(
            server,
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
    assert sorted(query(server, "SELECT * FROM rows")) == expected
