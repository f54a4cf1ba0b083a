"""The follower's state machine, step by step: transitions between polling and the live stream."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from typing import Any

import pytest

from pullstream.feeds import Gap, GapReason
from pullstream.logs.follow.events import CaughtUp, Checkpoint, CloseReason, Event, FellBehind
from pullstream.logs.follow.machine import (
    FAILURES_WITHIN,
    MAX_FAILURES,
    NEXT,
    POLL_FOR,
    Action,
    Close,
    Deliver,
    FollowMachine,
    FollowState,
    LeaveStream,
    OpenStream,
    Read,
    Report,
    StreamFailures,
    Wait,
    may_follow,
)
from pullstream.logs.follow.records import ReadResult, RecordRange
from pullstream.logs.follow.settings import FollowRules
from pullstream.runtime.retry_clock import RetryClock
from pullstream_protocol.errors import Unavailable
from tests.subscriber.logs.follow.model import record

EPOCH = 7
START = Checkpoint(0)
AWAY = Unavailable("away")
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def answer(after: int, to: int, head: int | None = None, gap: Gap | None = None) -> ReadResult:
    """Return the result of reading the records from `after` to `to`."""
    first = after if gap is None else max(after, gap.to_seq)
    run = RecordRange(after, to, [record(seq, EPOCH) for seq in range(first + 1, to + 1)])
    head = to if head is None else head
    return ReadResult(run, head, to == head, EPOCH, gap)


def pushed(after: int, to: int) -> RecordRange:
    return answer(after, to).record_range


def new_machine(start: Checkpoint | None = START, **rules: Any) -> FollowMachine:
    made = FollowRules(**rules)
    return FollowMachine(start, made, RetryClock(1.0, 8.0, made.give_up_after))


def reported(action: Action) -> Event:
    assert isinstance(action, Report)
    return action.event(NOON)


def opening_machine(head: int = 3, **rules: Any) -> FollowMachine:
    """Return a machine that opens its first stream at time 0."""
    machine = new_machine(**rules)
    assert machine.next(0) == Read(Checkpoint(0))
    machine.answered(answer(0, head), 0)
    assert isinstance(machine.next(0), Deliver)
    assert machine.next(0) == OpenStream(1)
    return machine


def live_machine(head: int = 3, **rules: Any) -> FollowMachine:
    """Return a machine that is live on its first stream at time 0."""
    machine = opening_machine(head, **rules)
    machine.opened(1, head, EPOCH, 0)
    assert reported(machine.next(0)) == CaughtUp(Checkpoint(head, EPOCH), NOON)
    assert machine.next(0) == Wait(30.0)
    assert machine.state is FollowState.LIVE
    return machine


def fall(machine: FollowMachine, stream: int, now: float) -> None:
    """Lose a stream and take the FellBehind event."""
    machine.lost(stream, "stream lost", now)
    assert machine.next(now) == LeaveStream(stream)
    assert isinstance(reported(machine.next(now)), FellBehind)


# ---- the way to the stream -----------------------------------------------------------------------


def test_only_follower_states_with_a_stream_may_change_to_polling_but_all_may_close() -> None:
    """Each state with a stream may fall back to polling, and each state may end once."""
    streaming = {
        FollowState.SUBSCRIBE,
        FollowState.LAST_PULL,
        FollowState.DRAIN,
        FollowState.LIVE,
    }
    for state, to in itertools.product(FollowState, FollowState):
        if to is FollowState.CLOSED:
            assert may_follow(state, to) == (state is not FollowState.CLOSED)
        elif to is FollowState.POLL:
            assert may_follow(state, to) == (state in streaming)
    assert set(NEXT) == set(FollowState)


@pytest.mark.parametrize(("head", "near"), [(0, True), (249, True), (250, False)])
def test_a_follower_opens_a_stream_only_near_the_end_of_the_log(head: int, near: bool) -> None:
    """A stream is opened if the last read found less than half a buffer and the rest of the log."""
    machine = new_machine()
    machine.next(0)
    machine.answered(answer(0, head), 0)
    assert isinstance(machine.next(0), Deliver)
    assert machine.next(0) == (OpenStream(1) if near else Read(Checkpoint(head, EPOCH)))


def test_a_follower_reads_the_records_before_its_live_stream_and_then_reports_caught_up() -> None:
    """A stream that began after the follower's position needs one last read up to there."""
    machine = opening_machine()
    machine.opened(1, 5, EPOCH, 0)
    assert machine.next(0) == Read(Checkpoint(3, EPOCH))
    machine.answered(answer(3, 4, head=5), 0)
    machine.next(0)
    assert machine.next(0) == Read(Checkpoint(4, EPOCH))
    machine.answered(answer(4, 5), 0)
    machine.next(0)
    assert isinstance(reported(machine.next(0)), CaughtUp)


def test_a_follower_delivers_records_received_by_both_a_read_and_a_stream_once() -> None:
    """A run of records that is partly known is handed out in part."""
    machine = live_machine(head=3)
    machine.arrived(1, pushed(1, 3), 3, 0)
    machine.arrived(1, pushed(2, 5), 5, 0)
    assert machine.next(0) == Deliver([], Checkpoint(3, EPOCH))
    assert machine.next(0) == Deliver([record(4, EPOCH), record(5, EPOCH)], Checkpoint(5, EPOCH))


def test_a_follower_that_starts_at_the_end_of_the_log_delivers_no_earlier_record() -> None:
    """A follower from the end hands out nothing before the end."""
    machine = new_machine(None)
    assert machine.next(0) == Read(None)
    machine.answered(answer(8, 8), 0)
    assert machine.next(0) == Deliver([], Checkpoint(8, EPOCH))
    assert machine.next(0) == OpenStream(1)


def test_a_follower_waits_until_the_log_reaches_a_start_position_beyond_its_end() -> None:
    """The broker reads such a start as a number of a deleted topic. The user gave no epoch."""
    machine = new_machine(Checkpoint(5))
    machine.next(0)
    gap = Gap("topic", 1, 0, GapReason.RECREATED, GapReason.UNKNOWN, 1, 2)
    machine.answered(answer(0, 2, gap=gap), 0)
    assert machine.next(0) == OpenStream(1)
    machine.opened(1, 2, EPOCH, 0)
    assert reported(machine.next(0)) == CaughtUp(Checkpoint(5, EPOCH), NOON)
    machine.arrived(1, pushed(2, 7), 7, 0)
    assert machine.next(0) == Deliver([record(6, EPOCH), record(7, EPOCH)], Checkpoint(7, EPOCH))


# ---- back to polling -----------------------------------------------------------------------------


def test_a_follower_reads_from_the_log_the_records_that_its_stream_left_out() -> None:
    """The buffer may have dropped the missing records."""
    machine = live_machine(head=3)
    machine.arrived(1, pushed(4, 6), 6, 1)
    assert machine.next(1) == LeaveStream(1)
    fell = reported(machine.next(1))
    assert fell == FellBehind(Checkpoint(3, EPOCH), NOON, "overflow")
    assert machine.next(1) == Read(Checkpoint(3, EPOCH))


def test_a_follower_closes_a_stream_that_was_silent_for_two_heartbeat_intervals() -> None:
    """A heartbeat shows that the stream is alive."""
    machine = live_machine()
    machine.heard(1, 20.0)
    assert machine.next(49.9) == Wait(50.0)
    assert machine.next(50.0) == LeaveStream(1)
    assert isinstance(reported(machine.next(50.0)), FellBehind)


def test_a_follower_ignores_records_of_a_stream_that_it_has_closed() -> None:
    """Records that the reader of the left stream still has are ignored."""
    machine = live_machine()
    fall(machine, 1, 1)
    machine.arrived(1, pushed(3, 4), 4, 1)
    machine.lost(1, "gap", 1)
    assert machine.buffered == 0
    assert machine.fallbacks == 1
    assert machine.next(1) == Read(Checkpoint(3, EPOCH))


def test_a_follower_closes_its_stream_if_the_topic_was_recreated() -> None:
    """The next read reports the recreated topic."""
    machine = opening_machine()
    machine.opened(1, 0, EPOCH + 1, 0)
    assert machine.next(0) == LeaveStream(1)
    assert machine.next(0) == Read(Checkpoint(3, EPOCH))


def test_a_follower_polls_for_a_minute_after_three_stream_failures_within_a_minute() -> None:
    """After three failures the follower reads the rest, then polls with waiting reads.

    After a minute it opens a stream again.
    """
    machine = live_machine()
    for stream in (1, 2):
        fall(machine, stream, 10)
        machine.next(10)
        machine.answered(answer(3, 3), 10)
        machine.next(10)
        assert machine.next(10) == OpenStream(stream + 1)
        machine.opened(stream + 1, 3, EPOCH, 10)
        machine.next(10)
    fall(machine, 3, 10)
    assert machine.state is FollowState.POLL
    assert machine.next(10) == Read(Checkpoint(3, EPOCH), wait=0.0)
    machine.answered(answer(3, 3), 10)
    machine.next(10)
    assert isinstance(reported(machine.next(10)), CaughtUp)
    assert machine.next(10) == Read(Checkpoint(3, EPOCH), wait=20.0)
    machine.answered(answer(3, 3), 9 + POLL_FOR)
    machine.next(9 + POLL_FOR)
    assert machine.next(9 + POLL_FOR) == Read(Checkpoint(3, EPOCH), wait=1.0)
    machine.answered(answer(3, 3), 10 + POLL_FOR)
    machine.next(10 + POLL_FOR)
    assert machine.next(10 + POLL_FOR) == OpenStream(4)


def test_a_polling_follower_whose_lag_exceeds_its_buffer_size_reports_fell_behind() -> None:
    """A poller catches up again when it is near the end of the log."""
    machine = live_machine(live_buffer=10)
    for stream in (1, 2, 3):
        machine.lost(stream, "stream lost", 10)
        while machine.state is FollowState.PULL:
            if isinstance(machine.next(10), Read):
                machine.answered(answer(3, 3), 10)
    machine.next(10)
    turns = []
    for after, to, head in ((3, 3, 3), (3, 5, 20), (5, 20, 20), (20, 21, 21)):
        machine.answered(answer(after, to, head), 10)
        while not isinstance(action := machine.next(10), Read):
            turns += [type(reported(action)).__name__] if isinstance(action, Report) else []
    assert turns[-3:] == ["CaughtUp", "FellBehind", "CaughtUp"]


# ---- failures ------------------------------------------------------------------------------------


def test_a_follower_retries_a_failed_read_after_a_pause() -> None:
    """Without a limit, the retries never end."""
    machine = new_machine()
    now = 0.0
    for _ in range(50):
        assert machine.next(now) == Read(Checkpoint(0))
        machine.failed(AWAY, now)
        pause = machine.next(now)
        assert isinstance(pause, Wait)
        assert now + 0.5 <= pause.until <= now + 8
        now = pause.until


def test_a_follower_ends_with_an_error_after_the_configured_time_without_a_server_answer() -> None:
    """An answer in between restarts the time."""
    machine = new_machine(give_up_after=10.0)
    machine.failed(AWAY, 0)
    machine.answered(answer(0, 1, head=500), 9)
    machine.failed(AWAY, 12)
    machine.failed(AWAY, 21.9)
    machine.next(30)
    assert machine.next(21.9) == Wait(22.0)
    machine.failed(AWAY, 22.0)
    assert machine.next(22.0) == Close(CloseReason.SERVER_GONE, AWAY)


def test_a_follower_ends_with_the_first_of_two_errors() -> None:
    """The remaining actions are dropped."""
    machine = live_machine()
    machine.arrived(1, pushed(3, 4), 4, 0)
    machine.stop(CloseReason.HANDLER_ERROR, AWAY)
    machine.stop(CloseReason.STOPPED)
    machine.lost(1, "stream lost", 0)
    machine.answered(answer(3, 4), 0)
    assert machine.next(0) == Close(CloseReason.HANDLER_ERROR, AWAY)
    with pytest.raises(RuntimeError):
        machine.next(0)


def test_a_follower_reports_the_unreported_part_of_a_gap_before_the_records_after_the_gap() -> None:
    """The user already had the part of the gap before the cursor."""
    machine = new_machine(Checkpoint(3, EPOCH))
    machine.next(0)
    gap = Gap("topic", 1, 5, GapReason.CAP, GapReason.UNKNOWN, 6, 7)
    machine.answered(answer(3, 7, gap=gap), 0)
    event = reported(machine.next(0))
    assert isinstance(event, Gap)
    assert (event.from_seq, event.to_seq) == (4, 5)
    assert machine.next(0) == Deliver([record(6, EPOCH), record(7, EPOCH)], Checkpoint(7, EPOCH))


def test_a_third_stream_failure_within_a_minute_makes_a_follower_poll_for_a_minute() -> None:
    """The third failure within a minute ends the use of streams for a minute."""
    failures = StreamFailures()
    for second in range(MAX_FAILURES - 1):
        failures.add(second)
        assert failures.poll_until == 0
    failures.add(FAILURES_WITHIN)
    assert failures.poll_until == FAILURES_WITHIN + POLL_FOR
    assert failures.count == MAX_FAILURES


def test_stream_failures_spread_over_more_than_a_minute_do_not_make_a_follower_poll() -> None:
    """Streams are used again after each failure."""
    failures = StreamFailures()
    for number in range(10):
        failures.add(number * (FAILURES_WITHIN / (MAX_FAILURES - 1) + 1))
    assert (failures.count, failures.poll_until) == (10, 0)


def test_a_follower_counts_stream_failures_from_zero_after_each_polling_phase() -> None:
    """The next poll needs as many new failures."""
    failures = StreamFailures()
    for second in range(2 * MAX_FAILURES - 1):
        failures.add(second)
    assert failures.poll_until == MAX_FAILURES - 1 + POLL_FOR
