"""State machine of a follower: moves from reads to a stream, and back. No threads, no I/O.

    PULL --nearly nothing left--> SUBSCRIBE --opened at H--> LAST_PULL --cursor >= H--> DRAIN
      ^                               |                          |                        |
      |                               |                          |                  buffer empty
      +-- a hole, or the stream is ---+--------------------------+----------+             |
          lost, silent, or behind                                           +-- LIVE <----+

A pull is a read of the log. The stream is requested before the last pull, so that every record
comes from one of the two: records up to H, where the stream begins, from the pull; later records
from the stream. Records that come from both are delivered once. If the buffer has dropped records,
there is a hole before the next range, and the records are pulled again.

After three stream failures within a minute, no stream is opened for a minute, and the follower uses
long polls instead (state POLL). If the handler is a little too slow, each return to the stream
would cost more than it gains. In a network that cuts streams, no stream would last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import TypeAlias

from pullstream.logs.feeds.frames import Gap, GapReason
from pullstream.runtime.retry_clock import RetryClock

from .events import CaughtUp, Checkpoint, CloseReason, Event, FellBehind, FellBehindCause
from .records import LiveBuffer, ReadResult, Record, RecordRange
from .settings import FollowRules

# The longest long poll, in seconds. The broker's limit is 30.
_LONG_POLL = 20.0

# The shortest and the longest pause between failed reads, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 10.0

# After this many failures within this many seconds, no stream is opened for a while.
MAX_FAILURES = 3
FAILURES_WITHIN = 60.0

# The length of that while, in seconds. The follower polls meanwhile.
POLL_FOR = 60.0


# ---- states --------------------------------------------------------------------------------------


class FollowState(Enum):
    """State of a follower.

    Attributes:
        PULL: Reads the records that were appended while it was away.
        SUBSCRIBE: Has requested a stream, and waits for it to open.
        LAST_PULL: Reads up to the number from which the stream delivers.
        DRAIN: Handles the records that the stream has delivered in the meantime.
        LIVE: Handles records as the stream delivers them.
        POLL: The stream failed too often; uses long polls for a while.
        CLOSED: Has ended, or is ending.
    """

    PULL = "pull"
    SUBSCRIBE = "subscribe"
    LAST_PULL = "last pull"
    DRAIN = "drain"
    LIVE = "live"
    POLL = "poll"
    CLOSED = "closed"


# From each state with a stream, the follower may return to reads: because the stream was lost, is
# silent, or is faster than the handler.
_READS = frozenset({FollowState.PULL, FollowState.POLL})

NEXT: dict[FollowState, frozenset[FollowState]] = {
    FollowState.PULL: frozenset({FollowState.SUBSCRIBE}),
    FollowState.SUBSCRIBE: frozenset({FollowState.LAST_PULL}) | _READS,
    FollowState.LAST_PULL: frozenset({FollowState.DRAIN}) | _READS,
    FollowState.DRAIN: frozenset({FollowState.LIVE}) | _READS,
    FollowState.LIVE: _READS,
    FollowState.POLL: frozenset({FollowState.PULL}),
    FollowState.CLOSED: frozenset(),
}


def may_follow(state: FollowState, to: FollowState) -> bool:
    """Return whether `to` may come after `state`. CLOSED may come after every other state."""
    return to in NEXT[state] or (to is FollowState.CLOSED and state is not FollowState.CLOSED)


# ---- actions that the machine asks its shell to perform ------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """Read the records after a position.

    Attributes:
        after: The position. None asks for the end of the log.
        wait: Seconds to wait for a first record.
    """

    after: Checkpoint | None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream at the end of the log. The events of the stream carry this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaveStream:
    """End the stream with this number. Its later events are ignored."""

    number: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass these records to the handler, one at a time. After that the position is `to`."""

    records: Sequence[Record]
    to: Checkpoint


@dataclass(frozen=True, slots=True)
class Report:
    """Report an event to the user.

    Attributes:
        event: Creates the event from the wall-clock time, in UTC.
    """

    event: Callable[[datetime], Event]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an event, or until this time on the monotonic clock."""

    until: float


@dataclass(frozen=True, slots=True)
class Close:
    """End the follower."""

    reason: CloseReason
    error: BaseException | None


Action: TypeAlias = "Read | OpenStream | LeaveStream | Deliver | Report | Wait | Close"


# ---- parts of the machine ------------------------------------------------------------------------


class LiveStreamState:
    """The newest stream: its number, whether it is still in use, and its buffered records.

    There is one stream at a time.

    Attributes:
        number: The number of the newest stream. 0 if there was none.
        is_wanted: Whether the stream is in use.
        begins_after: The stream delivers the records after this sequence number.
        silent_at: The time at which the stream counts as dead unless something comes before, on the
            monotonic clock.
        buffer: The records that the stream has delivered.
    """

    def __init__(self, rules: FollowRules) -> None:
        self.number: int = 0
        self.is_wanted: bool = False
        self.begins_after: int = 0
        self.silent_at: float = 0.0
        self.buffer: LiveBuffer = LiveBuffer(rules.live_buffer, rules.live_bytes)
        self._silence_limit = rules.silence_limit

    def begin(self, now: float) -> int:
        """Begin another stream and return its number."""
        self.number += 1
        self.is_wanted = True
        self.silent_at = now + self._silence_limit
        return self.number

    def accepts(self, stream: int, now: float) -> bool:
        """Return whether an event of this stream counts; if so, record that the stream is alive."""
        counts = self.is_wanted and stream == self.number
        if counts:
            self.silent_at = now + self._silence_limit
        return counts

    def end(self) -> bool:
        """End the use of the stream and drop its records; return whether there was one."""
        was_wanted, self.is_wanted = self.is_wanted, False
        self.buffer.clear()
        return was_wanted


def read_retries(give_up_after: float | None) -> RetryClock:
    """Return the times of retries of failed reads.

    Args:
        give_up_after: Seconds without an answer after which to give up. None: never.
    """
    return RetryClock(_FIRST_PAUSE, _LAST_PAUSE, give_up_after)


class StreamFailures:
    """Counts the failures of streams, and decides when to use long polls instead.

    Attributes:
        count: Failures since the start.
        poll_until: No stream is opened before this time, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.poll_until: float = 0.0
        self._recent: deque[float] = deque(maxlen=MAX_FAILURES)

    def add(self, now: float) -> None:
        """Count a failure; after MAX_FAILURES within FAILURES_WITHIN seconds, set `poll_until`."""
        self.count += 1
        self._recent.append(now)
        if len(self._recent) == MAX_FAILURES and now - self._recent[0] <= FAILURES_WITHIN:
            self._recent.clear()
            self.poll_until = now + POLL_FOR


class ProgressEvents:
    """Makes CaughtUp and FellBehind alternate, beginning with CaughtUp.

    Args:
        report: Called with each event to report.
    """

    def __init__(self, report: Callable[[Report], None]) -> None:
        self.is_caught_up: bool = False
        self._report = report

    def caught_up(self, position: Checkpoint | None) -> None:
        """Report CaughtUp, unless it still holds or there is no position yet."""
        if not self.is_caught_up and position is not None:
            self.is_caught_up = True
            self._report(Report(partial(CaughtUp, position)))

    def fell_behind(self, position: Checkpoint | None, cause: FellBehindCause) -> None:
        """Report FellBehind, if CaughtUp was reported and still holds."""
        if self.is_caught_up and position is not None:
            self.is_caught_up = False
            self._report(Report(partial(FellBehind, position, cause=cause)))

    def gap(self, gap: Gap, after: int) -> None:
        """Report the part of the gap after `after`; always report that the topic was recreated."""
        if gap.to_seq > after or gap.reason is GapReason.RECREATED:
            reported = replace(gap, from_seq=max(gap.from_seq, after + 1))
            self._report(Report(lambda _: reported))


# ---- the machine ---------------------------------------------------------------------------------


class FollowMachine:
    """The state of one follower. Methods take events; `next` returns actions.

    The shell completes each action before it asks for the next one. Events of the stream may arrive
    during an action. Events of a stream that was left are ignored. `now` is the monotonic time in
    seconds. Not thread-safe.

    Attributes:
        state: The current state.
        cursor: The position up to which records were passed to the handler. None until the first
            read has returned the end of the log.
        head_seq: The newest known sequence number of the topic.

    Args:
        start: The start position. None: the end of the log, for records that are appended from now
            on.
        rules: The settings that decide between reads and the stream.
        retries: The times of retries between failed reads.
    """

    def __init__(
        self, start: Checkpoint | None, rules: FollowRules, retries: RetryClock | None = None
    ) -> None:
        self.state: FollowState = FollowState.PULL
        self.cursor: Checkpoint | None = start
        self.head_seq: int = 0
        self._rules = rules
        self._retries = retries or read_retries(rules.give_up_after)
        # No read is made before this time.
        self._read_due = 0.0
        self._failures = StreamFailures()
        self._actions: deque[Action] = deque()
        self._progress = ProgressEvents(self._actions.append)
        self._stream = LiveStreamState(rules)
        # The last pull left few enough records for the stream to take over.
        self._is_near = False
        # The user's start number is beyond the end of the log.
        self._began_ahead = False

    @property
    def is_caught_up(self) -> bool:
        """Whether CaughtUp was reported, and FellBehind was not reported after it."""
        return self._progress.is_caught_up

    @property
    def fallbacks(self) -> int:
        """How often a stream had to be left, since the start."""
        return self._failures.count

    @property
    def buffered(self) -> int:
        """Number of records in the live buffer."""
        return len(self._stream.buffer)

    # ---- events: reads -------------------------------------------------------------------------

    def answered(self, result: ReadResult, now: float) -> None:
        """Process the result of a read."""
        if self.state is FollowState.CLOSED:
            return
        self._retries.succeeded()
        self.head_seq = result.head_seq
        if self._is_ahead(result):
            # There is nothing to report or deliver until the log has reached the start number.
            self.cursor = Checkpoint(self._seq, result.epoch)
            self._began_ahead = self._is_near = True
            return
        if self._is_other_incarnation(result.epoch):
            # The topic was deleted and created again, and its numbers start again from 1. Records
            # from a stream of the deleted topic are invalid.
            if self._stream.is_wanted:
                self._return_to_reads("topic deleted", now)
            self.cursor = Checkpoint(0, result.epoch)
        before = result.record_range.to_seq if self.cursor is None else self.cursor.seq
        self.cursor = Checkpoint(before, result.epoch)
        lag = result.head_seq - before
        self._is_near = result.caught_up and lag < max(self._rules.live_buffer / 2, 1)
        if result.gap is not None:
            self._progress.gap(result.gap, self._seq)
        self._actions.append(self._deliver(result.record_range))
        if self.state is FollowState.POLL:
            self._report_poll()

    def failed(self, error: Exception, now: float) -> None:
        """Process a failed read. The next read may succeed."""
        # Until a read succeeds, the follower does not know whether there are more records.
        self._progress.fell_behind(self.cursor, "stream lost")
        due = self._retries.failed(now)
        if due is None:
            self.stop(CloseReason.SERVER_GONE, error)
        else:
            self._read_due = due

    # ---- events: the stream --------------------------------------------------------------------

    def opened(self, stream: int, after_seq: int, epoch: int, now: float) -> None:
        """Process the opening of a stream.

        Args:
            stream: The number of the stream.
            after_seq: The stream delivers all records after this number.
            epoch: The epoch of the topic.
            now: The current monotonic time.
        """
        if self._stream.accepts(stream, now) and self.state is FollowState.SUBSCRIBE:
            if self._is_other_incarnation(epoch):
                self._return_to_reads("topic deleted", now)
                return
            self._stream.begins_after = after_seq
            self._move(FollowState.LAST_PULL)

    def arrived(self, stream: int, record_range: RecordRange, head_seq: int, now: float) -> None:
        """Add a range of records from the stream to the live buffer.

        Args:
            stream: The number of the stream.
            record_range: The records.
            head_seq: The newest sequence number of the topic.
            now: The current monotonic time.
        """
        if self._stream.accepts(stream, now):
            self.head_seq = max(self.head_seq, head_seq)
            self._stream.buffer.add(record_range)

    def heard(self, stream: int, now: float) -> None:
        """Record that the stream is alive."""
        self._stream.accepts(stream, now)

    def lost(self, stream: int, cause: FellBehindCause, now: float) -> None:
        """Leave the stream, because it has ended or misses records. The next read gets the records.

        Args:
            stream: The number of the stream.
            cause: The cause to report to the user.
            now: The current monotonic time.
        """
        if self._stream.accepts(stream, now):
            self._return_to_reads(cause, now)

    def stop(self, reason: CloseReason, error: BaseException | None = None) -> None:
        """End the follower. If called several times, the first reason counts."""
        if self.state is not FollowState.CLOSED:
            # No LeaveStream action: the shell ends the stream when it performs `Close`.
            self._actions.clear()
            self._stream.end()
            self._move(FollowState.CLOSED)
            self._actions.append(Close(reason, error))

    # ---- actions -------------------------------------------------------------------------------

    def next(self, now: float) -> Action:
        """Return the next action. Must not be called after it has returned `Close`."""
        while True:
            if self._actions:
                return self._actions.popleft()
            action = self._step(now)
            if action is not None:
                return action

    def _step(self, now: float) -> Action | None:
        """Return the next action of the current state, or None if the state has changed."""
        match self.state:
            case FollowState.PULL:
                return self._pull(now)
            case FollowState.SUBSCRIBE:
                return self._wait_for_stream(now)
            case FollowState.LAST_PULL:
                return self._last_pull(now)
            case FollowState.DRAIN | FollowState.LIVE:
                return self._live(now)
            case FollowState.POLL:
                return self._poll(now)
        raise RuntimeError("the follower is closed; `next` has already returned Close")

    def _pull(self, now: float) -> Action:
        if not self._is_near:
            return self._read(now)
        self._is_near = False
        self._move(FollowState.SUBSCRIBE)
        return OpenStream(self._stream.begin(now))

    def _last_pull(self, now: float) -> Action | None:
        if self._needs_last_pull():
            return self._read(now)
        first = self._stream.buffer.first
        if first is not None and not self._joins(first):
            self._return_to_reads("overflow", now)
        else:
            self._move(FollowState.DRAIN)
            self._progress.caught_up(self.cursor)
        return None

    def _live(self, now: float) -> Action | None:
        record_range = self._stream.buffer.first
        if record_range is None:
            if self.state is FollowState.DRAIN:
                self._move(FollowState.LIVE)
            return self._wait_for_stream(now)
        if self._joins(record_range):
            return self._deliver(self._stream.buffer.take())
        self._return_to_reads("overflow", now)
        return None

    def _poll(self, now: float) -> Action | None:
        if now < self._failures.poll_until:
            left = min(_LONG_POLL, self._failures.poll_until - now)
            # Read the existing records first, without waiting. Finding none makes the follower
            # caught up.
            return self._read(now, left if self.is_caught_up else 0.0)
        self._move(FollowState.PULL)
        return None

    def _read(self, now: float, wait: float = 0.0) -> Action:
        if now < self._read_due:
            return Wait(self._read_due)
        cursor = self.cursor
        if cursor is not None and self._began_ahead:
            # The broker treats a number beyond the end of the log as a number of a deleted topic.
            cursor = Checkpoint(min(cursor.seq, self.head_seq), cursor.epoch)
        return Read(cursor, wait)

    def _wait_for_stream(self, now: float) -> Action | None:
        if now < self._stream.silent_at:
            return Wait(self._stream.silent_at)
        self._return_to_reads("silence", now)
        return None

    # ---- rules ---------------------------------------------------------------------------------

    @property
    def _seq(self) -> int:
        return 0 if self.cursor is None else self.cursor.seq

    def _needs_last_pull(self) -> bool:
        return self._seq < self._stream.begins_after

    def _joins(self, record_range: RecordRange) -> bool:
        """Return whether no record is missing between the cursor and `record_range`."""
        return record_range.from_seq <= self._seq

    def _unseen(self, record_range: RecordRange) -> list[Record]:
        """Return the records after the cursor."""
        seen = self._seq
        return [record for record in record_range.records if record.seq > seen]

    def _is_other_incarnation(self, epoch: int) -> bool:
        """Return whether the topic was deleted and created again after the cursor was learned."""
        return self.cursor is not None and self.cursor.epoch not in (0, epoch)

    def _is_ahead(self, result: ReadResult) -> bool:
        """Return whether the user's start number is beyond the end of the log.

        The broker reads this number as a position in a deleted topic and reports a gap, because the
        checkpoint has no epoch.
        """
        if self.cursor is None or self.cursor.epoch:
            return False
        return result.gap is not None and result.gap.reason is GapReason.RECREATED

    def _deliver(self, record_range: RecordRange) -> Deliver:
        records = self._unseen(record_range)
        epoch = 0 if self.cursor is None else self.cursor.epoch
        # A start beyond the end does not move until the log has reached it.
        self.cursor = Checkpoint(max(self._seq, record_range.to_seq), epoch)
        return Deliver(records, self.cursor)

    def _report_poll(self) -> None:
        """Report progress while polling; a full live buffer of records counts as behind."""
        if self._is_near:
            self._progress.caught_up(self.cursor)
        elif self.head_seq - self._seq >= self._rules.live_buffer:
            self._progress.fell_behind(self.cursor, "overflow")

    def _return_to_reads(self, cause: FellBehindCause, now: float) -> None:
        """Leave the stream, drop its buffered records, and return to reads."""
        if self._stream.end():
            self._actions.append(LeaveStream(self._stream.number))
        self._progress.fell_behind(self.cursor, cause)
        self._is_near = False
        self._failures.add(now)
        self._move(FollowState.POLL if now < self._failures.poll_until else FollowState.PULL)

    def _move(self, to: FollowState) -> None:
        if not may_follow(self.state, to):
            raise RuntimeError(f"{to} cannot follow {self.state}")
        self.state = to
