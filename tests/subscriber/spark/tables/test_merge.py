"""Changes of rows by a key, without Spark: comparison, files that are found, and executors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer
from pyspark import cloudpickle

from pullstream.spark.stores import store_of
from pullstream.spark.tables.data_files import FilesToWrite, PartitionField, text_of
from pullstream.spark.tables.merge import (
    DELETED,
    FileToRead,
    MergeColumns,
    NewRows,
    RewrittenFiles,
    compared,
    conformed,
    packed,
)
from pullstream.spark.tables.touched_files import KeyRanges, KnownFile, comparable, tasks_of

COLUMNS = MergeColumns(("shop", "id"), ("at", "published", "message"), frozenset({"message"}))
SCHEMA = pa.schema(
    [
        ("shop", pa.string()),
        ("id", pa.int64()),
        ("at", pa.int32()),
        ("published", pa.timestamp("us", "UTC")),
        ("message", pa.string()),
        (DELETED, pa.bool_()),
        ("value", pa.int64()),
    ]
)
# A column of the key divides the rows.
FIELDS = (PartitionField("identity", "shop", 0, "shop"),)


class Change(NamedTuple):
    """A change of a row, with the values in the order of the table's columns."""

    shop: str
    id: int
    at: int | None
    published: datetime
    message: str
    deleted: bool
    value: int

    @property
    def key(self) -> tuple[str, int]:
        return self.shop, self.id

    @property
    def age(self) -> tuple[Any, ...]:
        """The order of the changes of a key, calculated in another way than in the product."""
        return (self.at is not None, self.at or 0, self.published, int(self.message))


def table(changes: Sequence[Change]) -> pa.Table:
    columns = zip(*changes, strict=True) if changes else [[] for _ in SCHEMA]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def rows_of(one: pa.Table) -> list[Change]:
    return [Change(*row.values()) for row in one.to_pylist()]


def newest(changes: Sequence[Change]) -> list[Change]:
    """Return the newest change of each key, by applying all in their order."""
    applied = {change.key: change for change in sorted(changes, key=lambda one: one.age)}
    return in_order(applied.values())


def in_order(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda one: (one.key, one.message))


def known(rows: pa.Table, number: int) -> KnownFile:
    """Return the description of a file with these rows, all of one shop."""
    bounds = [
        {name: choose(comparable(rows.column(name)).to_pylist()) for name in COLUMNS.keys}
        for choose in (min, max)
    ]
    partition = {"shop": text_of(FIELDS[0], rows.column("shop")[0].as_py())}
    return KnownFile(str(number), rows.num_rows, 1, partition, *bounds)


class MemoryTable:
    """A table of files in memory, which takes batches as the job's target does."""

    def __init__(self) -> None:
        self.files: list[pa.Table] = []

    def take(self, batch: Sequence[Change]) -> None:
        """Take the newest change of each key of a batch."""
        changes = table(newest(batch))
        ranges = KeyRanges(changes.select(COLUMNS.keys), FIELDS)
        files, late = [], set()
        for number, rows in enumerate(self.files):
            if ranges.may_be_in(known(rows, number)):
                older, not_newer = compared(rows, changes, COLUMNS)
                late.update(not_newer.to_pylist())
                gone = set(older.to_pylist())
                kept = [row for one, row in enumerate(rows_of(rows)) if one not in gone]
                rows = table(kept)
            files.append(rows)
        new = [one for number, one in enumerate(rows_of(changes)) if number not in late]
        for shop in sorted({one.shop for one in new}):
            files.append(table([one for one in new if one.shop == shop]))
        self.files = [rows for rows in files if rows.num_rows]

    @property
    def rows(self) -> list[Change]:
        return in_order(row for rows in self.files for row in rows_of(rows))


def changes() -> st.SearchStrategy[list[Change]]:
    """Return lists of changes of few keys, with many ties. No two have the same message id."""
    content = st.tuples(
        st.sampled_from(["", "a", "b"]),
        st.integers(1, 4),
        st.none() | st.integers(1, 3),
        st.integers(1, 3),
        st.booleans(),
    )
    return st.lists(content, max_size=40).map(
        lambda ones: [
            # From 8 on, so that some ids have more digits than others.
            Change(shop, id, at, day(published), str(number + 8), deleted, number)
            for number, (shop, id, at, published, deleted) in enumerate(ones)
        ]
    )


def day(number: int) -> datetime:
    return datetime(2026, 11, number, tzinfo=timezone.utc)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_rows_equal_all_changes_applied_in_order_however_they_come(data: st.DataObject) -> None:
    """The rows of a merged table are compared with a model that sorts and applies all changes.

    The changes come in any order, in batches cut anywhere, and some batches come again.
    """
    all_changes = data.draw(changes())
    order = data.draw(st.permutations(all_changes))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=6)))
    batches = [order[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    again = data.draw(st.lists(st.sampled_from(range(len(batches))), max_size=4))
    merged = MemoryTable()
    for batch in (*batches, *(batches[number] for number in again)):
        merged.take(batch)
    assert merged.rows == newest(all_changes)


def test_an_older_change_does_not_revive_a_deleted_key() -> None:
    """The row of a deleted key stays, and a late change is compared with it."""
    merged = MemoryTable()
    deletion = Change("a", 1, 2, day(2), "11", True, 0)
    merged.take([deletion])
    merged.take([Change("a", 1, 1, day(3), "12", False, 1)])
    assert merged.rows == [deletion]


def test_a_change_with_a_longer_message_id_is_newer_than_one_with_a_greater_text() -> None:
    """Message ids of one publish time are compared as numbers of any size."""
    ninth, tenth = (Change("a", 1, 1, day(1), text, False, 0) for text in ("9", "10"))
    merged = MemoryTable()
    merged.take([ninth])
    merged.take([tenth])
    assert merged.rows == [tenth]


def test_a_change_that_the_table_has_replaces_nothing() -> None:
    """A message that comes again causes no file to be written again."""
    rows = table([Change("a", 1, None, day(1), "9", False, 0)])
    older, late = compared(rows, rows, COLUMNS)
    assert (older.to_pylist(), late.to_pylist()) == ([], [0])


def test_a_table_with_two_rows_of_a_key_loses_those_that_are_older_than_the_change() -> None:
    """Rows from before the upserts may have a key twice."""
    rows = table([Change("a", 1, at, day(1), "9", False, at) for at in (1, 3)])
    older, late = compared(rows, table([Change("a", 1, 2, day(1), "9", False, 0)]), COLUMNS)
    assert (older.to_pylist(), late.to_pylist()) == ([0], [0])


@pytest.mark.parametrize(
    ("key", "bounds", "found"),
    [
        ((5, "b"), ({"id": 1, "name": "a"}, {"id": 9, "name": "c"}), True),
        ((5, "b"), ({"id": 6, "name": "a"}, {"id": 9, "name": "c"}), False),
        ((5, "b"), ({"id": 1, "name": "c"}, {"id": 9, "name": "d"}), False),
        ((5, "b"), ({"id": 5, "name": "b"}, {"id": 5, "name": "b"}), True),
        ((5, "b"), ({}, {"id": 5}), True),
        ((5, "b"), ({}, {"name": "a"}), False),
        ((5, "b"), ({"id": None}, {"id": None}), True),
    ],
)
def test_a_file_is_found_if_all_columns_of_a_key_are_inside_its_bounds(
    key: tuple[int, str], bounds: tuple[dict[str, Any], dict[str, Any]], found: bool
) -> None:
    """A column without a bound may have any value."""
    keys = pa.table({"id": [0, key[0], 100], "name": ["z", key[1], "z"]})
    file = KnownFile("x", 1, 1, {}, *bounds)
    assert KeyRanges(keys, ()).may_be_in(file) is found


def test_a_file_of_a_partition_without_keys_of_the_batch_is_not_found() -> None:
    """A partition value of a key column tells which keys a file cannot have."""
    fields = (
        PartitionField("bucket", "id", 16, "id_bucket"),
        PartitionField("day", "at", 0, "at_day"),
    )
    keys = pa.table({"id": [5], "at": pa.array([day(3)], pa.timestamp("us", "UTC"))})
    [bucket] = [
        number
        for number in range(16)
        if KeyRanges(keys, fields).may_be_in(
            KnownFile("x", 1, 1, {"id_bucket": str(number), "at_day": "2026-11-03"}, {}, {})
        )
    ]
    ranges = KeyRanges(keys, fields)
    other_day = {"id_bucket": str(bucket), "at_day": "2026-11-04"}
    assert not ranges.may_be_in(KnownFile("x", 1, 1, other_day, {}, {}))
    # A file of another partitioning.
    assert ranges.may_be_in(KnownFile("x", 1, 1, None, {}, {}))


def test_a_partition_by_a_column_outside_the_key_does_not_exclude_a_file() -> None:
    """A change may move its row to another partition."""
    keys = pa.table({"id": [5]})
    file = KnownFile("x", 1, 1, {"country": "DE"}, {"id": 1}, {"id": 9})
    assert KeyRanges(keys, (PartitionField("identity", "country", 0, "country"),)).may_be_in(file)


def test_bounds_of_times_are_compared_as_numbers() -> None:
    """Times are microseconds and dates days in all bounds."""
    times = pa.chunked_array([pa.array([day(1)], pa.timestamp("us", "UTC"))])
    assert comparable(times).to_pylist() == [round(day(1).timestamp() * 1_000_000)]
    dates = pa.chunked_array([pa.array([date(1970, 1, 3)])])
    assert comparable(dates).to_pylist() == [2]
    assert text_of(PartitionField("date", "d", 0, "d"), 2) == "1970-01-03"


def test_files_with_neighbouring_keys_are_written_together_up_to_a_number_of_rows() -> None:
    """Small files become fewer when they are written again, and keep narrow bounds."""
    files = [
        KnownFile(str(number), 100_000, 1, {}, {"id": number}, {"id": number})
        for number in range(5)
    ]
    shuffled = [files[number] for number in (3, 0, 4, 2, 1)]
    found = [[file.path for file in task] for task in tasks_of(shuffled, ["id"])]
    assert found == [["0", "1"], ["2", "3"], ["4"]]
    assert list(tasks_of([], ["id"])) == []


# ---- executors -----------------------------------------------------------------------------------


def to_write(folder: Path, schema: pa.Schema = SCHEMA, **arguments: Any) -> FilesToWrite:
    serialized = schema.serialize().to_pybytes()
    return FilesToWrite(folder=str(folder), prefix="", name="new", schema=serialized, **arguments)


def stored(folder: Path, name: str, rows: pa.Table) -> FileToRead:
    pq.write_table(rows, folder / name)
    return FileToRead(name, {})


def rewritten(function: RewrittenFiles) -> list[dict[str, Any]]:
    task = pa.RecordBatch.from_pydict({"id": list(range(len(function.lists)))})
    return [row for batch in function([task]) for row in batch.to_pylist()]


def test_an_executor_writes_only_the_files_again_that_lose_a_row(tmp_path: Path) -> None:
    """Files of one task become one file, and a file without a replaced row stays."""
    rows = [Change("a", number, 5, day(1), "9", False, number) for number in range(6)]
    files = [
        stored(tmp_path, str(number), table(rows[number : number + 2])) for number in (0, 2, 4)
    ]
    new = [Change("a", 1, 6, day(1), "10", False, 0), Change("a", 2, 4, day(1), "10", False, 0)]
    new.append(Change("a", 5, 6, day(1), "10", True, 0))
    function = RewrittenFiles(to_write(tmp_path), [files], COLUMNS, packed(table(new)))
    [result] = rewritten(function)
    assert (result["replaced"], result["late"]) == (["0", "4"], [1])
    [written] = result["written"]
    assert rows_of(pq.read_table(tmp_path / written["path"])) == [rows[0], rows[4]]


def test_an_executor_reads_and_writes_files_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are relative to the table's folder, or URLs in the same store."""
    # The local server has no certificate.
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    server = ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "aws_endpoint": f"http://{host}:{port}",
            "aws_access_key_id": "a",
            "aws_secret_access_key": "b",
            "aws_region": "us-east-1",
        }
        urlopen(Request(f"http://{host}:{port}/lake", method="PUT")).close()
        store = store_of("s3://lake/orders", options)
        rows = [Change("a", number, 5, day(1), "9", False, number) for number in range(4)]
        for name, own in (("data/x", rows[:2]), ("y", rows[2:])):
            sink = pa.BufferOutputStream()
            pq.write_table(table(own), sink)
            store.put(name, sink.getvalue().to_pybytes())
        new = [Change("a", number, 6, day(1), "10", False, 0) for number in (0, 3)]
        files = [FileToRead("data/x", {}), FileToRead("s3://lake/orders/y", {})]
        where = replace(to_write(Path()), folder="s3://lake/orders", options=options)
        function = RewrittenFiles(where, [files], COLUMNS, packed(table(new)))
        [result] = rewritten(function)
        with store.open(result["written"][0]["path"]) as written:
            assert rows_of(pq.read_table(written)) == rows[1:3]
    finally:
        server.stop()


def test_an_executor_writes_the_changes_without_those_that_came_late(tmp_path: Path) -> None:
    """The rows of a batch keep their order, and a late change is left out by its key."""
    new = [Change("a", number, 5, day(1), "9", False, number) for number in range(4)]
    late = table(new).select(COLUMNS.keys).take([2, 0])
    function = NewRows(to_write(tmp_path), COLUMNS.keys, packed(late))
    [described] = [row for batch in function(table(new).to_batches()) for row in batch.to_pylist()]
    assert rows_of(pq.read_table(tmp_path / described["path"])) == [new[1], new[3]]


def test_an_executor_restores_the_columns_that_a_file_has_only_in_its_partition(
    tmp_path: Path,
) -> None:
    """Delta's files have no partition columns, and an empty text of a key is null there."""
    rows = table([Change("", number, 5, day(1), "9", False, number) for number in range(2)])
    file = stored(tmp_path, "x", rows.drop_columns(["shop"]))._replace(values={"shop": None})
    new = table([Change("", 1, 6, day(1), "10", False, 0)])
    function = RewrittenFiles(
        to_write(tmp_path, partition_by=FIELDS, keeps_columns=True), [[file]], COLUMNS, packed(new)
    )
    [result] = rewritten(function)
    assert result["replaced"] == ["x"]
    assert rows_of(pq.read_table(tmp_path / result["written"][0]["path"])) == rows_of(rows)[:1]


def test_older_files_are_read_with_the_columns_that_the_table_has_now() -> None:
    """A column is found by its id, and missing ones are null, in structs too."""

    def with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    inner = with_id("x", pa.int64(), 4)
    old = pa.schema([with_id("a", pa.int32(), 1), with_id("s", pa.struct([inner]), 3)])
    now = pa.schema(
        [
            with_id("b", pa.int64(), 1),
            with_id("a", pa.string(), 2),
            with_id("s", pa.struct([with_id("y", pa.string(), 5), inner]), 3),
        ]
    )
    rows = pa.table([pa.array([7], pa.int32()), pa.array([{"x": 1}], old[1].type)], schema=old)
    found = conformed(rows, now, {})
    assert found.schema.equals(now)
    assert found.to_pylist() == [{"b": 7, "a": None, "s": {"y": None, "x": 1}}]
    renamed = pa.schema([with_id("s", pa.struct([with_id("z", pa.int64(), 4)]), 3)])
    with pytest.raises(ValueError, match="'z' of the column 's' is called 'x' in an older file"):
        conformed(rows, renamed, {})


def test_the_functions_for_executors_need_no_pullstream(tmp_path: Path) -> None:
    """The pickled functions run in a process that cannot import pullstream."""
    rows = table([Change("a", number, 5, day(1), "9", False, number) for number in range(2)])
    files = [stored(tmp_path, "x", rows)]
    new = table([Change("a", 1, 6, day(1), "10", False, 0)])
    functions = (
        RewrittenFiles(to_write(tmp_path), [files], COLUMNS, packed(new)),
        NewRows(to_write(tmp_path), COLUMNS.keys, packed(new.select(COLUMNS.keys))),
    )
    (tmp_path / "pickled").write_bytes(cloudpickle.dumps(functions))  # type: ignore[no-untyped-call]
    code = (
        "import sys; sys.modules['pullstream'] = None\n"
        "import pickle, pyarrow as pa\n"
        "first, second = pickle.load(open(sys.argv[1], 'rb'))\n"
        "task = pa.RecordBatch.from_pydict({'id': [0]})\n"
        "print([row['replaced'] for batch in first([task]) for row in batch.to_pylist()])\n"
        "print(sum(batch.num_rows for batch in second([])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pickled")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["[['x']]", "0"]
