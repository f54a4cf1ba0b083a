"""`pullstream compact` and `pullstream clean`, on a disk and in a bucket."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from pullstream.spark.stores import store_of
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.table import Table
from tests.subscriber.command_line import failure, pullstream, usage_error
from tests.subscriber.spark.tables.written import (
    COLUMNS,
    FORMATS,
    LAKES,
    SOURCE,
    data_files,
    files,
    ids,
    put,
    table,
)

CHANGES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("pubsub_publish_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("_deleted", pa.bool_(), nullable=False),
    ]
)
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_compact_command_says_how_many_files_became_how_many(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    written = table(kind, folder)
    for number in range(3):
        put(written, number, [number])
    assert pullstream("compact", str(folder)).lines == ["3 files became 1"]
    assert pullstream("compact", str(folder)).lines == ["nothing to compact"]
    assert pullstream("compact", str(folder), "--format", kind, "--json").objects == [
        {"removed": 0, "added": 0, "tries": 0, "dropped": 0}
    ]
    assert ids(kind, folder) == [0, 1, 2]


@pytest.mark.parametrize("kind", LAKES)
def test_the_compact_command_says_how_many_rows_of_deleted_keys_it_has_dropped(
    tmp_path: Path, kind: str
) -> None:
    """The rest of the rewritten files is compacted, too."""
    folder = tmp_path / "table"
    written = (DeltaLakeTable if kind == "delta" else IcebergTable)(str(folder))
    written.open(CHANGES)
    for number, deleted in enumerate((True, False, False)):
        batch = BatchName(SOURCE, number)
        rows = pa.record_batch(
            [[2 * number, 2 * number + 1], [LONG_AGO] * 2, [deleted, False]], schema=CHANGES
        )
        written.commit(written.files_to_write(str(batch)).write([rows], "00000-0"), batch)
    command = ("compact", str(folder), "--drop-deleted-after")
    assert "must be at least 24 hours" in usage_error(*command, "23h")
    assert pullstream(*command, "7d").lines == [
        "4 files became 2; 1 rows of deleted keys were dropped"
    ]
    assert pullstream(*command, "7d").lines == [
        "nothing to compact; 0 rows of deleted keys were dropped"
    ]
    assert pullstream(*command, "7d", "--json").objects == [
        {"removed": 0, "added": 0, "tries": 0, "dropped": 0}
    ]
    assert ids(kind, folder) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_compact_command_drops_nothing_from_a_table_without_changes(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "table"
    put(table(kind, folder), 0, [0])
    error = failure("compact", str(folder), "--drop-deleted-after", "7d")
    assert "only " in error
    assert "Compact it without an age of deletions" in error


@pytest.mark.parametrize("kind", FORMATS)
def test_the_clean_command_removes_files_only_with_apply(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    written = table(kind, folder)
    put(written, 0, [0])
    (killed,) = files(written, BatchName(SOURCE, 1), [1])
    for path in data_files(folder):
        os.utime(path, (0, 0))
    command = ("clean", str(folder), "--older-than", "7d")
    shown = pullstream(*command)
    assert shown.lines == [
        killed.path,
        f"0 versions, 1 files, {killed.size:,} bytes would be removed; add --apply to remove them",
    ]
    assert shown.stderr == ""
    record = {"applied": False, "versions": 0, "bytes": killed.size, "files": [killed.path]}
    assert pullstream(*command, "--json").objects == [record]
    assert (folder / killed.path).exists()
    assert pullstream(*command, "--apply").lines == [
        f"0 versions, 1 files, {killed.size:,} bytes removed"
    ]
    assert not (folder / killed.path).exists()
    assert ids(kind, folder) == [0]


def test_the_clean_command_refuses_less_than_a_day_and_the_lack_of_an_age(tmp_path: Path) -> None:
    put(table("delta", tmp_path), 0, [0])
    error = usage_error("clean", str(tmp_path), "--older-than", "23h")
    assert "--older-than is 82800 seconds; it must be at least 24 hours" in error
    assert "Missing option '--older-than'" in usage_error("clean", str(tmp_path))


def test_the_table_commands_name_what_is_wrong_with_a_table(tmp_path: Path) -> None:
    assert "has no table that a job has written" in failure("compact", str(tmp_path))
    wrong = failure("compact", str(tmp_path), "--format", "delta", "--table", "a.b")
    assert "only Iceberg has these" in wrong


# ---- buckets -------------------------------------------------------------------------------------

URL = "s3://lake/orders"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run a local S3 server, and return its address."""
    running = ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def storage(server: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the settings of a new bucket."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    reset = urllib.request.Request(f"{server}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset).close()
    create = urllib.request.Request(f"{server}/lake", method="PUT")
    urllib.request.urlopen(create).close()
    return {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_endpoint": server,
    }


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_the_table_commands_work_in_a_bucket(
    tmp_path: Path, storage: dict[str, str], kind: str
) -> None:
    """The settings of the store come from the options."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}
    made: dict[str, Table] = {
        "delta": DeltaLakeTable(URL, (), storage),
        "iceberg": IcebergTable(URL, (), storage, catalog),
        "parquet": FileTable(URL, (), storage),
    }
    written = made[kind]
    written.open(COLUMNS)
    for number in range(3):
        put(written, number, [number])
    options = ["--format", kind]
    for name, value in storage.items():
        options += ["--storage", f"{name}={value}"]
    if kind == "iceberg":
        for name, value in catalog.items():
            options += ["--catalog", f"{name}={value}"]
    assert pullstream("compact", URL, *options).lines == ["3 files became 1"]
    clean = pullstream("clean", URL, *options, "--older-than", "1d", "--apply")
    assert clean.lines == ["0 versions, 0 files, 0 bytes removed"]
    assert written.newest(SOURCE) == 2
    assert put(written, 3, [3])


def test_a_stored_file_of_a_bucket_has_the_size_and_the_time_of_the_store(
    tmp_path: Path, storage: dict[str, str]
) -> None:
    store = store_of(URL, storage)
    (tmp_path / "source").write_bytes(b"123")
    store.upload("folder/file", tmp_path / "source")
    (found,) = store.files("folder")
    assert (found.path, found.size, found.name) == ("folder/file", 3, "file")
    assert store.modified("folder/file") == found.modified
    store.delete("folder/file")
    store.delete("folder/file")
    assert list(store.files()) == []
