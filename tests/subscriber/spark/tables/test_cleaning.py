"""Clean-up of tables: what is removed, and what stays."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from freezegun import freeze_time
from pyiceberg.table import Transaction
from pyiceberg.table.update.snapshot import ExpireSnapshots

from pullstream.spark.errors import IngestError
from pullstream.spark.stores import LocalFolder
from pullstream.spark.tables import (
    delta_maintenance,
    file_maintenance,
    iceberg,
    iceberg_maintenance,
)
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.cleaning import Cleaned
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.maintenance import TableLocation
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.spark.tables.written import (
    FORMATS,
    LAKES,
    OTHER,
    SOURCE,
    compact,
    data_files,
    files,
    ids,
    put,
    table,
)

DAY = 24 * 3600.0
WEEK = 7 * DAY

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


class StoreTime:
    """The clock of the store, which is ahead of the times at which the files were written."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self, store: Any) -> float:
        store.put("_now", b"")
        now: float = store.modified("_now")
        store.delete("_now")
        return now + self.ahead


@pytest.fixture
def store_time(monkeypatch: pytest.MonkeyPatch) -> StoreTime:
    made = StoreTime()
    for module in (delta_maintenance, file_maintenance, iceberg_maintenance):
        monkeypatch.setattr(module, "time_of", made)
    return made


def clean(folder: Path, older_than: float = WEEK, *, apply: bool = True) -> Cleaned:
    return TableLocation(folder=str(folder)).opened().clean(older_than, apply=apply)


def age(path: Path, seconds: float) -> None:
    """Let a file be older."""
    time = path.stat().st_mtime - seconds
    os.utime(path, (time, time))


@pytest.mark.parametrize("kind", FORMATS)
def test_clean_removes_files_of_killed_batches_and_keeps_those_of_a_batch_that_is_being_written(
    tmp_path: Path, kind: str
) -> None:
    """Committed files stay, however old they are. Without `apply`, nothing is removed."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    put(written, 0, [0])
    killed = files(written, BatchName(SOURCE, 1), [1])
    for path in data_files(folder):
        age(path, 8 * DAY)
    part = data_files(folder)[0].parent / ".part-x.parquet.tmp"
    part.write_bytes(b"half")
    age(part, 8 * DAY)
    batch = BatchName(SOURCE, 1)
    current = files(written, batch, [1])
    before = sorted(folder.rglob("*"))

    shown = clean(folder, apply=False)
    assert sorted(folder.rglob("*")) == before
    removed = {killed[0].path, str(part.relative_to(folder))}
    assert set(shown.files) == removed
    assert shown.size == killed[0].size + 4

    assert clean(folder) == shown
    assert {str(path.relative_to(folder)) for path in set(before) - set(folder.rglob("*"))} == (
        removed
    )
    assert written.commit(current, batch)
    assert ids(kind, folder) == [0, 1]


@pytest.mark.parametrize("kind", FORMATS)
def test_clean_keeps_the_newest_marker_of_each_source(
    tmp_path: Path, store_time: StoreTime, kind: str
) -> None:
    """Also of a source that has not written for long, and after compactions."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    for number in range(3):
        put(written, number, [number], source=OTHER)
    for number in range(150):
        put(written, number, [10 + number])
    compact(folder)
    store_time.ahead = 30 * DAY
    clean(folder)
    for again in (written, table(kind, folder)):
        assert (again.newest(SOURCE), again.newest(OTHER)) == (149, 2)
    assert put(written, 150, [160])
    assert ids(kind, folder) == [0, 1, 2, *range(10, 161)]


@pytest.mark.parametrize("kind", LAKES)
def test_clean_keeps_files_that_a_compaction_has_replaced_until_their_age(
    tmp_path: Path, store_time: StoreTime, kind: str
) -> None:
    """A query that has begun before the compaction reads them, however old they are."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    put(written, 0, [0])
    put(written, 1, [1])
    old = data_files(folder)
    for path in (*old, *folder.rglob("*.json")):
        age(path, 30 * DAY)
    compact(folder)
    # The job expires its own snapshots early.
    for number in range(2, 70):
        put(written, number, [number])
    clean(folder)
    assert all(path.exists() for path in old)
    store_time.ahead = 8 * DAY
    clean(folder)
    assert not any(path.exists() for path in old)
    assert ids(kind, folder) == list(range(70))
    # Nothing is left for another time.
    assert clean(folder, apply=False) == Cleaned(0, (), 0)


def test_clean_keeps_the_delta_version_that_was_current_at_the_limit(
    tmp_path: Path, store_time: StoreTime
) -> None:
    """It can be read after the clean-up, and older versions cannot."""
    folder = tmp_path / "table"
    written = table("delta", folder)
    for number in range(100):
        put(written, number, [number])
    compact(folder)
    put(written, 100, [100])
    log = folder / "_delta_log"
    newest = DeltaTable(folder).version()
    for version in range(newest - 1):
        age(log / f"{version:020}.json", 8 * DAY)
    for path in data_files(folder):
        age(path, 8 * DAY)
    found = clean(folder)
    assert found.versions == 100
    assert not any("part-" in path for path in found.files)
    assert DeltaTable(folder, version=newest - 2).to_pyarrow_table().num_rows == 100
    assert DeltaTable(folder, version=newest).to_pyarrow_table().num_rows == 101
    assert not (log / f"{0:020}.json").exists()


def test_a_delta_job_that_has_slept_loads_the_log_again_after_a_clean(
    tmp_path: Path, store_time: StoreTime
) -> None:
    """The version after its last known one is deleted, so that it looks like a free place."""
    folder = tmp_path / "table"
    sleeper, other = table("delta", folder), table("delta", folder)
    put(sleeper, 0, [0])
    for number in range(100):
        put(other, number, [1 + number], source=OTHER)
    store_time.ahead = 30 * DAY
    assert clean(folder).versions
    with freeze_time(datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc) + timedelta(days=2)):
        assert not put(sleeper, 0, [0])
        assert put(sleeper, 1, [101])
    assert ids("delta", folder) == list(range(102))


def test_clean_keeps_the_files_of_an_iceberg_tag(tmp_path: Path, store_time: StoreTime) -> None:
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    put(written, 0, [0])
    put(written, 1, [1])
    existing = IcebergTable(str(folder)).existing()
    snapshot = existing.current_snapshot()
    assert snapshot is not None
    with existing.manage_snapshots() as manage:
        manage.create_tag(snapshot.snapshot_id, "audit")
    compact(folder)
    put(written, 2, [2])
    store_time.ahead = 30 * DAY
    assert clean(folder).versions
    tagged = IcebergTable(str(folder)).existing()
    assert sorted(tagged.scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [0, 1]
    assert ids("iceberg", folder) == [0, 1, 2]


def test_an_iceberg_job_goes_on_when_clean_has_expired_the_same_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_time: StoreTime
) -> None:
    """The job has chosen snapshots to expire, and the clean-up is faster."""
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    for number in range(59):
        put(written, number, [number])
    store_time.ahead = 30 * DAY
    cleaned: list[Cleaned] = []

    def after_clean(transaction: Transaction) -> ExpireSnapshots:
        if not cleaned:
            cleaned.append(clean(folder))
        return ExpireSnapshots(transaction)

    monkeypatch.setattr(iceberg, "ExpireSnapshots", after_clean)
    for number in range(59, 62):
        assert put(written, number, [number])
    assert cleaned[0].versions == 59
    assert ids("iceberg", folder) == list(range(62))


def test_clean_removes_old_lists_of_compacted_batches_and_no_foreign_file(
    tmp_path: Path, store_time: StoreTime
) -> None:
    folder = tmp_path / "table"
    written = table("parquet", folder)
    for number in range(4):
        put(written, number, [number])
    compact(folder)
    foreign = [folder / "at_day=2026-11-01" / "part-00000-1234.snappy.parquet", folder / "notes"]
    for path in foreign:
        path.write_bytes(b"")
    (folder / "_state").mkdir()
    state = folder / "_state" / ".part-1.tmp"
    state.write_bytes(b"")
    store_time.ahead = 30 * DAY
    found = clean(folder)
    assert found.files == tuple(f"_batches/{BatchName(SOURCE, number)}.json" for number in range(3))
    assert all(path.exists() for path in (*foreign, state))
    assert ids_of_lists(folder) == {1}
    assert clean(folder) == Cleaned(0, (), 0)


def ids_of_lists(folder: Path) -> set[int]:
    """Return how many files the lists of compactions name."""
    lists = (folder / "_batches").glob("compaction-*.json")
    return {len(json.loads(path.read_text())["files"]) for path in lists}


@pytest.mark.parametrize(("kind", "log"), [("delta", "_delta_log"), ("parquet", "_batches")])
def test_clean_removes_the_beginning_of_a_commit_that_was_never_completed(
    tmp_path: Path, store_time: StoreTime, kind: str, log: str
) -> None:
    put(table(kind, tmp_path), 0, [0])
    (tmp_path / log / ".1.json.abc.tmp").write_bytes(b"half")
    store_time.ahead = 30 * DAY
    assert clean(tmp_path).files == (f"{log}/.1.json.abc.tmp",)
    assert ids(kind, tmp_path) == [0]


def test_clean_refuses_a_folder_without_lists(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.parquet"
    path.write_bytes(b"")
    with pytest.raises(IngestError, match="has no lists of batches"):
        TableLocation(folder=str(tmp_path), format="parquet").opened().clean(WEEK, apply=True)
    assert path.exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_clean_refuses_less_than_a_day(tmp_path: Path, kind: str) -> None:
    put(table(kind, tmp_path / "table"), 0, [0])
    with pytest.raises(ValueError, match="it must be at least 24 hours"):
        clean(tmp_path / "table", DAY - 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_clean_goes_by_the_clock_of_the_store(tmp_path: Path, kind: str) -> None:
    """This machine's clock is a month ahead, and no file is old."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    put(written, 0, [0])
    files(written, BatchName(SOURCE, 1), [1])
    store = LocalFolder(folder)
    before = sorted(store.list())
    with freeze_time(datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc) + timedelta(days=30)):
        assert clean(folder).files == ()
    assert sorted(store.list()) == before


@pytest.mark.parametrize("kind", FORMATS)
def test_clean_keeps_the_files_of_a_batch_that_is_committed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_time: StoreTime, kind: str
) -> None:
    """The commit comes after the files were listed, and before the table is looked at."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    put(written, 0, [0])
    batch = BatchName(SOURCE, 1)
    late = files(written, batch, [1])
    store_time.ahead = 8 * DAY
    original = LocalFolder.files
    left = [lambda: written.commit(late, batch)]

    def patched(store: LocalFolder, prefix: str = "") -> Any:
        found = list(original(store, prefix))
        if not prefix and left:
            left.pop()()
        return iter(found)

    monkeypatch.setattr(LocalFolder, "files", patched)
    clean(folder)
    assert not left
    assert ids(kind, folder) == [0, 1]
