"""Partitions contain each row once, for all ways of dividing and sending rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema

from pullstream.columns.record_batch import row_schema
from pullstream.spark.datasource.options import BatchOptions, Layout, StreamOptions
from pullstream.spark.datasource.partition import (
    ChosenRows,
    FilePartition,
    InlinePartition,
    PartitionReader,
    RowRange,
    with_subscription,
)
from pullstream.spark.datasource.planning import (
    SENT_BYTES,
    PlannedRows,
    divided,
    plan,
    planned_rows,
    tasks_for,
)
from pullstream.spark.datasource.registration import register
from pullstream.spark.datasource.source import message_columns
from pullstream.spark.datasource.spark_batch_reader import PubSubBatchReader
from pullstream.spark.datasource.stream_reader import PubSubStreamReader
from pullstream.spark.protocol.layout import Manifest, Part, Plan, Segment, segment_file
from pullstream.spark.stores import LocalFolder

OPTIONS = {"subscription": "projects/p/subscriptions/sub", "spoolDir": "/spool"}


def rows(ids: list[str], keys: list[str]) -> pa.RecordBatch:
    """Return rows with these ids and keys, and nulls in all other columns."""
    columns = {"message_id": pa.array(ids), "ordering_key": pa.array(keys)}
    return pa.record_batch(
        [columns.get(field.name, pa.nulls(len(ids), field.type)) for field in row_schema()],
        schema=row_schema(),
    )


def segment(folder: Path, number: int, batches: list[pa.RecordBatch]) -> PlannedRows:
    """Write a segment as a receiver does, and plan all its rows."""
    path = f"{number}.arrow"
    schema = batches[0].schema.with_metadata({b"pullstream": b"{}"})
    with pa.ipc.new_file(str(folder / path), schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return PlannedRows((str(folder), {}, b"", 7), path, sum(batch.num_rows for batch in batches))


@pytest.fixture
def segments(tmp_path: Path) -> list[PlannedRows]:
    """Return two segments, of three Arrow batches and of one, with ids 0 to 39."""
    batches = [
        rows(
            [str(i) for i in range(start, start + 10)], [f"k{i % 3}" if i % 4 else "" for i in ids]
        )
        for start in range(0, 40, 10)
        for ids in [range(start, start + 10)]
    ]
    return [segment(tmp_path, 1, batches[:3]), segment(tmp_path, 2, batches[3:])]


def batches_of(partition: object) -> list[pa.RecordBatch]:
    assert isinstance(partition, FilePartition | InlinePartition)
    return list(partition.batches())


def ids_of(partition: object) -> list[int]:
    found = [batch.column("message_id").to_pylist() for batch in batches_of(partition)]
    return [int(one) for ids in found for one in ids]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    ("wanted", "lengths"),
    [(None, [40]), (1, [40]), (2, [20, 20]), (3, [13, 13, 14]), (8, [5] * 8), (99, [1] * 40)],
)
def test_rows_of_a_batch_are_divided_among_spark_partitions_in_contiguous_ranges(
    segments: list[PlannedRows], wanted: int | None, lengths: list[int], inline: bool
) -> None:
    """There are as many runs as requested, of similar length, in order, across segments."""
    parts = [ids_of(part) for part in plan(segments, Layout(partitions=wanted, inline=inline))]
    assert [len(part) for part in parts] == lengths
    assert [one for part in parts for one in part] == list(range(40))


@pytest.mark.parametrize(
    ("rows", "cores", "tasks"),
    [
        (10_000, 1, 1),
        (10_000, 2, 2),
        (10_000, 64, 2),
        (50_000, 1, 2),
        (50_000, 8, 8),
        (50_000, 64, 10),
        (1_000_000, 8, 40),
        (1, 8, 1),
    ],
)
def test_a_batch_is_divided_so_that_all_cores_have_work_unless_its_tasks_would_be_tiny(
    rows: int, cores: int, tasks: int
) -> None:
    """A task has 5,000 to 25,000 rows."""
    assert tasks_for(rows, cores) == tasks


def test_spark_tasks_that_contain_rows_stay_below_the_task_size_limit(tmp_path: Path) -> None:
    """There may be more tasks than requested. A task has at least one row, even a large one."""
    large = [b"x" * 400] * 20 + [b"x" * 10] * 80
    batch = rows([str(i) for i in range(100)], [""] * 100)
    file = segment(tmp_path, 1, [batch.set_column(1, "data", pa.array(large))])
    with patch("pullstream.spark.datasource.planning.INLINE_BYTES", 2500):
        parts = plan([file], Layout(partitions=2, inline=True))
        shares = plan([file], Layout(partitions=2, inline=True, by_key=True))
        alone = plan([file], Layout(partitions=100, inline=True))
    assert [one for part in parts for one in ids_of(part)] == list(range(100))
    assert all(batch.nbytes <= 2500 for part in parts for batch in batches_of(part))
    assert len(shares) > 2
    assert sorted(one for part in shares for one in ids_of(part)) == list(range(100))
    assert len(alone) == 100
    assert len(plan([file], Layout(partitions=2, inline=False))) == 2


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("wanted", [None, "projects/p/subscriptions/s"])
@pytest.mark.parametrize("written", [None, "projects/p/subscriptions/s"])
def test_spool_rows_written_with_old_columns_are_read_by_spark_with_the_current_columns(
    tmp_path: Path, written: str | None, wanted: str | None, inline: bool, by_key: bool
) -> None:
    """A segment of an earlier run may have been written with other columns."""
    batch = with_subscription(written, rows(["1", "2"], ["", "k"]))
    assert batch.schema == row_schema(written is not None)
    layout = Layout(inline=inline, by_key=by_key, subscription=wanted)
    for part in plan([segment(tmp_path, 1, [batch])], layout):
        for found in batches_of(part):
            assert found.schema == row_schema(wanted is not None)
            if wanted:
                assert found.column("subscription").to_pylist() == [wanted] * found.num_rows


@pytest.mark.parametrize("sent_bytes", [0, SENT_BYTES])
@pytest.mark.parametrize("inline", [True, False])
def test_all_rows_of_an_ordering_key_are_in_one_spark_partition_in_order(
    segments: list[PlannedRows], inline: bool, sent_bytes: int
) -> None:
    """The rows of a key are in one partition in order, and rows without a key are spread."""
    layout = Layout(partitions=3, by_key=True, inline=inline)
    with patch("pullstream.spark.datasource.planning.SENT_BYTES", sent_bytes):
        planned = plan(segments[:1], layout)
    is_sent = inline or sent_bytes > 0
    assert {type(part) for part in planned} == {InlinePartition if is_sent else FilePartition}
    parts = [ids_of(part) for part in planned]
    assert sorted(one for part in parts for one in part) == list(range(30))
    assert all(part == sorted(part) for part in parts)
    for key in range(3):
        of_key = {i for i in range(30) if i % 4 and i % 3 == key}
        assert [bool(of_key & set(part)) for part in parts].count(True) == 1
    assert all(any(i % 4 == 0 for i in part) for part in parts)


@pytest.mark.parametrize("sent_bytes", [0, SENT_BYTES])
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("partitions", [2, 30])
def test_the_division_by_ordering_key_hashes_and_reads_each_row_once_for_any_number_of_partitions(
    segments: list[PlannedRows], partitions: int, inline: bool, sent_bytes: int
) -> None:
    """Each key is hashed at most once in each Arrow batch."""
    hashed: list[bytes] = []
    read: list[int] = []
    chosen: list[int] = []

    def count_hash(key: bytes) -> int:
        hashed.append(key)
        return crc32(key)

    def counted_read(rows: RowRange) -> Iterator[pa.RecordBatch]:
        for batch in read_rows(rows):
            read.append(batch.num_rows)
            yield batch

    def counted_choice(rows: ChosenRows) -> Iterator[pa.RecordBatch]:
        for batch in choose(rows):
            chosen.append(batch.num_rows)
            yield batch

    read_rows, choose = RowRange.read, ChosenRows.read
    with (
        patch("pullstream.spark.datasource.planning.crc32", count_hash),
        patch("pullstream.spark.datasource.planning.SENT_BYTES", sent_bytes),
        patch.object(RowRange, "read", counted_read),
        patch.object(ChosenRows, "read", counted_choice),
    ):
        parts = plan(segments[:1], Layout(partitions=partitions, by_key=True, inline=inline))
        assert len(parts) == partitions
        assert sorted(one for part in parts for one in ids_of(part)) == list(range(30))
    # At most four Arrow batches with three keys each.
    assert 3 <= len(hashed) <= 4 * 3
    assert sum(read) == 30
    assert sum(chosen) == (0 if inline or sent_bytes else 30)


@pytest.mark.parametrize("inline", [True, False])
def test_a_spark_partition_is_sent_without_the_source_code_of_its_classes(
    segments: list[PlannedRows], inline: bool
) -> None:
    """A partition is some hundred bytes larger than its rows, and the reader has the code.

    Each task gets and unpickles the reader, so it is small, too.
    """
    assert len(cloudpickle.dumps(PartitionReader())) < 25_000  # type: ignore[no-untyped-call]
    for by_key in (True, False):
        with patch("pullstream.spark.datasource.planning.SENT_BYTES", 0):
            layout = Layout(partitions=3, by_key=by_key, inline=inline)
            planned = plan(segments, layout)
        for part in planned:
            sent: bytes = cloudpickle.dumps(part)  # type: ignore[no-untyped-call]
            rows = len(part.stream) if isinstance(part, InlinePartition) else 0
            assert len(sent) < rows + 700
            received = list(PartitionReader().read(cloudpickle.loads(sent)))
            assert received == batches_of(part)


@pytest.mark.parametrize("partitions", [1, 3, 40])
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("by_key", [True, False])
def test_rows_that_a_plan_leaves_out_are_in_no_spark_partition(
    segments: list[PlannedRows], by_key: bool, inline: bool, partitions: int
) -> None:
    """They may be in any place of a segment. A segment without other rows is not read."""
    settings = StreamOptions.parse(OPTIONS, files_are_shared=True).settings
    left_out = [0, 3, 4, 9, 10, 28, 29]
    parts = [
        Part(Segment("a", 1), 30, left_out),
        Part(Segment("b", 1), 10, list(range(10))),
    ]
    (rows,) = planned_rows(settings, Plan(1, 1, "", parts))
    layout = Layout(partitions=partitions, by_key=by_key, inline=inline)
    with patch("pullstream.spark.datasource.planning.SENT_BYTES", 0):
        planned = plan([rows._replace(spool=segments[0].spool, path=segments[0].path)], layout)
    found = [one for part in planned for one in ids_of(part)]
    assert sorted(found) == [one for one in range(30) if one not in left_out]


@pytest.mark.parametrize("inline", [True, False])
def test_the_rows_of_a_key_in_several_segments_are_in_the_order_of_their_publishing(
    tmp_path: Path, inline: bool
) -> None:
    """The segments of a receiver that was killed may come later than newer ones."""
    times = [pa.array(each, pa.timestamp("us", "UTC")) for each in ([2, 4], [1, 3])]
    column = row_schema().get_field_index("publish_time")
    written = [
        segment(tmp_path, number, [rows(ids, ["k", "k"]).set_column(column, "publish_time", each)])
        for number, (ids, each) in enumerate(zip((["2", "4"], ["1", "3"]), times, strict=True))
    ]
    planned = plan(written, Layout(partitions=3, by_key=True, inline=inline))
    assert [ids for part in planned if (ids := ids_of(part))] == [[1, 2, 3, 4]]


def test_a_missing_or_damaged_segment_is_named_by_the_task_that_reads_it(tmp_path: Path) -> None:
    """With its batch, its messages, and the command that reads the batch without it."""
    path = "seg/r/000000000003.arrow"
    store, spool = LocalFolder(tmp_path), (str(tmp_path), dict[str, str](), b"", 7)
    command = f"pullstream spool skip 7 r/000000000003 --spool {tmp_path}"
    missing = rf"segment {path} of plan 7 is not in .*{tmp_path}.*has the ids.*{command}"
    with pytest.raises(FileNotFoundError, match=missing):
        list(RowRange(spool, path, 0, 1).read())
    ids = [str(number) for number in range(9)]
    manifest = Manifest(Segment("r", 3), ids, 1)
    store.create(manifest.segment.manifest, manifest.text("n"))
    whole = segment_file(rows(ids, ["k"] * 9), "n")
    for damaged in (b"damaged" * 100, whole[:-9], whole[:400]):
        store.put(path, damaged)
        message = rf"{path} of plan 7 in .* is damaged.*0, 1, 2, 3, 4 and 4 more.*{command}"
        with pytest.raises(OSError, match=message):
            list(ChosenRows(spool, path, bytes(4)).read())


def test_a_spark_batch_without_rows_has_one_empty_partition() -> None:
    """Spark requires a partition even if the lost rows are allowed to be missing."""
    assert [ids_of(part) for part in plan([], Layout())] == [[]]


@given(keys=st.lists(st.text(max_size=3), max_size=50), of=st.integers(1, 7))
def test_spark_partitions_contain_each_row_once_and_all_rows_of_an_ordering_key_together(
    keys: list[str], of: int
) -> None:
    """Each row is in one share, and all rows of a key are in the same one."""
    batch = rows([str(i) for i in range(len(keys))], keys)
    order, runs = divided(batch, of)
    assert [number for number, _, _ in runs] == sorted({number for number, _, _ in runs})
    shares = [batch.take(order[first:last]) for _, first, last in runs]
    ids = [share.column("message_id").to_pylist() for share in shares]
    assert sorted(int(one) for share in ids for one in share) == list(range(len(keys)))
    owners = [set(share.column("ordering_key").to_pylist()) - {""} for share in shares]
    assert sum(len(owner) for owner in owners) == len(set(keys) - {""})


@pytest.mark.parametrize("included", [True, False])
def test_the_arrow_schema_of_message_rows_equals_the_schema_declared_to_spark(
    included: bool,
) -> None:
    """Spark compares Arrow schemas field by field and refuses other rows."""
    columns = message_columns({"includeSubscription": str(included)})
    assert to_arrow_schema(columns, timezone="UTC").equals(row_schema(included))


READ_ELSEWHERE = """
import sys
from importlib.abc import MetaPathFinder

class Nothing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("pullstream", "pullstream_protocol", "grpc", "google"):
            raise ModuleNotFoundError(f"{name} is not installed here")

sys.meta_path.insert(0, Nothing())
from pyspark.cloudpickle import load
reader, source, partition = load(sys.stdin.buffer)
print(sum(batch.num_rows for batch in reader.read(partition)), source.name())
"""


@pytest.mark.parametrize("kind", ["stream", "batch"])
@pytest.mark.parametrize("inline", [True, False])
def test_spark_partition_objects_can_be_unpickled_in_an_executor_without_pullstream(
    segments: list[PlannedRows], inline: bool, kind: str
) -> None:
    """Objects that Spark sends to an executor need only pyspark and pyarrow."""
    partition = plan(segments, Layout(inline=inline))[0]
    session = Mock()
    session.sparkContext.master = "spark://host:7077" if inline else "local[2]"
    session.sparkContext.defaultParallelism = 2
    register(session)
    source = session.dataSource.register.call_args[0][0](OPTIONS)
    reader = (
        PubSubStreamReader(StreamOptions.parse(OPTIONS, files_are_shared=True))
        if kind == "stream"
        else PubSubBatchReader(BatchOptions.parse(OPTIONS, files_are_shared=True))
    )
    sent = cloudpickle.dumps((reader, source, partition))  # type: ignore[no-untyped-call]
    command = [sys.executable, "-c", READ_ELSEWHERE]
    done = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("40 pubsub\n", "")
