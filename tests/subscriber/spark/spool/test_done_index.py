"""The done index remembers committed messages across crashes for a limited time."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from pullstream.spark.errors import SpoolError
from pullstream.spark.session.settings import IngestSettings
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.done_index import DoneIndex
from pullstream_protocol.clock import ManualClock


class FullDisk(AtomicFiles):
    def append(self, path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def index_in(
    folder: Path, clock: ManualClock | None = None, disk: AtomicFiles | None = None, **changes: Any
) -> DoneIndex:
    """Return an index as a new process finds it."""
    settings = IngestSettings(
        subscription="projects/p/subscriptions/one", spool_dir=folder, **changes
    )
    index = DoneIndex(settings, disk or AtomicFiles(), clock or ManualClock())
    index.load()
    return index


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("done-*.ids"))


def test_message_ids_in_the_index_of_done_messages_are_known_in_the_next_process(
    tmp_path: Path,
) -> None:
    """The index has every id of every segment, with any characters."""
    index = index_in(tmp_path)
    index.add(1, [1, 2])
    index.add(2, ['"\n\\', "ü"])
    for one in (index, index_in(tmp_path)):
        assert len(one) == 4
        assert all(key in one for key in (1, 2, '"\n\\', "ü"))
        assert 3 not in one
        assert one.isdisjoint([3, 4])
        assert not one.isdisjoint([3, 2])
        assert one.size == sum(path.stat().st_size for path in files(tmp_path))


def test_the_index_of_done_messages_knows_which_batches_were_committed(tmp_path: Path) -> None:
    """A later process knows them too, as long as it knows their messages."""
    index = index_in(tmp_path)
    assert (index.newest, index.knows(0)) == (0, False)
    index.add(3, [1])
    index.add(7, [])
    for one in (index, index_in(tmp_path)):
        assert one.newest == 7
        assert [seq for seq in range(9) if one.knows(seq)] == [3, 7]


def test_an_incomplete_last_line_in_the_index_of_done_messages_is_ignored(tmp_path: Path) -> None:
    """The segment still exists and is added again. Later lines survive another crash."""
    index_in(tmp_path).add(1, [1])
    (path,) = files(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"seq":2,"time":1.0,"ids":["2"')
    index = index_in(tmp_path)
    assert (1 in index, 2 in index) == (True, False)
    index.add(2, [2])
    again = index_in(tmp_path)
    assert (1 in again, 2 in again) == (True, True)


def test_a_file_of_the_index_of_done_messages_without_a_complete_line_is_removed(
    tmp_path: Path,
) -> None:
    """The crash came with its first line."""
    (tmp_path / "done-00000000000000000001.ids").write_bytes(b'{"seq":')
    index = index_in(tmp_path)
    assert (len(index), files(tmp_path)) == (0, [])
    index.add(1, [1])
    assert 1 in index_in(tmp_path)


def test_a_damaged_line_in_the_index_of_done_messages_raises_an_error_with_its_number(
    tmp_path: Path,
) -> None:
    """The line may have ids of messages that would count as new."""
    path = tmp_path / "done-00000000000000000001.ids"
    path.write_bytes(b'{"seq":1,"time":1.0,"ids":["1"]}\nnonsense\n')
    with pytest.raises(SpoolError, match=f"{path}, line 2, is damaged"):
        index_in(tmp_path)


def test_the_index_of_done_messages_is_unchanged_after_a_full_disk(tmp_path: Path) -> None:
    """The memory and the file are as before."""
    index = index_in(tmp_path, disk=FullDisk())
    with pytest.raises(OSError, match="No space left"):
        index.add(1, [1])
    assert len(index) == 0
    assert index.size == 0


def test_the_index_of_done_messages_forgets_message_ids_after_the_deduplication_window(
    tmp_path: Path,
) -> None:
    """Ids are removed soon after the window, from the disk as well."""
    clock = ManualClock()
    index = index_in(tmp_path, clock, dedup_window=800)
    for number in range(40):
        index.add(number, [str(number)])
        known = [one for one in range(40) if str(one) in index]
        assert set(range(max(number - 8, 0), number + 1)) <= set(known)
        assert len(known) <= 11
        clock.advance(100)
    assert len(files(tmp_path)) <= 11
    clock.advance(10_000)
    assert len(index_in(tmp_path, clock, dedup_window=800)) <= 2


def test_the_index_of_done_messages_forgets_the_oldest_message_ids_beyond_its_limit(
    tmp_path: Path,
) -> None:
    """The oldest ids are removed first, and at least the configured number stays."""
    index = index_in(tmp_path, dedup_messages=80)
    for number in range(100):
        index.add(number, [f"{number}.{row}" for row in range(5)])
        assert all(f"{one}.0" in index for one in range(max(number - 15, 0), number + 1))
        assert len(index) <= 80 + 2 * 80 / 8 + 5
    assert len(files(tmp_path)) <= 10
    assert len(index_in(tmp_path, dedup_messages=80)) == len(index)


def test_message_ids_added_twice_to_the_done_messages_index_are_stored_once(tmp_path: Path) -> None:
    """The crash came between the line and the end of the segment."""
    index_in(tmp_path).add(2, [1, 2])
    index = index_in(tmp_path)
    index.add(2, [1, 2])
    index.add(1, [2, 3])
    assert len(index) == len(index_in(tmp_path)) == 3
    noted = [json.loads(line)["ids"] for line in files(tmp_path)[0].read_text().splitlines()]
    assert noted == ["1\n2", [], "3"]
