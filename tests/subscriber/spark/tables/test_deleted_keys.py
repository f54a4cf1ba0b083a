"""Rows of deleted keys are dropped when they are old enough, while other writers commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from freezegun import freeze_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import IdentityTransform

from pullstream.spark.errors import IngestError
from pullstream.spark.tables import (
    deleted_keys,
    delta_deletions,
    delta_maintenance,
    iceberg_maintenance,
)
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.compaction import TRIES, Compacted
from pullstream.spark.tables.data_files import PartitionField, WrittenFile
from pullstream.spark.tables.deleted_keys import without_deleted
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.delta_log import DeltaLog
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.maintenance import TableLocation
from pullstream.spark.tables.table import MergingTable
from pullstream.spark.tables.touched_files import KeyRanges
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.spark.tables.written import (
    FORMATS,
    LAKES,
    OTHER,
    SOURCE,
    compact,
    current_files,
    data_files,
    ids,
    once_before,
    put,
    table,
)

pytestmark = pytest.mark.usefixtures("no_waiting_for_disks")

DAY = 24 * 3600.0
WEEK = 7 * DAY
NOW = datetime(2026, 11, 20, tzinfo=timezone.utc)
LIMIT = NOW - timedelta(days=7)

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("country", pa.string()),
        pa.field("tags", pa.map_(pa.string(), pa.string())),
        pa.field("pubsub_message_id", pa.string(), nullable=False),
        pa.field("pubsub_publish_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("_deleted", pa.bool_(), nullable=False),
    ]
)
BY_COUNTRY = (PartitionField("identity", "country", 0, "country"),)
BY_DELETED = (PartitionField("identity", "_deleted", 0, "_deleted"),)


class Row(NamedTuple):
    """A row of a table that takes changes. The times are relative to the limit."""

    id: int
    after: float = -DAY
    deleted: bool = False
    country: str | None = "DE"

    @property
    def is_old(self) -> bool:
        return self.deleted and self.after < 0

    @property
    def values(self) -> tuple[Any, ...]:
        published = LIMIT + timedelta(seconds=self.after)
        tags = [("n", str(self.id))]
        return (self.id, self.country, tags, str(self.id), published, self.deleted)


GONE = Row(1, -0.000001, deleted=True)
# At the limit, and younger.
YOUNG = [Row(2, 0, deleted=True), Row(3, DAY, deleted=True)]
LIVE = [Row(4), Row(5, DAY)]


@pytest.fixture(autouse=True)
def store_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the store."""
    monkeypatch.setattr(deleted_keys, "time_of", lambda _: NOW.timestamp())


def made(kind: str, folder: Path, fields: Sequence[PartitionField] = ()) -> MergingTable:
    """Return a table that takes changes, opened."""
    found = (DeltaLakeTable if kind == "delta" else IcebergTable)(str(folder), fields)
    found.open(COLUMNS)
    return found


def files(into: MergingTable, rows: Sequence[Row]) -> list[WrittenFile]:
    """Write rows to a file for each partition."""
    columns = zip(*(row.values for row in rows), strict=True)
    arrays = [pa.array(some, field.type) for some, field in zip(columns, COLUMNS, strict=True)]
    writer = into.files_to_write(uuid.uuid4().hex)
    return writer.write([pa.record_batch(arrays, schema=COLUMNS)], "00000-0")


def take(into: MergingTable, number: int, rows: Sequence[Row]) -> bool:
    """Commit rows of new keys as a batch."""
    return into.commit(files(into, rows), BatchName(SOURCE, number))


def upsert(into: MergingTable, number: int, row: Row, rest: Sequence[Row]) -> None:
    """Commit a batch that replaces a row, and writes the rest of its file again."""
    touched = into.touched(KeyRanges(pa.table({"id": pa.array([row.id])}), ()))
    added = files(into, [*rest, row])
    assert into.replace(touched, touched.files, added, BatchName(OTHER, number))


def drop(folder: Path, age: float = WEEK, **options: Any) -> Compacted:
    return TableLocation(folder=str(folder)).opened().drop_deleted(age, **options)


def rows(kind: str, folder: Path) -> list[Row]:
    """Return the rows in the order of their ids."""
    if kind == "delta":
        found = DeltaTable(str(folder)).to_pyarrow_table()
    else:
        found = IcebergTable(str(folder)).existing().scan().to_arrow()
    made = []
    for row in found.select(COLUMNS.names).sort_by("id").to_pylist():
        assert dict(row["tags"]) == {"n": row["pubsub_message_id"]}
        assert row["pubsub_message_id"] == str(row["id"])
        after = (row["pubsub_publish_time"] - LIMIT).total_seconds()
        made.append(Row(row["id"], after, row["_deleted"], row["country"]))
    return made


@pytest.mark.parametrize("kind", LAKES)
def test_deleted_rows_are_dropped_after_their_time_and_not_before(
    tmp_path: Path, kind: str
) -> None:
    """Other rows, markers, refused repetitions and later batches are as before."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    take(written, 0, [YOUNG[1], GONE, YOUNG[0]])
    take(written, 1, LIVE)
    before = rows(kind, folder)
    assert drop(folder, 8 * DAY) == Compacted()
    assert rows(kind, folder) == before
    assert drop(folder) == Compacted(removed=1, added=1, tries=1, dropped=1)
    assert rows(kind, folder) == [*YOUNG, *LIVE]
    assert drop(folder) == Compacted()
    for again in (written, made(kind, folder)):
        assert again.newest(SOURCE) == 1
        assert not take(again, 1, [GONE])
    assert take(written, 2, [Row(9)])
    upsert(written, 0, Row(4, DAY, deleted=True), LIVE[1:])
    assert rows(kind, folder) == [*YOUNG, Row(4, DAY, deleted=True), LIVE[1], Row(9)]


@pytest.mark.parametrize("kind", LAKES)
def test_a_large_file_is_written_again_only_if_it_has_such_a_row(tmp_path: Path, kind: str) -> None:
    """The bounds of the second file allow such a row, and it has none."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    for number, some in enumerate([[GONE, LIVE[0]], [Row(6), *YOUNG], [LIVE[1]], [Row(7, DAY)]]):
        take(written, number, some)
    first, *others = (files_of(kind, folder, one) for one in (1, 2, 5, 7))
    done = drop(folder, target_size=1)
    assert done == Compacted(removed=1, added=1, tries=1, dropped=1)
    assert [files_of(kind, folder, one) for one in (2, 5, 7)] == others
    assert files_of(kind, folder, 4) != first
    assert rows(kind, folder) == [*YOUNG, *LIVE, Row(6), Row(7, DAY)]


def files_of(kind: str, folder: Path, id: int) -> list[str]:
    """Return the present files with a key."""
    paths = (one.removeprefix("file://") for one in current_files(kind, folder))
    return [one for one in paths if id in pq.ParquetFile(one).read(["id"])["id"].to_pylist()]


@pytest.mark.parametrize("kind", LAKES)
def test_files_with_such_rows_become_one_file_up_to_the_target_size(
    tmp_path: Path, kind: str
) -> None:
    """The rows keep the order of each file."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    for number in range(3):
        some = [Row(10 * number + 9), Row(10 * number, -1, deleted=True), Row(10 * number + 1)]
        take(written, number, some)
    assert drop(folder) == Compacted(removed=3, added=1, tries=1, dropped=3)
    (path,) = current_files(kind, folder)
    found = pq.ParquetFile(path.removeprefix("file://")).read()["id"].to_pylist()
    assert sorted([found[:2], found[2:4], found[4:]]) == [[9, 1], [19, 11], [29, 21]]


@pytest.mark.parametrize("fields", [BY_COUNTRY, BY_DELETED], ids=["country", "deleted"])
@pytest.mark.parametrize("kind", LAKES)
def test_a_partition_without_other_rows_has_no_file_any_more(
    tmp_path: Path, kind: str, fields: Sequence[PartitionField]
) -> None:
    """Names of partitions have special characters."""
    folder = tmp_path / "table"
    written = made(kind, folder, fields)
    odd = "a b/é%'=2"
    live = [Row(1, country=odd), Row(2), Row(3, country=None), Row(4, country="")]
    gone = [Row(10 + number, -1, True, one.country) for number, one in enumerate(live)]
    take(written, 0, [*live, *gone, Row(20, -1, deleted=True, country="FR")])
    before = len(data_files(folder))
    done = drop(folder)
    # Delta cannot tell an empty text from null, and so has one partition less.
    removed, added = (5, 3 if kind == "delta" else 4) if fields == BY_COUNTRY else (1, 0)
    assert (done.removed, done.added, done.dropped) == (removed, added, 5)
    assert len(data_files(folder)) == before + done.added
    found = [row._replace(country=row.country or None) for row in rows(kind, folder)]
    assert found == [row._replace(country=row.country or None) for row in live]
    assert take(written, 1, [Row(30, country=odd)])
    assert len(rows(kind, folder)) == 5


@pytest.mark.parametrize("kind", LAKES)
def test_a_file_whose_bounds_exclude_such_rows_is_not_read(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    written = made(kind, folder)
    take(written, 0, [GONE, *LIVE])
    (young,) = files(written, YOUNG)
    written.commit([young], BatchName(SOURCE, 1))
    (folder / young.path).unlink()
    assert drop(folder).dropped == 1


instants = st.sampled_from([-DAY, -0.001, -0.0005, -0.000001, 0.0, 0.000001, 0.0005, DAY])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(LAKES),
    fields=st.sampled_from([(), BY_COUNTRY]),
    batches=st.lists(
        st.lists(st.tuples(instants, st.booleans(), st.sampled_from(["DE", None])), min_size=1),
        min_size=1,
        max_size=4,
    ),
    size=st.sampled_from([1, 3000, 1 << 20]),
)
def test_the_rows_are_those_of_a_filter_whatever_the_bounds_of_files_are(
    tmp_path: Path,
    kind: str,
    fields: Sequence[PartitionField],
    batches: list[list[tuple[float, bool, str | None]]],
    size: int,
) -> None:
    """Bounds in statistics are less exact than times, and no row is missed for that."""
    folder = tmp_path / uuid.uuid4().hex / "table"
    written = made(kind, folder, fields)
    expected: list[Row] = []
    for number, batch in enumerate(batches):
        some = [Row(number * 1000 + index, *one) for index, one in enumerate(batch)]
        take(written, number, some)
        expected += some
    done = drop(folder, target_size=size)
    kept = [row for row in expected if not row.is_old]
    assert done.dropped == len(expected) - len(kept)
    assert rows(kind, folder) == kept


def test_the_time_is_that_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is a month ahead, and no deletion is old."""
    monkeypatch.undo()
    folder = tmp_path / "table"
    now = datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc)
    fresh = Row(1, (now - timedelta(hours=1) - LIMIT).total_seconds(), deleted=True)
    take(made("delta", folder), 0, [fresh])
    with freeze_time(now + timedelta(days=30)):
        assert drop(folder) == Compacted()


def test_only_old_deletions_are_left_out() -> None:
    columns = zip(*(row.values for row in [GONE, *YOUNG, *LIVE]), strict=True)
    arrays = [pa.array(some, field.type) for some, field in zip(columns, COLUMNS, strict=True)]
    batch = pa.record_batch(arrays, schema=COLUMNS)
    assert without_deleted(batch, LIMIT).equals(batch.slice(1))


# ---- other writers ------------------------------------------------------------------------------

# Where a commit begins, before which another writer is faster.
COMMIT = {"delta": (DeltaLog, "append"), "iceberg": (iceberg_maintenance, "once")}


def before_commit(kind: str, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    once_before(monkeypatch, *COMMIT[kind], action)


@pytest.mark.parametrize("kind", LAKES)
def test_a_drop_looks_again_when_an_upsert_has_replaced_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The deleted key comes to life meanwhile. No file is left over."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    other = Row(6, -1, deleted=True)
    take(written, 0, [GONE, LIVE[0], other])
    revived = Row(1, DAY)
    before_commit(kind, monkeypatch, lambda: upsert(written, 0, revived, [LIVE[0], other]))
    assert drop(folder) == Compacted(removed=1, added=1, tries=1, dropped=1)
    assert rows(kind, folder) == [revived, LIVE[0]]
    # Of the batch, of the upsert and of the second try.
    assert len(data_files(folder)) == 3
    assert [written.newest(one) for one in (SOURCE, OTHER)] == [0, 0]


@pytest.mark.parametrize("kind", LAKES)
def test_an_upsert_looks_again_when_a_drop_has_replaced_its_file(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    written = made(kind, folder)
    take(written, 0, [GONE, LIVE[0]])
    touched = written.touched(KeyRanges(pa.table({"id": pa.array([4])}), ()))
    added = files(written, [GONE, Row(4, DAY)])
    assert drop(folder).dropped == 1
    assert written.replace(touched, touched.files, added, BatchName(OTHER, 0)) is None
    assert rows(kind, folder) == [LIVE[0]]


@pytest.mark.parametrize("kind", LAKES)
def test_a_drop_lands_in_the_second_try_after_a_commit_that_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An upsert of other files, which also removes one. No row is written again."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    take(written, 0, [GONE, LIVE[0]])
    take(written, 1, [LIVE[1]])
    newer = Row(5, 2 * DAY)
    before_commit(kind, monkeypatch, lambda: upsert(written, 0, newer, []))
    assert drop(folder) == Compacted(removed=1, added=1, tries=2, dropped=1)
    assert rows(kind, folder) == [LIVE[0], newer]
    assert len(data_files(folder)) == 4
    assert written.newest(OTHER) == 0


@pytest.mark.parametrize("kind", LAKES)
def test_a_drop_gives_up_when_its_file_is_replaced_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Upserts write the file again at each try. The drop leaves no file."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    take(written, 0, [GONE, LIVE[0]])

    def again(number: int) -> None:
        upsert(written, number, Row(4, number), [GONE])
        if number < TRIES - 1:
            before_commit(kind, monkeypatch, lambda: again(number + 1))

    before_commit(kind, monkeypatch, lambda: again(0))
    with pytest.raises(IngestError, match=f"has failed {TRIES} times, because another writer"):
        drop(folder)
    assert rows(kind, folder) == [GONE, Row(4, TRIES - 1)]
    assert len(data_files(folder)) == 1 + TRIES


@pytest.mark.parametrize("kind", LAKES)
def test_a_drop_goes_on_when_each_of_many_files_is_replaced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Only tries in a row count."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    for number in range(TRIES):
        take(written, number, [Row(number, -1, deleted=True)])

    def again(number: int) -> None:
        left = rows(kind, folder)
        keys = KeyRanges(pa.table({"id": pa.array([row.id for row in left])}), ())
        touched = written.touched(keys)
        added = [file for row in left for file in files(written, [row])]
        assert written.replace(touched, touched.files, added, BatchName(OTHER, number))

    original = getattr(*COMMIT[kind])
    calls: list[object] = []
    # Iceberg finds the conflict at the second commit.
    each = 2 if kind == "delta" else 3

    def patched(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) % each == 1:
            with monkeypatch.context() as patch:
                patch.setattr(*COMMIT[kind], original)
                again(len(calls))
        return original(*arguments)

    monkeypatch.setattr(*COMMIT[kind], patched)
    assert drop(folder, target_size=1).dropped == TRIES
    assert rows(kind, folder) == []
    assert len(calls) == each * TRIES


@pytest.mark.parametrize("kind", LAKES)
def test_a_drop_gives_up_and_leaves_no_file_when_others_are_always_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / "table"
    take(made(kind, folder), 0, [GONE, LIVE[0]])
    if kind == "delta":
        monkeypatch.setattr(DeltaLog, "append", lambda *_: False)
    else:
        monkeypatch.setattr(iceberg_maintenance.MaintainedIceberg, "_try", lambda *_: False)
    with pytest.raises(IngestError, match="other writers were faster each time"):
        drop(folder)
    assert rows(kind, folder) == [GONE, LIVE[0]]
    assert len(data_files(folder)) == 1


@pytest.mark.parametrize("kind", LAKES)
def test_a_compaction_looks_again_when_an_upsert_has_replaced_one_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The newer row wins, and no row is twice in the table."""
    folder = tmp_path / "table"
    written = made(kind, folder)
    for number, row in enumerate(LIVE):
        take(written, number, [row])
    newer = Row(4, 2 * DAY)
    target: tuple[Any, str] = (
        (TableOptimizer, "compact") if kind == "delta" else (iceberg_maintenance, "once")
    )
    once_before(monkeypatch, *target, lambda: upsert(written, 0, newer, []))
    assert compact(folder).removed == 2
    assert rows(kind, folder) == [newer, LIVE[1]]
    assert len(current_files(kind, folder)) == 1


def test_a_drop_from_a_delta_table_loads_the_log_again_after_a_long_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version after its last known one is deleted, so that it looks like a free place."""
    folder = tmp_path / "table"
    written = made("delta", folder)
    take(written, 0, [GONE, LIVE[0]])
    now = datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc)
    with freeze_time(now, tick=True) as frozen:

        def sleep() -> None:
            for number in range(1, 101):
                take(written, number, [Row(100 + number)])
            ahead = SYSTEM_CLOCK.now() + 30 * DAY
            with monkeypatch.context() as patch:
                patch.setattr(delta_maintenance, "time_of", lambda _: ahead)
                opened = TableLocation(folder=str(folder)).opened()
                assert opened.clean(WEEK, apply=True).versions
            frozen.tick(2 * DAY)

        once_before(monkeypatch, delta_deletions._State, "has_rows", sleep)
        assert drop(folder).dropped == 1
    assert rows("delta", folder) == [LIVE[0], *(Row(101 + number) for number in range(100))]


@pytest.mark.parametrize("kind", LAKES)
def test_a_drop_looks_again_when_another_writer_has_added_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / "table"
    take(made(kind, folder), 0, [GONE, LIVE[0]])

    def widen() -> None:
        wider = (DeltaLakeTable if kind == "delta" else IcebergTable)(str(folder), may_add=True)
        wider.open(COLUMNS.append(pa.field("more", pa.string())))

    before_commit(kind, monkeypatch, widen)
    assert drop(folder).dropped == 1
    assert rows(kind, folder) == [LIVE[0]]


def test_a_drop_from_a_delta_table_that_only_takes_appends_now_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The properties of the table are checked again before the next try."""
    take(made("delta", tmp_path), 0, [GONE, LIVE[0]])
    settings = {"delta.appendOnly": "true"}
    change = DeltaTable(str(tmp_path)).alter.set_table_properties
    before_commit("delta", monkeypatch, lambda: change(settings))
    with pytest.raises(IngestError, match=r"delta\.appendOnly, so its rows may not be replaced"):
        drop(tmp_path)
    assert rows("delta", tmp_path) == [GONE, LIVE[0]]


# ---- refused tables -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_takes_no_changes_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    put(table(kind, folder), 0, [0])
    expected = "has no column _deleted" if kind in LAKES else "which takes no upserts"
    with pytest.raises(IngestError, match=expected):
        drop(folder)
    assert ids(kind, folder) == [0]


@pytest.mark.parametrize("kind", LAKES)
def test_a_column_of_another_type_is_refused(tmp_path: Path, kind: str) -> None:
    """It has the name of the publish time, but no instant."""
    folder = tmp_path / "table"
    wall = pa.field("pubsub_publish_time", pa.timestamp("us"))
    found = (DeltaLakeTable if kind == "delta" else IcebergTable)(str(folder))
    found.open(COLUMNS.set(4, wall))
    with pytest.raises(IngestError, match="has no column pubsub_publish_time as upserts write it"):
        drop(folder)


@pytest.mark.parametrize("kind", LAKES)
def test_an_age_of_less_than_a_day_is_refused(tmp_path: Path, kind: str) -> None:
    made(kind, tmp_path / "table")
    with pytest.raises(ValueError, match="it must be at least 24 hours"):
        drop(tmp_path / "table", DAY - 1)


def test_a_delta_table_whose_rows_may_not_go_is_refused(tmp_path: Path) -> None:
    settings = {"delta.appendOnly": "true"}
    DeltaTable.create(str(tmp_path), COLUMNS, configuration=settings)
    with pytest.raises(IngestError, match=r"delta\.appendOnly, so its rows may not be replaced"):
        drop(tmp_path)


def test_an_iceberg_file_of_an_older_partitioning_is_refused_if_it_has_such_a_row(
    tmp_path: Path,
) -> None:
    """The present partitioning would put its rows into other partitions."""
    folder = tmp_path / "table"
    take(made("iceberg", folder), 0, LIVE)
    with IcebergTable(str(folder)).existing().update_spec() as update:
        update.add_field("country", IdentityTransform(), "country")
    written = made("iceberg", folder, BY_COUNTRY)
    take(written, 1, [GONE])
    assert drop(folder).dropped == 1

    older = tmp_path / "older"
    take(made("iceberg", older), 0, [*LIVE, GONE])
    with IcebergTable(str(older)).existing().update_spec() as update:
        update.add_field("country", IdentityTransform(), "country")
    with pytest.raises(IngestError, match="which is no Parquet file of the table's present part"):
        drop(older)
    assert rows("iceberg", older) == [GONE, *LIVE]
