"""A watch over streams that break at any time: every number comes once, or a gap reports it."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from pullstream.feeds import Frame, Gap, Opened, Records
from pullstream.logs.feeds.resumable_watch import ResumableWatch
from pullstream_protocol.errors import NotFound, Unavailable
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.subscriber.feeding import NEWS, gap, opened, records

STEPS = st.lists(
    st.sampled_from(["append", "trim", "send", "receive", "handle", "break", "restart"]),
    min_size=1,
    max_size=60,
)


class BrokerModel:
    """One topic and at most one session, whose cursor is ahead of the handled frames."""

    def __init__(self) -> None:
        self.head = 3
        self.floor = 0
        self._sessions: dict[str, int] = {}
        self._made = 0
        self._open = ""

    def open(self, request: feeds.WatchRequest) -> feeds.Frame:
        if request.watch_id:
            if request.watch_id not in self._sessions:
                raise NotFound("no such watch")
            # The position can only go back.
            cursor = min(self._position(request), self._sessions[request.watch_id])
            self._open = request.watch_id
        else:
            cursor = self._position(request)
            self._made += 1
            self._open = f"w-{self._made}"
        self._sessions[self._open] = cursor
        return opened({NEWS: cursor}, watch_id=self._open)

    def _position(self, request: feeds.WatchRequest) -> int:
        if request.resume_token:
            return int(request.resume_token.partition("@")[2])
        position = request.spec.topics[NEWS]
        return self.head if position.tail else position.after_seq

    def next_frame(self) -> feeds.Frame | None:
        cursor = self._sessions[self._open]
        if cursor < self.floor:
            self._sessions[self._open] = self.floor
            return gap(NEWS, cursor + 1, self.floor, feeds.GapReason.CAP)
        if cursor == self.head:
            return None
        to = min(cursor + 2, self.head)
        self._sessions[self._open] = to
        return records(NEWS, *range(cursor + 1, to + 1))

    def restart(self) -> None:
        self._sessions.clear()


class Run:
    """A reader and its broker, and the frames in between."""

    def __init__(self, *, tail: bool) -> None:
        self.broker = BrokerModel()
        spec = feeds.WatchSpec()
        position = spec.topics[NEWS]
        if tail:
            position.tail = True
        else:
            position.after_seq = 0
        self.session = ResumableWatch(spec)
        self.wire: deque[feeds.Frame] = deque()
        self.unhandled: deque[tuple[feeds.Frame, Frame | None]] = deque()
        self.expected: int | None = None if tail else 1
        self.open()

    def open(self) -> None:
        self.wire.append(self.broker.open(self.session.request()))

    def step(self, name: str) -> None:
        if name == "append":
            self.broker.head += 1
        elif name == "trim":
            self.broker.floor = self.broker.head - 1
        elif name == "send":
            frame = self.broker.next_frame()
            self.wire.extend([frame] if frame is not None else [])
        elif name == "receive" and self.wire:
            self.receive()
        elif name == "handle" and (self.unhandled or self.wire):
            if not self.unhandled:
                self.receive()
            self.handle()
        elif name in ("break", "restart"):
            self.break_off(restart=name == "restart")

    def break_off(self, *, restart: bool) -> None:
        # Received frames that were not handled are lost, too.
        self.wire.clear()
        self.unhandled.clear()
        if restart:
            self.broker.restart()
        self.session.broken(Unavailable("gone"))
        try:
            self.open()
        except NotFound as error:
            self.session.broken(error)
            self.open()

    def receive(self) -> None:
        wire = self.wire.popleft()
        self.unhandled.append((wire, self.session.received(wire)))

    def handle(self) -> None:
        wire, frame = self.unhandled.popleft()
        if isinstance(frame, Opened) and self.expected is None:
            self.expected = frame.topics[NEWS].after_seq + 1
        elif isinstance(frame, Records):
            assert int(frame.messages[0].message_id) == self.expected
            self.expected = frame.to_seq + 1
        elif isinstance(frame, Gap):
            assert frame.from_seq == self.expected
            self.expected = frame.to_seq + 1
        self.session.handled(wire)

    def drain(self) -> None:
        """Let everything arrive."""
        while (frame := self.broker.next_frame()) is not None:
            self.wire.append(frame)
        while self.wire:
            self.receive()
        while self.unhandled:
            self.handle()


@given(STEPS, st.booleans())
# The failures if a token is not kept, or if it is kept before its frame is handled.
@example(["send", "handle", "handle", "break"], False)
@example(["send", "receive", "receive", "handle", "break"], False)
def test_a_watch_delivers_every_sequence_number_of_a_feed_once_or_reports_a_gap(
    steps: list[str], tail: bool
) -> None:
    """The reader gets each number from its start to the head in order, after any failures."""
    run = Run(tail=tail)
    for step in steps:
        run.step(step)
    run.drain()
    assert run.expected == run.broker.head + 1
