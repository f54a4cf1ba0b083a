"""A segment returns the written rows, whole or in parts, at each reading."""

from __future__ import annotations

import pickle
from pathlib import Path
from struct import pack

import pyarrow as pa
import pytest

from pullstream.spark.rows.rows import SCHEMA, row_schema
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.segment import (
    ACK_ID,
    BATCH_BYTES,
    BATCH_ROWS,
    SegmentFile,
    from_bytes,
)
from tests.subscriber.spark.session.messages import batch, encoded


def written(folder: Path, rows: int, *, data: bytes = b"") -> SegmentFile:
    content, _ = encoded(batch([str(number) for number in range(rows)], data=data))
    AtomicFiles().write(folder / "seg", content)
    return SegmentFile.open(folder / "seg", 7)


def ids(batches: list[pa.RecordBatch]) -> list[str]:
    return [value for one in batches for value in one.column("message_id").to_pylist()]


def test_a_spool_segment_reports_its_number_of_rows_arrow_batches_and_bytes(tmp_path: Path) -> None:
    """The size has rows, Arrow batches and bytes, and `encode` returns the same batches."""
    rows = 2 * BATCH_ROWS + 1
    segment = written(tmp_path, rows)
    assert (segment.seq, segment.rows, segment.batches) == (7, rows, 3)
    assert segment.size == (tmp_path / "seg").stat().st_size
    assert encoded(batch([str(number) for number in range(rows)]))[1] == 3


def test_large_messages_are_written_in_small_arrow_batches_of_a_spool_segment(
    tmp_path: Path,
) -> None:
    """A reader holds a batch in memory. One row may be larger than the limit."""
    segment = written(tmp_path, 6, data=b"x" * (BATCH_BYTES // 2))
    # Two rows do not fit in a batch together with their ids.
    assert segment.batches == 6
    assert ids(list(segment.read())) == [str(number) for number in range(6)]
    assert written(tmp_path, 6, data=b"x" * (BATCH_BYTES // 4)).batches == 2
    assert written(tmp_path, 1, data=b"x" * (BATCH_BYTES + 1)).batches == 1


def test_the_parts_of_a_spool_segment_contain_each_row_once_and_in_order(tmp_path: Path) -> None:
    """Each row is there once and in order, without the lease's ack id."""
    segment = written(tmp_path, 3 * BATCH_ROWS)
    whole = list(segment.read())
    assert ids(whole) == [str(number) for number in range(3 * BATCH_ROWS)]
    assert {tuple(one.schema.names) for one in whole} == {tuple(SCHEMA.names)}
    for step in (1000, BATCH_ROWS, 5000):
        starts = range(0, segment.rows, step)
        parts = [one for first in starts for one in segment.read(first, first + step)]
        assert ids(parts) == ids(whole)
    assert list(segment.read(BATCH_ROWS)) == whole[1:]
    assert ids(list(segment.read(4, 7))) == ["4", "5", "6"]
    assert list(segment.read(segment.rows)) == []


def test_chosen_rows_of_a_spool_segment_can_be_read(tmp_path: Path) -> None:
    """The rows come in the order of the numbers, and Arrow batches without one are left out."""
    segment = written(tmp_path, 3 * BATCH_ROWS)
    numbers = [pack("2i", 7, 3), b"", pack("i", 5)]
    found = list(segment.read_chosen(numbers))
    assert [ids([one]) for one in found] == [["7", "3"], [str(2 * BATCH_ROWS + 5)]]
    assert {tuple(one.schema.names) for one in found} == {tuple(SCHEMA.names)}
    segment.path.unlink()
    with pytest.raises(FileNotFoundError, match="set transport to inline"):
        list(segment.read_chosen(numbers))


def test_the_rows_of_a_spool_segment_can_be_sent_to_an_executor_as_bytes(tmp_path: Path) -> None:
    """A reader that cannot see the file gets the bytes of all or some rows, with the schema."""
    segment = written(tmp_path, 3 * BATCH_ROWS)
    assert list(from_bytes(segment.to_bytes())) == list(segment.read())
    assert list(from_bytes(segment.to_bytes(100, 200))) == list(segment.read(100, 200))
    assert pa.ipc.open_stream(segment.to_bytes(0, 0)).schema == SCHEMA
    assert pickle.loads(pickle.dumps(segment)) == segment


def test_rows_read_from_a_spool_segment_stay_valid_if_its_file_is_deleted(tmp_path: Path) -> None:
    """The file may be deleted while a slow task still has its rows in memory."""
    segment = written(tmp_path, 10)
    (rows,) = segment.read()
    segment.path.unlink()
    rows.validate(full=True)
    assert ids([rows]) == [str(number) for number in range(10)]


def test_a_spool_segment_stores_the_ack_ids_of_its_messages(tmp_path: Path) -> None:
    """The next process finds them by message id."""
    assert written(tmp_path, 3).leases() == {"0": "0/1", "1": "1/1", "2": "2/1"}


def test_rows_of_a_spool_segment_have_the_subscription_before_the_ack_id_if_configured(
    tmp_path: Path,
) -> None:
    """The ack id follows after it, as in all segments."""
    data, _ = encoded(batch(["a"]), "projects/p/subscriptions/s")
    assert pa.ipc.open_file(data).schema.names == [*row_schema(True).names, ACK_ID]


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"x" * 1000])
def test_the_spool_refuses_a_file_that_is_not_a_complete_segment(
    tmp_path: Path, content: bytes
) -> None:
    """For example, half a file is refused."""
    (tmp_path / "seg").write_bytes(content)
    with pytest.raises(pa.ArrowInvalid):
        SegmentFile.open(tmp_path / "seg", 1)


def test_a_spool_segment_knows_the_publish_time_of_its_oldest_message(tmp_path: Path) -> None:
    """The oldest message may be in any of the segment's Arrow batches."""
    count = 2 * BATCH_ROWS
    times = [1000.0 + number for number in range(count)]
    times[-1] = 7.25
    content, _ = encoded(batch([str(number) for number in range(count)], published=times))
    AtomicFiles().write(tmp_path / "seg", content)
    assert SegmentFile.open(tmp_path / "seg", 1).oldest_publish_time == 7.25
