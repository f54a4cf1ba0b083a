"""Durable subscription (C1.1 to C1.15): a follower against a real broker."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import datetime, timezone
from pathlib import Path

import pytest

from pullstream.feeds import GapReason
from pullstream.follow import (
    CaughtUp,
    Checkpoint,
    Closed,
    CloseReason,
    FellBehind,
    Follower,
    FollowState,
    Gap,
    Record,
    ServerCursor,
)
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import NotFound, Unavailable
from tests.contract.following import Followed, Held, until_live
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

CURSOR = "projects/test-project/cursors/billing"


# ---- state ---------------------------------------------------------------------------------------


def test_a_restarted_follower_receives_records_published_while_it_was_stopped_c1_1(
    here: Followed, tmp_path: Path
) -> None:
    """The next follower begins at the position of the last one."""
    here.append(3)
    here.live(checkpoint=tmp_path / "positions.db").close()
    here.append(4)
    follower = here.follow(checkpoint=tmp_path / "positions.db")
    here.diary.wait_for(lambda: len(here.diary.seqs) == 4)
    follower.close()
    assert here.diary.seqs == [4, 5, 6, 7]


@pytest.mark.parametrize("every", [1, 3])
def test_a_follower_can_save_its_position_as_a_server_cursor_every_n_records_c1_2(
    here: Followed, every: int
) -> None:
    """A follower that dies without notice receives at most N records again."""
    handled = threading.Semaphore(0)
    go_on = threading.Semaphore(0)

    def handle(record: Record) -> None:
        handled.release()
        go_on.acquire()

    here.append(8)
    options = {"checkpoint": ServerCursor(CURSOR), "checkpoint_every": every}
    follower = here.follow(handler=handle, checkpoint_seconds=1000, **options)
    for _ in range(7):
        handled.acquire()
        go_on.release()
    handled.acquire()
    kept = here.client.cursors.get(CURSOR)
    follower.begin_close()
    go_on.release(100)
    assert kept.topic == here.topic
    assert 7 - every < kept.seq <= 7


def test_a_program_can_store_the_position_of_a_follower_in_any_storage_c1_2(here: Followed) -> None:
    """The subscriber may use any storage: here a function, and `after` at the next start."""
    kept: list[Checkpoint] = []
    here.append(5)
    here.live(checkpoint=kept.append).close()
    here.append(1)
    here.live(after=kept[-1])
    assert here.diary.seqs == [6]


def test_the_broker_keeps_no_state_of_a_crashed_follower_c1_3(here: Followed) -> None:
    """The reader pulls at its own pace and leaves no state on the broker.

    Live, records are pushed to it.
    """
    here.append(2000)
    held = Held(here)
    follower = here.follow(handler=held)
    here.diary.wait_for(lambda: here.diary.seqs == [1])
    assert here.client.feeds.get(here.topic).watchers == 0
    follower.begin_close()
    held.gate.set()
    assert follower.result()
    here.live(after=2000)
    reads = here.wire.reads
    here.append()
    here.diary.wait_for(lambda: here.diary.seqs == [2001])
    # The record came over the open watch.
    assert here.wire.reads == reads


# ---- the algorithm -------------------------------------------------------------------------------


def test_a_follower_sends_a_feed_read_as_its_first_request_c1_4(here: Followed) -> None:
    """The follower reads even if there is no record."""
    here.client.feeds.put(here.topic)
    here.live()
    assert here.wire.reads == ["Read", "Watch"]


def test_a_follower_opens_a_stream_after_its_reads_reach_the_end_c1_5(
    here: Followed,
) -> None:
    """The follower makes as many reads as necessary, and only then asks for a stream."""
    here.append(2500)
    here.live()
    assert here.wire.reads == ["Read", "Read", "Read", "Read", "Watch"]
    assert here.diary.seqs == list(range(1, 2501))


def test_a_follower_handles_records_pushed_during_a_read_after_those_of_the_read_c1_6(
    here: Followed,
) -> None:
    """The handler receives it after the records of the last pull."""
    states: list[FollowState] = []

    def append_and_see() -> None:
        here.append(2)
        # The thread of the follower may be here before `follow` returns.
        follower = known.result(TIMEOUT)
        eventually(lambda: follower.statistics().buffered == 2)
        states.append(follower.state)

    known: Future[Follower] = Future()
    here.append(3)
    here.wire.before("Watch", lambda: here.append(4))
    here.wire.before("Read", lambda: None)
    here.wire.before("Read", append_and_see)
    known.set_result(here.follow())
    here.diary.wait_for(lambda: len(here.diary.seqs) == 9)
    assert states == [FollowState.LAST_PULL]
    assert here.diary.seqs == list(range(1, 10))


def test_a_follower_misses_no_record_between_its_reads_and_its_stream_c1_7(
    here: Followed,
) -> None:
    """The record was appended after the empty pull and before the stream began."""
    here.append(3)
    here.wire.before("Watch", lambda: here.append(4))
    here.follow()
    here.diary.wait_for_turn(1)
    assert here.diary.seqs == list(range(1, 8))
    assert here.wire.reads == ["Read", "Watch", "Read"]


def test_a_follower_handles_a_record_received_by_read_and_by_stream_only_once_c1_8(
    here: Followed,
) -> None:
    """The last pull reads past the start of the stream, and the buffer is checked against it."""

    def append_and_wait() -> None:
        here.append(5)
        # The thread of the follower may be here before `follow` returns.
        follower = known.result(TIMEOUT)
        eventually(lambda: follower.statistics().buffered == 5)

    known: Future[Follower] = Future()
    here.append(1)
    here.wire.before("Watch", lambda: here.append(1))
    here.wire.before("Read", lambda: None)
    here.wire.before("Read", append_and_wait)
    known.set_result(here.follow())
    here.diary.wait_for_turn(1)
    here.append(1)
    here.diary.wait_for(lambda: 8 in here.diary.seqs)
    assert here.diary.seqs == list(range(1, 9))


def test_a_follower_that_receives_records_from_its_stream_sends_no_feed_reads_c1_9(
    here: Followed,
) -> None:
    """The follower makes no read after that."""
    here.append(1)
    here.live()
    for _ in range(20):
        here.append(10)
    here.diary.wait_for(lambda: len(here.diary.seqs) == 201)
    assert here.wire.reads == ["Read", "Watch"]
    assert here.diary.turns == ["CaughtUp"]


def test_a_follower_whose_handler_is_slow_closes_its_stream_and_limits_its_buffer_c1_10(
    here: Followed,
) -> None:
    """The follower's buffer stays within its limit, and the broker keeps nothing for it."""
    held = Held(here)
    here.append(1)
    follower = here.live(after=1, handler=held, live_buffer=10)
    here.overtake(follower, 41)
    assert follower.statistics().buffered == 10
    held.gate.set()
    here.diary.wait_for_turn(3)
    assert here.diary.turns == ["CaughtUp", "FellBehind", "CaughtUp"]
    assert here.diary.seqs == list(range(2, 42))


def test_a_follower_catches_up_by_reads_after_an_overflow_of_its_buffer_c1_11(
    here: Followed,
) -> None:
    """The follower catches up without loss and without duplicates."""
    held = Held(here, open=True)
    here.append(5)
    follower = here.live(handler=held, live_buffer=10)
    held.gate.clear()
    here.overtake(follower, 30)
    held.gate.set()
    here.diary.wait_for_turn(3)
    until_live(follower)
    here.append(1)
    here.diary.wait_for(lambda: 31 in here.diary.seqs)
    assert here.diary.seqs == list(range(1, 32))
    assert cause_of_fall(here) == "overflow"


def test_a_follower_catches_up_by_reads_after_its_stream_was_dropped_c1_11(
    here: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker or the network ended the stream. The log says which."""
    caplog.set_level("INFO", "pullstream.follow")
    here.append(5)
    here.live()
    here.wire.cut_stream()
    here.append(100)
    here.diary.wait_for_turn(3)
    here.diary.wait_for(lambda: len(here.diary.seqs) >= 105)
    assert here.diary.seqs == list(range(1, 106))
    assert cause_of_fall(here) == "stream lost"
    assert "failed: 499 Locally cancelled" in caplog.text


def test_a_follower_catches_up_by_reads_after_a_broker_outage_c1_11(here: Followed) -> None:
    """The follower retries for as long as the broker is away."""
    here.append(5)
    here.live()
    here.emulator.stop()
    here.diary.wait_for_turn(2)
    here.emulator.start()
    here.diary.wait_for_turn(3)
    here.append(100)
    here.diary.wait_for(lambda: len(here.diary.seqs) >= 105)
    assert here.diary.seqs == list(range(1, 106))


def test_a_follower_saves_the_position_of_a_record_after_the_handler_has_returned_c1_12(
    here: Followed,
) -> None:
    """The position is the last record for which the handler has returned."""
    kept: list[int] = []
    running = threading.Lock()
    seen: list[tuple[int, list[int]]] = []

    def handle(record: Record) -> None:
        assert running.acquire(blocking=False)
        seen.append((record.seq, list(kept)))
        running.release()

    here.append(30)
    here.live(
        handler=handle,
        checkpoint=lambda checkpoint: kept.append(checkpoint.seq),
        checkpoint_every=1,
        after=10,
    )
    assert [seq for seq, _ in seen] == list(range(11, 31))
    assert all(before[-1:] == ([seq - 1] if seq > 11 else []) for seq, before in seen)


def now() -> datetime:
    return datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc)


def test_caught_up_and_fell_behind_events_of_a_follower_alternate_c1_13(here: Followed) -> None:
    """Each event has a position and a time."""
    here.append(3)
    before = now()
    follower = here.live()
    here.wire.cut_stream()
    here.diary.wait_for_turn(3)
    follower.close()
    assert here.diary.turns == ["CaughtUp", "FellBehind", "CaughtUp"]
    for event in here.diary.events[:3]:
        assert isinstance(event, (CaughtUp, FellBehind))
        assert event.position.seq == 3
        assert before <= event.time <= now()


@pytest.mark.parametrize(("count", "after"), [(0, 0), (0, "tail"), (3, "tail"), (3, 3)])
def test_a_follower_started_at_the_end_of_a_topic_reports_caught_up_at_once_c1_13(
    here: Followed, count: int, after: object
) -> None:
    """The same holds for an empty topic, whose position is before the first record."""
    here.client.feeds.put(here.topic)
    here.append(count) if count else None
    here.live(after=after)
    (event,) = here.diary.events
    assert isinstance(event, CaughtUp)
    assert event.position.seq == count
    assert here.diary.seqs == []


def test_the_last_event_of_a_follower_is_a_single_report_of_its_end_c1_14(here: Followed) -> None:
    """The reason in this test is a stop by the user."""
    here.append(2)
    follower = here.live()
    assert follower.close()
    follower.close()
    here.append(5)
    assert (here.diary.closed.reason, here.diary.closed.error) == (CloseReason.STOPPED, None)
    assert isinstance(here.diary.entries[-1], Closed)
    assert here.diary.seqs == [1, 2]
    assert follower.result() is True


def test_a_handler_error_ends_a_follower_with_its_position_before_the_failed_record_c1_14(
    here: Followed, tmp_path: Path
) -> None:
    """The future has that error. The position does not move, so the record comes again."""
    here.append(5)

    def handle(record: Record) -> None:
        if record.seq == 3:
            raise ValueError("three")

    follower = here.follow(handler=handle, checkpoint=tmp_path / "positions.db")
    error = follower.exception()
    assert isinstance(error, ValueError)
    assert here.diary.closed.reason is CloseReason.HANDLER_ERROR
    assert here.diary.closed.error is error
    assert follower.position.seq == 2
    here.live(checkpoint=tmp_path / "positions.db")
    assert here.diary.seqs == [3, 4, 5]


def test_the_position_of_a_follower_that_has_handled_no_record_is_its_start_position_c1_14(
    here: Followed,
) -> None:
    """The position is not the one that the first read has reached."""

    def handle(record: Record) -> None:
        raise ValueError("the first")

    here.append(5)
    for start in (0, 2):
        follower = here.follow(start, handler=handle)
        assert isinstance(follower.exception(20), ValueError)
        assert follower.position == here.diary.closed.position == Checkpoint(start)


def test_a_follower_ends_when_the_server_is_unreachable_longer_than_give_up_after_c1_14(
    here: Followed,
) -> None:
    """The follower ends when the server is unreachable for longer than `give_up_after`."""
    here.append(1)
    follower = here.live(give_up_after=0.3)
    here.emulator.stop()
    assert isinstance(follower.exception(20), Unavailable)
    assert here.diary.closed.reason is CloseReason.SERVER_GONE


def test_deleting_a_topic_ends_a_follower_of_the_topic_c1_14(here: Followed) -> None:
    """The follower ends when the topic is deleted while it is followed."""
    here.append(2)
    follower = here.live()
    here.delete()
    assert isinstance(follower.exception(20), NotFound)
    assert here.diary.closed.reason is CloseReason.TOPIC_DELETED
    assert here.diary.seqs == [1, 2]


def test_a_follower_reports_a_buffer_overflow_as_fell_behind_and_continues_c1_14(
    here: Followed,
) -> None:
    """The follower reports FellBehind with the cause, and continues."""
    held = Held(here)
    here.append(1)
    follower = here.live(after=1, handler=held, live_buffer=10)
    here.overtake(follower, 30)
    held.gate.set()
    here.diary.wait_for_turn(3)
    until_live(follower)
    assert cause_of_fall(here) == "overflow"
    assert not follower.done()


def test_a_follower_reports_a_gap_in_records_before_the_next_record_c1_15(
    here: Followed,
) -> None:
    """The topic's limits removed the records. The report has the exact range and the reason."""
    here.client.feeds.put(here.topic, config={"cap_records": 10})
    here.append(25)
    here.live()
    gap, *records = here.diary.entries[:11]
    assert isinstance(gap, Gap)
    assert (gap.from_seq, gap.to_seq, gap.reason) == (1, 15, GapReason.CAP)
    assert [record.seq for record in records if isinstance(record, Record)] == list(range(16, 26))


def test_a_follower_without_an_event_callback_writes_gaps_to_the_log(
    here: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic keeps nothing before its first reader, so records published earlier are lost."""
    here.client.feeds.put(here.topic, config={"cap_records": 10})
    here.append(25)
    here.follow(on_event=None)
    eventually(lambda: len(here.diary.entries) == 10)
    (warning,) = [record for record in caplog.records if record.name == "pullstream.follow"]
    assert "from_seq=1, to_seq=15" in warning.getMessage()


def test_a_follower_reports_a_gap_that_occurs_during_its_handler_c1_15(here: Followed) -> None:
    """The window of the topic passes a live follower.

    Every record is either handled or reported lost.
    """
    held = Held(here, open=True)
    here.client.feeds.put(here.topic, config={"cap_records": 10})
    here.append(1)
    follower = here.live(handler=held, live_buffer=5)
    held.gate.clear()
    here.overtake(follower, 2)
    here.append(40)
    eventually(lambda: follower.statistics().fallbacks == 1)
    held.gate.set()
    here.diary.wait_for(lambda: 42 in here.diary.seqs)
    (gap,) = here.diary.gaps
    assert here.diary.seqs == [*range(1, gap.from_seq), *range(gap.to_seq + 1, 43)]
    assert gap.to_seq == 32
    behind = here.diary.entries[here.diary.entries.index(gap) + 1]
    assert isinstance(behind, Record)
    assert behind.seq == 33


def cause_of_fall(here: Followed) -> str:
    (fell,) = (event for event in here.diary.events if isinstance(event, FellBehind))
    return fell.cause
