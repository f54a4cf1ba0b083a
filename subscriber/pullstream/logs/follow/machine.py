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

from .events import CaughtUp, Checkpoint, CloseReason, Event, FallCause, FellBehind
from .records import LiveBuffer, ReadResult, Record, RecordRange
from .settings import Rules

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
_FALLS = frozenset({FollowState.PULL, FollowState.POLL})

NEXT: dict[FollowState, frozenset[FollowState]] = {
    FollowState.PULL: frozenset({FollowState.SUBSCRIBE}),
    FollowState.SUBSCRIBE: frozenset({FollowState.LAST_PULL}) | _FALLS,
    FollowState.LAST_PULL: frozenset({FollowState.DRAIN}) | _FALLS,
    FollowState.DRAIN: frozenset({FollowState.LIVE}) | _FALLS,
    FollowState.LIVE: _FALLS,
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
class Tell:
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


Action: TypeAlias = "Read | OpenStream | LeaveStream | Deliver | Tell | Wait | Close"


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

    def __init__(self, rules: Rules) -> None:
        self.number: int = 0
        self.is_wanted: bool = False
        self.begins_after: int = 0
        self.silent_at: float = 0.0
        self.buffer: LiveBuffer = LiveBuffer(rules.live_buffer, rules.live_bytes)
        self._patience = rules.patience

    def begin(self, now: float) -> int:
        """Begin another stream and return its number."""
        self.number += 1
        self.is_wanted = True
        self.silent_at = now + self._patience
        return self.number

    def hears(self, stream: int, now: float) -> bool:
        """Return whether an event of this stream counts; if so, record that the stream is alive."""
        counts = self.is_wanted and stream == self.number
        if counts:
            self.silent_at = now + self._patience
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
        tell: Called with each event to report.
    """

    def __init__(self, tell: Callable[[Tell], None]) -> None:
        self.is_caught_up: bool = False
        self._tell = tell

    def caught_up(self, position: Checkpoint | None) -> None:
        """Report CaughtUp, unless it still holds or there is no position yet."""
        if not self.is_caught_up and position is not None:
            self.is_caught_up = True
            self._tell(Tell(partial(CaughtUp, position)))

    def fell_behind(self, position: Checkpoint | None, cause: FallCause) -> None:
        """Report FellBehind, if CaughtUp was reported and still holds."""
        if self.is_caught_up and position is not None:
            self.is_caught_up = False
            self._tell(Tell(partial(FellBehind, position, cause=cause)))

    def gap(self, gap: Gap, after: int) -> None:
        """Report the part of the gap after `after`; always report that the topic was recreated."""
        if gap.to_seq > after or gap.reason is GapReason.RECREATED:
            told = replace(gap, from_seq=max(gap.from_seq, after + 1))
            self._tell(Tell(lambda _: told))


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
        backoff: The pauses between failed reads.
    """

    def __init__(
        self, start: Checkpoint | None, rules: Rules, retries: RetryClock | None = None
    ) -> None:
        self.state: FollowState = FollowState.PULL
        self.cursor: Checkpoint | None = start
        self.head_seq: int = 0
        self._rules = rules
        self._retries = retries or read_retries(rules.give_up_after)
        # No read is made before this time.
        self._read_due = 0.0
        self._falls = StreamFailures()
        self._outbox: deque[Action] = deque()
        self._progress = ProgressEvents(self._outbox.append)
        self._push = LiveStreamState(rules)
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
        return self._falls.count

    @property
    def buffered(self) -> int:
        """Number of records in the live buffer."""
        return len(self._push.buffer)

    # ---- events: reads -------------------------------------------------------------------------

    def answered(self, answer: ReadResult, now: float) -> None:
        """Process the result of a read."""
        if self.state is FollowState.CLOSED:
            return
        self._retries.succeeded()
        self.head_seq = answer.head_seq
        if self._is_ahead(answer):
            # There is nothing to report or deliver until the log has reached the start number.
            self.cursor = Checkpoint(self._seq, answer.epoch)
            self._began_ahead = self._is_near = True
            return
        if self._is_another_life(answer.epoch):
            # The topic was deleted and created again, and its numbers start again from 1. Records
            # from a stream of the deleted topic are invalid.
            if self._push.is_wanted:
                self._fall("topic deleted", now)
            self.cursor = Checkpoint(0, answer.epoch)
        before = answer.run.to_seq if self.cursor is None else self.cursor.seq
        self.cursor = Checkpoint(before, answer.epoch)
        lag = answer.head_seq - before
        self._is_near = answer.caught_up and lag < max(self._rules.live_buffer / 2, 1)
        if answer.gap is not None:
            self._progress.gap(answer.gap, self._seq)
        self._outbox.append(self._deliver(answer.run))
        if self.state is FollowState.POLL:
            self._judge_poll()

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
        if self._push.hears(stream, now) and self.state is FollowState.SUBSCRIBE:
            if self._is_another_life(epoch):
                self._fall("topic deleted", now)
                return
            self._push.begins_after = after_seq
            self._move(FollowState.LAST_PULL)

    def arrived(self, stream: int, run: RecordRange, head_seq: int, now: float) -> None:
        """Add a range of records from the stream to the live buffer.

        Args:
            stream: The number of the stream.
            run: The records.
            head_seq: The newest sequence number of the topic.
            now: The current monotonic time.
        """
        if self._push.hears(stream, now):
            self.head_seq = max(self.head_seq, head_seq)
            self._push.buffer.add(run)

    def heard(self, stream: int, now: float) -> None:
        """Record that the stream is alive."""
        self._push.hears(stream, now)

    def lost(self, stream: int, cause: FallCause, now: float) -> None:
        """Leave the stream, because it has ended or misses records. The next read gets the records.

        Args:
            stream: The number of the stream.
            cause: The cause to report to the user.
            now: The current monotonic time.
        """
        if self._push.hears(stream, now):
            self._fall(cause, now)

    def stop(self, reason: CloseReason, error: BaseException | None = None) -> None:
        """End the follower. If called several times, the first reason counts."""
        if self.state is not FollowState.CLOSED:
            # No LeaveStream action: the shell ends the stream when it performs `Close`.
            self._outbox.clear()
            self._push.end()
            self._move(FollowState.CLOSED)
            self._outbox.append(Close(reason, error))

    # ---- actions -------------------------------------------------------------------------------

    def next(self, now: float) -> Action:
        """Return the next action. Must not be called after it has returned `Close`."""
        while True:
            if self._outbox:
                return self._outbox.popleft()
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
        return OpenStream(self._push.begin(now))

    def _last_pull(self, now: float) -> Action | None:
        if self._needs_last_pull():
            return self._read(now)
        first = self._push.buffer.first
        if first is not None and not self._joins(first):
            self._fall("overflow", now)
        else:
            self._move(FollowState.DRAIN)
            self._progress.caught_up(self.cursor)
        return None

    def _live(self, now: float) -> Action | None:
        run = self._push.buffer.first
        if run is None:
            if self.state is FollowState.DRAIN:
                self._move(FollowState.LIVE)
            return self._wait_for_stream(now)
        if self._joins(run):
            return self._deliver(self._push.buffer.take())
        self._fall("overflow", now)
        return None

    def _poll(self, now: float) -> Action | None:
        if now < self._falls.poll_until:
            left = min(_LONG_POLL, self._falls.poll_until - now)
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
        if now < self._push.silent_at:
            return Wait(self._push.silent_at)
        self._fall("silence", now)
        return None

    # ---- rules ---------------------------------------------------------------------------------

    @property
    def _seq(self) -> int:
        return 0 if self.cursor is None else self.cursor.seq

    def _needs_last_pull(self) -> bool:
        return self._seq < self._push.begins_after

    def _joins(self, run: RecordRange) -> bool:
        """Return whether no record is missing between the cursor and `run`."""
        return run.from_seq <= self._seq

    def _unseen(self, run: RecordRange) -> list[Record]:
        """Return the records after the cursor."""
        seen = self._seq
        return [record for record in run.records if record.seq > seen]

    def _is_another_life(self, epoch: int) -> bool:
        """Return whether the topic was deleted and created again after the cursor was learned."""
        return self.cursor is not None and self.cursor.epoch not in (0, epoch)

    def _is_ahead(self, answer: ReadResult) -> bool:
        """Return whether the user's start number is beyond the end of the log.

        The broker reads this number as a position in a deleted topic and reports a gap, because the
        checkpoint has no epoch.
        """
        if self.cursor is None or self.cursor.epoch:
            return False
        return answer.gap is not None and answer.gap.reason is GapReason.RECREATED

    def _deliver(self, run: RecordRange) -> Deliver:
        records = self._unseen(run)
        epoch = 0 if self.cursor is None else self.cursor.epoch
        # A start beyond the end does not move until the log has reached it.
        self.cursor = Checkpoint(max(self._seq, run.to_seq), epoch)
        return Deliver(records, self.cursor)

    def _judge_poll(self) -> None:
        """Report progress while polling; a full live buffer of records counts as behind."""
        if self._is_near:
            self._progress.caught_up(self.cursor)
        elif self.head_seq - self._seq >= self._rules.live_buffer:
            self._progress.fell_behind(self.cursor, "overflow")

    def _fall(self, cause: FallCause, now: float) -> None:
        """Leave the stream, drop its buffered records, and return to reads."""
        if self._push.end():
            self._outbox.append(LeaveStream(self._push.number))
        self._progress.fell_behind(self.cursor, cause)
        self._is_near = False
        self._falls.add(now)
        self._move(FollowState.POLL if now < self._falls.poll_until else FollowState.PULL)

    def _move(self, to: FollowState) -> None:
        if not may_follow(self.state, to):
            raise RuntimeError(f"{to} cannot follow {self.state}")
        self.state = to
