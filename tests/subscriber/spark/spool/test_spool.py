"""The spool keeps segments for one process and one subscription, within its limits."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.session.settings import IngestSettings
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.spool import LOCK_WAIT, Spool
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock, OffsetClock
from tests.subscriber.spark.session.messages import batch, encoded


class FullDisk(AtomicFiles):
    def write(self, path: Path, data: memoryview | bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class HurriedClock(OffsetClock):
    """A clock whose time advances with each look."""

    def monotonic(self) -> float:
        self.advance(LOCK_WAIT / 4)
        return super().monotonic()


def spool_in(
    folder: Path, *, disk: AtomicFiles | None = None, clock: Clock = SYSTEM_CLOCK, **changes: Any
) -> Spool:
    values = {"subscription": "projects/p/subscriptions/one", "spool_dir": folder, **changes}
    return Spool(IngestSettings(**values), disk or AtomicFiles(), clock)


def write(spool: Spool, seq: int, rows: int = 3) -> None:
    data, batches = encoded(batch([f"{seq}.{row}" for row in range(rows)]))
    spool.write(seq, rows, batches, data)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    one = spool_in(tmp_path)
    one.open()
    yield one
    one.close()


def test_spool_segments_are_read_unchanged_by_the_next_process(
    tmp_path: Path, spool: Spool
) -> None:
    """Segments are unchanged, and removed ones are gone."""
    for seq in (1, 2, 3):
        write(spool, seq)
    spool.remove(2)
    spool.remove(9)
    kept = [spool.get(1), spool.get(3)]
    spool.close()
    other = spool_in(tmp_path)
    other.open()
    assert other.numbers == [1, 3]
    assert [other.get(1), other.get(3)] == kept
    assert other.size == sum(one.path.stat().st_size for one in kept)
    other.close()


def test_a_crash_during_the_write_of_a_spool_segment_leaves_no_segment(tmp_path: Path) -> None:
    """A half-written segment never had its final name."""
    (tmp_path / "seg-00000000000000000001.arrow.tmp").write_bytes(b"half")
    spool = spool_in(tmp_path)
    spool.open()
    assert spool.numbers == []
    spool.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LOCK", "meta.json"]


def test_the_spool_does_not_delete_files_of_the_user_in_its_folder(tmp_path: Path) -> None:
    """A file may be named like an unfinished segment."""
    (tmp_path / "notes.tmp").write_text("mine")
    (tmp_path / "folder.tmp").mkdir()
    spool = spool_in(tmp_path)
    spool.open()
    spool.close()
    assert (tmp_path / "notes.tmp").read_text() == "mine"
    assert (tmp_path / "folder.tmp").is_dir()


def test_discarding_spool_segments_after_a_number_keeps_segments_up_to_that_number(
    tmp_path: Path, spool: Spool
) -> None:
    """Segments before the discarded ones stay."""
    for seq in (1, 2, 3):
        write(spool, seq)
    spool.discard_after(1)
    assert spool.numbers == [1]
    spool.close()
    other = spool_in(tmp_path)
    other.open()
    assert other.numbers == [1]
    other.close()


def test_the_spool_stores_the_highest_number_of_a_discarded_segment_for_later_processes(
    tmp_path: Path, spool: Spool
) -> None:
    """Later processes know the number. It never goes back, and what is removed does not count."""
    write(spool, 9)
    spool.remove(9)
    spool.discard_after(0)
    assert spool.newest_discarded == 0
    for seq in (1, 2, 3):
        write(spool, seq)
    spool.discard_after(1)
    assert spool.newest_discarded == 3
    spool.discard_after(0)
    spool.close()
    other = spool_in(tmp_path)
    other.open()
    assert (other.newest_discarded, other.numbers) == (3, [])
    other.close()


def test_a_spool_segment_is_not_discarded_if_its_number_cannot_be_recorded_on_disk(
    tmp_path: Path,
) -> None:
    """Otherwise the number could be used again."""
    spool = spool_in(tmp_path)
    spool.open()
    write(spool, 7)
    spool.close()
    spool = spool_in(tmp_path, disk=FullDisk())
    spool.open()
    with pytest.raises(SpoolError, match=r"segment 7 is discarded.*No space left.*Nothing is lost"):
        spool.discard_after(6)
    assert spool.get(7).rows == 3
    spool.close()


def test_a_failed_deletion_of_a_discarded_spool_segment_raises_an_error(tmp_path: Path) -> None:
    """A segment that stayed would be mistaken for committed later."""

    class Stubborn(AtomicFiles):
        def delete(self, path: Path) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

    spool = spool_in(tmp_path, disk=Stubborn())
    spool.open()
    write(spool, 7)
    with pytest.raises(SpoolError, match=r"segment 7 .*Read-only.*never committed"):
        spool.discard_after(6)
    spool.close()


def test_the_error_for_a_missing_spool_segment_names_it_and_lists_the_existing_segments(
    tmp_path: Path, spool: Spool
) -> None:
    """The error lists the existing segments."""
    write(spool, 4)
    with pytest.raises(MissingSegment, match=r"segment 3 .*\[4\]"):
        spool.get(3)
    spool.get(4).path.unlink()
    with pytest.raises(MissingSegment):
        spool.get(4)


def test_a_damaged_spool_segment_counts_as_missing_and_its_file_is_not_deleted(
    tmp_path: Path, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    """The damaged file stays in place, and a warning names it."""
    write(spool, 1)
    path = spool.get(1).path
    spool.close()
    path.write_bytes(path.read_bytes()[:100])
    other = spool_in(tmp_path)
    other.open()
    with pytest.raises(MissingSegment):
        other.get(1)
    other.close()
    assert path.exists()
    assert "damaged" in caplog.text


def test_a_spark_spool_is_locked_for_one_process_at_a_time(tmp_path: Path, spool: Spool) -> None:
    """A second process waits for the first for a limited time, and the error names the first."""
    other = spool_in(tmp_path, clock=HurriedClock())
    with pytest.raises(SpoolError, match=f"in use by another process .*{os.getpid()}"):
        other.open()


def test_a_process_waits_for_the_spool_lock_of_a_process_that_is_about_to_end(
    tmp_path: Path, spool: Spool
) -> None:
    """Such a process was stopped, and its query is restarted at once."""
    waits = threading.Event()

    class TellingClock(OffsetClock):
        def monotonic(self) -> float:
            waits.set()
            return super().monotonic()

    other = spool_in(tmp_path, clock=TellingClock())
    opening = threading.Thread(target=other.open)
    opening.start()
    assert waits.wait(LOCK_WAIT)
    spool.close()
    opening.join(LOCK_WAIT)
    assert not opening.is_alive()
    write(other, 1)
    other.close()


def test_an_ingest_session_refuses_the_spool_of_another_subscription(
    tmp_path: Path, spool: Spool
) -> None:
    """Message ids of another subscription may be equal and mean other messages."""
    spool.close()
    other = spool_in(tmp_path, subscription="projects/p/subscriptions/two")
    with pytest.raises(SpoolError, match=r"belongs to .*/one, not to .*/two"):
        other.open()
    # The failed open has released its lock.
    spool.open()


@pytest.mark.parametrize(
    ("meta", "error"),
    [(b"{", "damaged"), (b"[]", "damaged"), (b'{"format": 1}', "damaged"), (b'{"format": 2}', "2")],
)
def test_an_ingest_session_refuses_a_spool_written_by_an_unknown_version(
    tmp_path: Path, meta: bytes, error: str
) -> None:
    """For example, a later version wrote it."""
    (tmp_path / "meta.json").write_bytes(meta)
    with pytest.raises(SpoolError, match=error):
        spool_in(tmp_path).open()


def test_the_error_for_a_spool_folder_that_cannot_be_made_names_the_folder(tmp_path: Path) -> None:
    """The error names the folder."""
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match=r"cannot use .*file"):
        spool_in(tmp_path / "file" / "spool").open()


def test_the_spools_error_for_a_full_disk_names_what_could_not_be_written(tmp_path: Path) -> None:
    """The new segment does not exist."""
    spool = spool_in(tmp_path)
    spool.open()
    spool.close()
    spool = spool_in(tmp_path, disk=FullDisk())
    spool.open()
    with pytest.raises(SpoolError, match=r"3 messages .*No space left.*Nothing is lost"):
        write(spool, 1)
    assert spool.numbers == []
    spool.close()


def test_the_spool_refuses_a_segment_that_would_exceed_its_size_limit(tmp_path: Path) -> None:
    """Removed segments make room again."""
    data, _ = encoded(batch(["1.0", "1.1", "1.2"]))
    spool = spool_in(tmp_path, max_spool_bytes=len(data) + 10)
    spool.open()
    write(spool, 1)
    with pytest.raises(SpoolError, match=f"but {len(data)} of the spool's .* are in use"):
        write(spool, 2)
    spool.remove(1)
    write(spool, 2)
    spool.close()
