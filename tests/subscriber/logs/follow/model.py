"""Minimal models of a log, a broker's reads and streams, and a shell, driven at random.

A run may have appends, trims, a recreated topic, failed reads, broken streams with frames in
flight, a slow handler, and passing time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cache

from pullstream.feeds import GapReason
from pullstream.logs.follow.events import CaughtUp, Checkpoint, Event, FellBehind, Gap
from pullstream.logs.follow.machine import (
    Action,
    Close,
    Deliver,
    FollowMachine,
    FollowState,
    LeaveStream,
    OpenStream,
    Read,
    Report,
    Wait,
)
from pullstream.logs.follow.records import ReadResult, Record, RecordRange
from pullstream.logs.follow.settings import FollowRules
from pullstream_protocol.errors import Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub

BUFFER = 6
TIMEOUT = 30.0
_FRAME = 3
_READ = 5

_PULLING = (FollowState.PULL, FollowState.LAST_PULL, FollowState.POLL)

# A delivery of a stream, applied to the machine at a given time.
Arrival = Callable[[FollowMachine, float], None]
NewMachine = Callable[[Checkpoint | None, FollowRules], FollowMachine]


class Violation(AssertionError):
    """The machine has broken a guarantee."""


@cache
def record(seq: int, epoch: int) -> Record:
    return Record(pubsub.PubsubMessage(message_id=str(seq), ordering_key=str(epoch)), "topic")


class Log:
    """A topic: numbers up to `head`, of which those above `floor` can be read."""

    def __init__(self) -> None:
        self.epoch = 1
        self.head = 0
        self.floor = 0

    def run(self, after: int, limit: int) -> RecordRange:
        first = max(after, self.floor)
        last = min(self.head, first + limit)
        return RecordRange(
            after, max(last, after), [record(n, self.epoch) for n in range(first + 1, last + 1)]
        )

    def read(self, after: Checkpoint | None) -> ReadResult:
        if after is None:
            return ReadResult(RecordRange(self.head, self.head), self.head, True, self.epoch)
        gap, start = None, after.seq
        if after.epoch not in (0, self.epoch) or start > self.head:
            gap, start = self._gap(1, self.floor, GapReason.RECREATED), self.floor
        elif start < self.floor:
            gap = self._gap(start + 1, self.floor, GapReason.CAP)
        run = self.run(start, _READ)
        return ReadResult(run, self.head, run.to_seq >= self.head, self.epoch, gap)

    def _gap(self, first: int, last: int, reason: GapReason) -> Gap:
        return Gap("topic", first, last, reason, GapReason.UNKNOWN, self.floor + 1, self.head)


class Stream:
    """The server side of a stream: its position, and its frames in flight."""

    def __init__(self, log: Log, number: int) -> None:
        self.number = number
        self.position = log.head
        self.epoch = log.epoch
        self.under_way: deque[Arrival] = deque()
        after, epoch = log.head, log.epoch
        self.under_way.append(lambda m, now: m.opened(number, after, epoch, now))

    def pump(self, log: Log) -> None:
        """Send the next frame or gap, or that the topic was deleted."""
        number = self.number
        if self.epoch != log.epoch:
            self.under_way.append(lambda m, now: m.lost(number, "topic deleted", now))
            self.epoch = log.epoch
        elif self.position < log.floor:
            self.position = log.floor
            self.under_way.append(lambda m, now: m.lost(number, "gap", now))
        elif self.position < log.head:
            run, head = log.run(self.position, _FRAME), log.head
            self.position = run.to_seq
            self.under_way.append(lambda m, now: m.arrived(number, run, head, now))


class Witness:
    """Checks the follower's output and events against its guarantees."""

    def __init__(self, start: Checkpoint | None) -> None:
        self.reported: list[Event] = []
        self.handed: list[tuple[int, int]] = []
        self._last = start
        self._behind = True

    def began_at(self, seq: int) -> None:
        """Set the position. Only the broker knew the end of the log."""
        self._last = Checkpoint(seq)

    def told_of(self, event: Event) -> None:
        self.reported.append(event)
        if isinstance(event, (CaughtUp, FellBehind)):
            behind = isinstance(event, FellBehind)
            if behind == self._behind:
                raise Violation(f"{event} does not alternate")
            self._behind = behind
        if isinstance(event, Gap) and self._last is not None:
            if event.reason is GapReason.RECREATED:
                self._last = Checkpoint(event.to_seq)
            elif event.from_seq != self._last.seq + 1:
                raise Violation(f"{event} after {self._last}")
            else:
                self._last = Checkpoint(event.to_seq, self._last.epoch)

    def was_handed(self, each: Record) -> None:
        epoch = int(each.ordering_key)
        last = self._last
        if last is not None:
            if last.epoch not in (0, epoch):
                raise Violation(f"{each} of epoch {epoch} after {last} without a word")
            if each.seq <= last.seq:
                raise Violation(f"{each} again or out of order after {last}")
            if each.seq != last.seq + 1:
                raise Violation(f"{each} after {last}: some are missing without a word")
        self._last = Checkpoint(each.seq, epoch)
        self.handed.append((epoch, each.seq))

    def knows(self, log: Log) -> bool:
        """Return whether all records were handed out."""
        last = self._last
        return last is not None and last.seq >= log.head and last.epoch in (0, log.epoch)


class World:
    """One run: a machine, its shell split into single steps, and the events around it."""

    def __init__(self, seed: int, new_machine: NewMachine = FollowMachine) -> None:
        self._random = random.Random(seed)
        self.now = 0.0
        self.log = Log()
        self._append(self._random.randrange(8))
        # Also from the end, and from a number in the future.
        from_end = self._random.random() < 0.2
        start = None if from_end else Checkpoint(self._random.randint(0, self.log.head + 3))
        self.machine = new_machine(start, FollowRules(live_buffer=BUFFER, silence_limit=TIMEOUT))
        self.witness = Witness(start)
        self._stream: Stream | None = None
        self._late: deque[Arrival] = deque()
        self._answer: ReadResult | None = None
        self._action: Action | None = None
        self._records: deque[Record] = deque()

    def run(self, steps: int = 60) -> None:
        """Run random events, then wait for calm and check that nothing is missing."""
        cuts = self._random.choice((0, 1, 1, 12))
        happenings = [self._work] * 8 + [self._carry] * 4 + [self._pump] * 4
        happenings += [self._append] * 3 + [self._trim, self._tick] + [self._cut] * cuts
        choice = self._random.choice
        for _ in range(steps):
            choice(happenings)()
        if self._random.random() < 0.1:
            self._recreate()
            for _ in range(steps):
                choice(happenings)()
        self._settle()

    def _settle(self) -> None:
        for _ in range(400):
            self._pump()
            self._carry()
            self._work(well=True)
            if self._is_quiet():
                break
        else:
            raise Violation(f"never comes to rest: {self.machine.state}")
        if not self.witness.knows(self.log):
            raise Violation(f"{self.log.head} never came; last {self.witness.handed[-1:]}")

    def _is_quiet(self) -> bool:
        stream = self._stream
        return (
            self.machine.state is FollowState.LIVE
            and isinstance(self._action, Wait)
            and self.machine.buffered == 0
            and stream is not None
            and not stream.under_way
            and stream.position == self.log.head
            and stream.epoch == self.log.epoch
        )

    # ---- events --------------------------------------------------------------------------------

    def _append(self, count: int | None = None) -> None:
        self.log.head += self._random.randint(1, 4) if count is None else count

    def _trim(self) -> None:
        self.log.floor = self._random.randint(self.log.floor, self.log.head)

    def _recreate(self) -> None:
        self.log.epoch += 1
        self.log.head = self.log.floor = 0
        self._append(self._random.randrange(6))

    def _tick(self) -> None:
        self.now += self._random.choice((0.1, 1.0, 20.0))

    def _cut(self) -> None:
        """Break the stream. Some frames in flight still arrive."""
        stream, self._stream = self._stream, None
        if stream is not None:
            for _ in range(self._random.randint(0, len(stream.under_way))):
                stream.under_way.popleft()(self.machine, self.now)
            self.machine.lost(stream.number, "stream lost", self.now)

    def _pump(self) -> None:
        if self._stream is not None:
            self._stream.pump(self.log)

    def _carry(self) -> None:
        if self._late and self._random.random() < 0.5:
            self._late.popleft()(self.machine, self.now)
        if self._stream is not None and self._stream.under_way:
            self._stream.under_way.popleft()(self.machine, self.now)

    # ---- the shell, step by step ---------------------------------------------------------------

    def _work(self, well: bool = False) -> None:
        """Do one step of the shell's current work, or begin the next action."""
        if self._records:
            self.witness.was_handed(self._records.popleft())
        elif isinstance(self._action, Read):
            self._read(self._action, well)
        else:
            self._begin(self.machine.next(self.now), well)

    def _read(self, action: Read, well: bool) -> None:
        """Read in two steps: the broker makes an answer, then it arrives.

        The log may grow in between.
        """
        if self._answer is None:
            self._answer = self.log.read(action.after)
            if action.after is None:
                self.witness.began_at(self._answer.record_range.to_seq)
            return
        answer, self._answer, self._action = self._answer, None, None
        if not answer.record_range.records:
            self.now += action.wait
        if not well and self._random.random() < 0.1:
            self.machine.failed(Unavailable("lost"), self.now)
        else:
            self.machine.answered(answer, self.now)

    def _begin(self, action: Action, well: bool) -> None:
        self._action = action
        match action:
            case Deliver():
                self._records.extend(action.records)
            case Report():
                self.witness.told_of(action.event(datetime.fromtimestamp(self.now, timezone.utc)))
            case OpenStream():
                self._stream = Stream(self.log, action.number)
            case LeaveStream() if self._stream and self._stream.number == action.number:
                # The reader may still have more frames.
                self._late.extend(self._stream.under_way)
                self._stream = None
            case Wait() if well and self.machine.state in _PULLING:
                self.now = max(self.now, action.until)
            case Close():
                raise Violation(f"closed: {action}")
