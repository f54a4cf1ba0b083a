"""The stored state of a feed, and its restoration in the next broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine import Record
from pullstream_emulator.logs.gaps import LossFloors, LostRange
from pullstream_emulator.logs.persisted_feed import (
    FeedNote,
    FeedValue,
    RecoveredFeed,
    recovered_feed,
)
from pullstream_protocol.messages import feeds_pb2 as feeds

NO_VALUE = FeedValue(feeds.FeedConfig(), 7)
UNTOLD = feeds.FROM_SEQ_TOO_OLD


def records(*seqs: int) -> dict[int, Record]:
    return {seq: Record(seq, "", b"data", 0) for seq in seqs}


def left(
    *seqs: int,
    head: int,
    floors: LossFloors | None = None,
    silent: tuple[tuple[int, int], ...] = (),
    lost: tuple[LostRange, ...] = (),
    all_was_kept: bool = False,
) -> RecoveredFeed:
    return recovered_feed(
        NO_VALUE._replace(silent=silent),
        FeedNote(floors or LossFloors(), lost),
        records(*seqs),
        head,
        all_was_kept=all_was_kept,
    )


def test_a_stored_feed_value_survives_encoding_and_decoding() -> None:
    config = feeds.FeedConfig(cap_records=5, discard=feeds.REJECT)
    value = FeedValue(config, 2**63 + 5, 12, [(3, 9), (11, 11)])
    assert FeedValue.decode(value.encode()) == value


def test_a_feed_note_about_lost_records_survives_encoding_and_decoding() -> None:
    note = FeedNote(LossFloors(1, cap=2, ttl=3, source=4), [LostRange(5, 6, feeds.SOURCE_TRIM)])
    back = FeedNote.decode(note.encode())
    assert back.lost == note.lost
    floors = back.floors
    assert (floors.start, floors.cap, floors.ttl, floors.source) == (1, 2, 3, 4)


def test_a_feed_recovered_after_a_clean_stop_has_no_lost_records() -> None:
    """The result is the same even if the oldest rows were no longer in the window."""
    found = left(3, 4, 5, 6, head=6, floors=LossFloors(cap=4))
    assert [record.seq for record in found.records] == [5, 6]
    assert (found.lost, found.silent) == ([], [])


def test_a_recovered_feed_reports_records_missing_for_no_known_reason_as_lost() -> None:
    """Missing numbers in the middle and at the end count as lost.

    Nothing is known of the numbers after the last record.
    """
    found = left(3, 5, head=9, floors=LossFloors(cap=2))
    assert found.lost == [LostRange(4, 4, UNTOLD), LostRange(6, 9, UNTOLD)]


def test_a_recovered_feed_does_not_report_never_assigned_sequence_numbers_as_lost() -> None:
    """The reason is stored, because otherwise the next broker would count them as lost."""
    found = left(3, 5, head=9, floors=LossFloors(cap=2), all_was_kept=True)
    assert found.lost == [LostRange(4, 4, UNTOLD)]
    assert found.silent == [(6, 9)]
    again = left(3, 5, 10, head=10, floors=LossFloors(cap=2), silent=((6, 9),), all_was_kept=True)
    assert again.lost == [LostRange(4, 4, UNTOLD)]


def test_missing_records_from_before_the_feed_value_was_stored_are_reported_as_lost() -> None:
    """The topic may not have had its durability class then."""
    value = NO_VALUE._replace(head=4)
    found = recovered_feed(value, FeedNote(LossFloors()), records(1, 2), 9, all_was_kept=True)
    assert found.lost == [LostRange(3, 4, UNTOLD)]
    assert found.silent == [(5, 9)]


def test_a_feed_recovered_from_storage_does_not_restore_deleted_records() -> None:
    """The row of a deleted record may still exist."""
    found = left(1, 2, 3, 4, head=4, silent=((1, 1), (3, 3)))
    assert [record.seq for record in found.records] == [2, 4]
    assert found.lost == []


def test_a_feed_recovered_a_second_time_reports_the_same_lost_range() -> None:
    """The range keeps its reason."""
    trimmed = LostRange(3, 4, feeds.SOURCE_TRIM)
    found = left(1, 2, 5, head=5, lost=(trimmed,))
    assert found.lost == [trimmed]


RUNS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), max_size=4)


@given(st.sets(st.integers(1, 30)), RUNS, st.integers(0, 10), st.integers(0, 10), st.booleans())
def test_each_sequence_number_of_a_recovered_feed_has_a_record_or_one_reason_for_absence(
    seqs: set[int], runs: list[tuple[int, int]], floor: int, beyond: int, all_was_kept: bool
) -> None:
    """Each number is below a floor, has a record, is silent, or is lost."""
    silent = tuple((first, first + length) for first, length in runs)
    head = max([*seqs, floor, *(last for _, last in silent)], default=0) + beyond
    found = left(
        *seqs, head=head, floors=LossFloors(ttl=floor), silent=silent, all_was_kept=all_was_kept
    )
    kept = {record.seq for record in found.records}
    quiet = {seq for first, last in found.silent for seq in range(first, last + 1)}
    lost = {seq for each in found.lost for seq in range(each.first, each.last + 1)}
    assert kept.isdisjoint(quiet | lost)
    assert lost.isdisjoint(quiet)
    assert kept | lost | quiet | set(range(1, floor + 1)) >= set(range(1, head + 1))
    assert kept <= seqs
