"""The uncommitted segments of a spool, as another process sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from pullstream.spark.protocol.layout import Manifest
from pullstream.spark.protocol.waiting_segments import WaitingSegments
from pullstream.spark.stores import LocalFolder
from tests.subscriber.spark.protocol.files import segment, write_plan, write_segment


def seen(looks: WaitingSegments, committed: int) -> list[tuple[int | None, int, int]]:
    return [(one.plan, one.segment.number, one.rows) for one in looks.after(committed)]


def test_the_uncommitted_segments_of_a_spool_are_seen_by_another_process(tmp_path: Path) -> None:
    """Segments without a plan come last. Files may be deleted or written at any time."""
    spool = LocalFolder(tmp_path)
    looks = WaitingSegments(spool)
    assert looks.after(0) == []
    for number in (1, 2, 3):
        write_segment(spool, number, *range(number))
    write_plan(spool, 7, 1)
    write_plan(spool, 8, 3)
    assert seen(looks, 6) == [(7, 1, 1), (8, 3, 3), (None, 2, 2)]
    assert seen(looks, 7) == [(8, 3, 3), (None, 2, 2)]
    spool.delete(segment(3).manifest)
    write_segment(spool, 4, 5.0, 4.5)
    write_plan(spool, 9, 2)
    assert seen(looks, 7) == [(9, 2, 2), (None, 4, 2)]
    assert looks.after(7)[1].oldest == 4.5


class WithoutRows(LocalFolder):
    """A folder whose segments must not be fetched."""

    def get(self, path: str) -> bytes | None:
        assert not path.startswith("seg/")
        return super().get(path)

    def open(self, path: str) -> NoReturn:
        raise AssertionError(path)


def test_waiting_segments_are_seen_without_their_rows(tmp_path: Path) -> None:
    """In a bucket, rows take long to fetch."""
    spool = WithoutRows(tmp_path)
    write_segment(spool, 1, 7.5, 7.25)
    (one,) = WaitingSegments(spool).after(0)
    size = (tmp_path / segment(1).path).stat().st_size
    assert (one.rows, one.size, one.oldest, one.attempts) == (2, size, 7.25, 0)


def test_a_waiting_segment_may_have_a_manifest_of_an_earlier_version(tmp_path: Path) -> None:
    """It tells neither the earliest publish time nor the delivery attempts."""
    spool = LocalFolder(tmp_path)
    write_segment(spool, 1, 7.5)
    path = segment(1).manifest
    found = json.loads(spool.get(path) or b"")
    del found["oldest"], found["attempts"]
    spool.put(path, json.dumps(found).encode())
    (one,) = WaitingSegments(spool).after(0)
    assert (one.rows, one.oldest, one.attempts) == (1, None, 0)


def test_segments_with_a_damaged_manifest_and_tombstones_do_not_wait(tmp_path: Path) -> None:
    """The query reports a damaged one. A tombstone has no segment."""
    spool = LocalFolder(tmp_path)
    write_segment(spool, 1, 1.0)
    spool.put(segment(1).manifest, b"damaged")
    spool.create(segment(2).manifest, Manifest(segment(2), None, 0).text("nonce"))
    spool.put("plan/000000000003.json", b"damaged")
    assert WaitingSegments(spool).after(0) == []


class CountingFolder(LocalFolder):
    """A folder that notes the paths of files that are read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read: list[str] = []

    def get(self, path: str) -> bytes | None:
        self.read.append(path)
        return super().get(path)


def test_a_process_reads_no_manifest_and_plan_that_the_process_before_has_read(
    tmp_path: Path,
) -> None:
    spool = CountingFolder(tmp_path)
    for number in (1, 2, 3):
        write_segment(spool, number, *range(number))
    spool.create(segment(4).manifest, Manifest(segment(4), None, 0).text("nonce"))
    write_plan(spool, 7, 1)
    looks = WaitingSegments(spool)
    found = looks.after(6)
    assert len(spool.read) == 5
    spool.read.clear()
    looks = WaitingSegments(spool, looks.seen())
    assert looks.after(6) == found
    assert spool.read == []
    write_segment(spool, 5, 1.0)
    write_plan(spool, 8, 2)
    looks = WaitingSegments(spool, looks.seen())
    assert seen(looks, 7) == [(8, 2, 2), (None, 3, 3), (None, 5, 1)]
    assert spool.read == ["plan/000000000008.json", segment(5).manifest]


def test_a_process_forgets_segments_and_plans_that_are_gone(tmp_path: Path) -> None:
    spool = LocalFolder(tmp_path)
    looks = WaitingSegments(spool)
    nothing = (looks.after(0), looks.seen())[1]
    write_segment(spool, 1, 1.0)
    write_plan(spool, 1, 1)
    assert looks.after(0)
    assert looks.seen() != nothing
    for path in (segment(1).manifest, "plan/000000000001.json"):
        spool.delete(path)
    assert looks.after(0) == []
    assert looks.seen() == nothing
