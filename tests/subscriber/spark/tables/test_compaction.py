"""Compaction of tables: rows, markers, and other writers at each moment."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from pullstream.spark.errors import IngestError
from pullstream.spark.tables import file_maintenance, iceberg, iceberg_maintenance
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.compaction import MOST_FILES, Compacted, bins, write_rows
from pullstream.spark.tables.delta_log import DeltaLog
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.maintenance import TableLocation
from pullstream_protocol.file_lock import FileLock
from tests.subscriber.spark.tables.written import (
    COLUMNS,
    FORMATS,
    LAKES,
    OTHER,
    SOURCE,
    compact,
    current_files,
    data_files,
    files,
    ids,
    once_before,
    put,
    table,
)

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_day_of_a_thousand_small_files_has_at_most_ten_files_after_a_compaction(
    tmp_path: Path, kind: str
) -> None:
    """Rows, markers, refused repetitions and later appends are as before."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    for number in range(10):
        put(written, number, range(number * 1000, number * 1000 + 1000), days=(0, 1), count=100)
    put(written, 5, [10_000], source=OTHER)
    before = ids(kind, folder)
    done = compact(folder)
    assert done.removed >= 2001
    for day in ("2026-11-01", "2026-11-02"):
        assert 1 <= len([path for path in current_files(kind, folder) if day in path]) <= 10
    assert ids(kind, folder) == before == list(range(10_001))
    for again in (written, table(kind, folder)):
        assert (again.newest(SOURCE), again.newest(OTHER)) == (9, 5)
        assert not put(again, 9, []) or kind in ("parquet", "json")
    assert put(written, 10, [10_001])
    assert ids(kind, folder) == list(range(10_002))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_second_compaction_changes_nothing(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    written = table(kind, folder)
    for number in range(3):
        put(written, number, [number])
    assert compact(folder) == Compacted(removed=3, added=1, tries=1)
    assert compact(folder) == Compacted()
    assert ids(kind, folder) == [0, 1, 2]


def test_bins_keep_the_order_and_leave_large_and_lonely_files_alone() -> None:
    assert bins([30, 30, 30, 60, 30], lambda size: size, 100) == [[30, 30, 30]]
    assert bins([40, 40, 40, 40, 40], lambda size: size, 100) == [[40, 40], [40, 40]]
    many = bins([0] * (MOST_FILES + 2), lambda size: size, 100)
    assert [len(one) for one in many] == [MOST_FILES, 2]


def test_write_rows_makes_a_row_group_of_many_small_batches(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    batch = pa.record_batch([[1, 2]], schema=schema)
    assert write_rows([batch] * 100, schema, tmp_path / "file") == 200
    assert pa.parquet.read_metadata(tmp_path / "file").num_row_groups == 1


# ---- beside other writers ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAKES)
def test_a_compaction_lands_beside_a_job_that_never_pauses(tmp_path: Path, kind: str) -> None:
    """The job commits each batch once, and the compaction loses none of them."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    for number in range(20):
        put(written, number, [number])
    ended = threading.Event()
    done: list[Compacted] = []

    def run() -> None:
        try:
            done.append(compact(folder))
        finally:
            ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    number = 20
    while not ended.is_set() and number < 200:
        assert put(written, number, [number])
        number += 1
    thread.join()
    assert done[0].removed >= 20
    assert ids(kind, folder) == list(range(number))
    assert table(kind, folder).newest(SOURCE) == number - 1


def test_an_iceberg_compaction_lands_in_the_second_try_after_a_batch_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    for number in range(3):
        put(written, number, [number])
    once_before(monkeypatch, iceberg_maintenance, "once", lambda: put(written, 3, [3]))
    assert compact(folder) == Compacted(removed=3, added=1, tries=2)
    assert ids("iceberg", folder) == [0, 1, 2, 3]
    assert len(current_files("iceberg", folder)) == 2
    assert table("iceberg", folder).newest(SOURCE) == 3


@pytest.mark.parametrize(
    ("kind", "target", "name"),
    [
        ("iceberg", iceberg, "once"),
        ("delta", DeltaLog, "append"),
    ],
)
def test_a_batch_is_committed_once_after_a_compaction_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, target: Any, name: str
) -> None:
    """The compaction happens between the check of the marker and the commit of the batch."""
    folder = tmp_path / "table"
    written = table(kind, folder)
    for number in range(3):
        put(written, number, [number])
    once_before(monkeypatch, target, name, lambda: compact(folder))
    assert put(written, 3, [3])
    assert ids(kind, folder) == [0, 1, 2, 3]
    assert len(current_files(kind, folder)) == 2
    assert table(kind, folder).newest(SOURCE) == 3


@pytest.mark.parametrize("kind", LAKES)
def test_one_of_two_drivers_with_the_same_batch_commits_it_while_a_compaction_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Both drivers are past their check when the other one and the compaction commit."""
    folder = tmp_path / "table"
    first, second = table(kind, folder), table(kind, folder)
    put(first, 0, [0])
    put(first, 1, [1])
    batch = BatchName(SOURCE, 2)
    of_second = files(second, batch, [2])

    def others() -> None:
        assert put(first, 2, [2])
        compact(folder)

    target = iceberg if kind == "iceberg" else DeltaLog
    once_before(monkeypatch, target, "once" if kind == "iceberg" else "append", others)
    assert not second.commit(of_second, batch)
    assert ids(kind, folder) == [0, 1, 2]


def test_an_iceberg_compaction_looks_again_when_another_one_has_rewritten_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is twice in the table, and no file is left over."""
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    for number in range(3):
        put(written, number, [number])
    once_before(monkeypatch, iceberg_maintenance, "once", lambda: compact(folder))
    assert compact(folder) == Compacted()
    assert ids("iceberg", folder) == [0, 1, 2]
    # Three of the batches and one of the other compaction.
    assert len(data_files(folder)) == 4


def test_an_iceberg_compaction_gives_up_and_leaves_no_file_when_others_are_always_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    for number in range(3):
        put(written, number, [number])
    monkeypatch.setattr(iceberg_maintenance.MaintainedIceberg, "_try", lambda *_: False)
    with pytest.raises(IngestError, match="other writers were faster each time"):
        compact(folder)
    assert ids("iceberg", folder) == [0, 1, 2]
    assert len(data_files(folder)) == 3


def test_an_iceberg_snapshot_from_before_a_compaction_stays_readable(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    put(written, 0, [0])
    put(written, 1, [1])
    old = IcebergTable(str(folder)).existing()
    compact(folder)
    assert sorted(old.scan().to_arrow()["id"].to_pylist()) == [0, 1]


def test_an_iceberg_compaction_fills_columns_that_old_files_do_not_have(tmp_path: Path) -> None:
    """The partition of rows without a day stays one of its own, also for filters."""
    folder = tmp_path / "table"
    written = table("iceberg", folder)
    put(written, 0, [0])
    put(written, 1, [1])
    existing = IcebergTable(str(folder)).existing()
    with existing.update_schema() as update:
        update.add_column("country", StringType())
    null = pa.record_batch(
        [pa.array([2, 3]), ["a", "b"], pa.array([None, None], pa.timestamp("us", "UTC"))],
        names=["id", "text", "at"],
    )
    written.open(COLUMNS.append(pa.field("country", pa.string())))
    for number in (2, 3):
        batch = BatchName(SOURCE, number)
        writer = written.files_to_write(f"{batch}-{number:08}")
        rows = null.slice(number - 2, 1).append_column("country", pa.array(["DE"]))
        written.commit(writer.write([rows], "00000-0"), batch)
    assert compact(folder).removed == 4
    after = IcebergTable(str(folder)).existing()
    rows = after.scan().to_arrow().sort_by("id")
    assert rows["country"].to_pylist() == [None, None, "DE", "DE"]
    assert after.scan(row_filter="at is null").to_arrow()["id"].to_pylist() == [2, 3]
    assert after.scan(row_filter="at >= '2026-11-01T00:00:00+00:00'").to_arrow().num_rows == 2


# ---- folders of files ----------------------------------------------------------------------------


def test_a_folder_is_not_compacted_while_its_job_runs(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    put(table("parquet", folder), 0, [0])
    (folder / "_state").mkdir()
    lock = FileLock(folder / "_state" / "LOCK")
    with pytest.raises(IngestError, match=r"the job is writing to .*; stop it first"):
        compact(folder)
    lock.release()
    compact(folder)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["_commit", "delete"])
def test_the_next_compaction_of_a_folder_finishes_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed before its list, the new files go; killed after it, the old ones do."""
    folder = tmp_path / "table"
    written = table("parquet", folder)
    for number in range(3):
        put(written, number, [number])

    def kill(*arguments: Any) -> None:
        # Called with nothing to delete before the compaction.
        if step == "_commit" or list(arguments[1]):
            raise Killed

    target: Any = file_maintenance if step == "delete" else file_maintenance.MaintainedFiles
    with monkeypatch.context() as patch:
        patch.setattr(target, step, kill)
        with pytest.raises(Killed):
            compact(folder)
    assert ids("parquet", folder) == [0, 0, 1, 1, 2, 2]
    compact(folder)
    assert ids("parquet", folder) == [0, 1, 2]
    assert len(data_files(folder)) == 1
    assert table("parquet", folder).newest(SOURCE) == 2


def test_the_second_of_two_compactions_of_a_folder_stops_at_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket has no lock, so the list is what decides."""
    folder = tmp_path / "table"
    written = table("parquet", folder)
    for number in range(3):
        put(written, number, [number])
    kind = file_maintenance.MaintainedFiles
    monkeypatch.setattr(kind, "_alone", lambda _: nullcontext())
    monkeypatch.setattr(kind, "_left_over", lambda *_: [])
    once_before(monkeypatch, kind, "_commit", lambda: compact(folder))
    with pytest.raises(IngestError, match="is being compacted by another process"):
        compact(folder)
    assert ids("parquet", folder) == [0, 1, 2]


def test_a_folder_keeps_files_that_no_list_names_out_of_a_compaction(tmp_path: Path) -> None:
    """They are of a batch that was killed, or of another program."""
    folder = tmp_path / "table"
    written = table("parquet", folder)
    put(written, 0, [0])
    put(written, 1, [1])
    files(written, BatchName(SOURCE, 2), [2])
    (folder / "at_day=2026-11-01" / "notes.parquet").write_bytes(b"not Parquet")
    assert compact(folder).removed == 2
    assert ids("parquet", folder) == [0, 1, 2]


# ---- which table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_the_format_of_a_local_table_is_that_of_its_files(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    put(table(kind, folder), 0, [0])
    opened = TableLocation(folder=str(folder)).opened()
    assert type(opened) is type(TableLocation(folder=str(folder), format=kind).opened())


def test_a_table_without_a_clear_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="has no table that a job has written"):
        compact(tmp_path)
    put(table("delta", tmp_path), 0, [0])
    put(table("parquet", tmp_path), 0, [0])
    with pytest.raises(IngestError, match="has delta and parquet, so its format is not clear"):
        compact(tmp_path)
    with pytest.raises(IngestError, match=r"the format of s3://bucket/table is not known"):
        TableLocation(folder="s3://bucket/table", storage={"aws_region": "x"}).opened()


def test_an_iceberg_table_without_a_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="there is no Iceberg catalog beside"):
        TableLocation(folder=str(tmp_path / "table"), format="iceberg").opened()
    assert not (tmp_path / "catalog.db").exists()
