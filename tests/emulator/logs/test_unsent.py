"""Frames that are not sent yet: their memory, and the order of readers when it is short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine.log import Usage
from pullstream_emulator.logs import unsent
from pullstream_emulator.logs.unsent import COPIES, Unsent
from pullstream_emulator.logs.watch import session_size
from pullstream_protocol.errors import Aborted, ResourceExhausted
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.emulator.logs.driver import TOPIC, Driver, Reader, kinds, seqs

SESSION = session_size(feeds.WatchSpec(topics={TOPIC: feeds.Position()}))
LARGE = "x" * 100_000


def in_use(driver: Driver) -> int:
    """Return the memory of unsent frames, without the sessions."""
    usage = driver.engine.registry.usage
    return usage.watches - SESSION * len(driver.feeds._sessions)


def full_broker(readers: int) -> tuple[Driver, list[Reader]]:
    """Return a broker without free memory, and readers that have not received anything."""
    driver = Driver(max_bytes=100_400 + SESSION * readers)
    driver.put()
    watches = [driver.watch() for _ in range(readers)]
    driver.append(LARGE)
    driver.append("x" * 200)
    return driver, [Reader(watch) for watch in watches]


def test_an_unsent_watch_frame_counts_as_used_memory_until_the_frame_is_written() -> None:
    """The frame counts twice: as a message, and as its bytes on the wire."""
    driver = Driver()
    driver.put()
    driver.append(LARGE)
    reader = Reader(driver.watch())
    frame = reader.next()
    assert frame is not None
    assert in_use(driver) == COPIES * frame.ByteSize()
    assert kinds(reader.take()) == ["caught_up"]
    assert in_use(driver) == 0


def test_unsent_watch_frames_count_towards_the_byte_limit_of_the_broker() -> None:
    """Publishers are refused while the frame is unsent."""
    driver = Driver(max_bytes=400_000 + SESSION)
    driver.put()
    driver.append(LARGE)
    reader = Reader(driver.watch())
    reader.next()
    with pytest.raises(ResourceExhausted, match="bytes of watches"):
        driver.append(LARGE)
    reader.take()
    driver.append(LARGE)


def test_a_broker_at_its_byte_limit_serves_watch_readers_one_after_the_other() -> None:
    """All frames together use the memory of one frame at most, and every reader is served."""
    driver, readers = full_broker(5)
    got: list[list[str | None]] = [[] for _ in readers]
    most = 0
    busy = list(range(5))
    while busy:
        index = busy.pop(0)
        frame = readers[index].next()
        most = max(most, in_use(driver))
        if frame is not None:
            got[index] += kinds([frame])
        # Like a server, continue a reader when its frame is written or when it was woken.
        ready = {i for i, reader in enumerate(readers) if reader.wakes} | (
            {index} if frame else set()
        )
        for each in ready.difference(busy):
            readers[each].wakes = 0
            busy.append(each)
    assert got == [["messages", "caught_up"]] * len(readers)
    assert COPIES * len(LARGE) < most < 2 * COPIES * len(LARGE)
    assert in_use(driver) == 0


def test_watch_readers_are_served_in_the_order_in_which_they_began_to_wait_for_memory() -> None:
    """Readers are served in the order in which they began to wait."""
    _, (one, two, three) = full_broker(3)
    assert one.next() is not None
    assert two.next() is None
    assert three.next() is None
    # Its frame is written, and it asks for the next one.
    assert one.next() is None
    assert (two.wakes, three.wakes) == (1, 0)
    # It is not this reader's turn.
    assert three.next() is None
    assert two.next() is not None
    assert two.next() is None
    assert three.wakes == 1
    assert three.next() is not None


def test_when_a_watch_stream_ends_the_next_reader_that_waits_for_memory_is_served() -> None:
    """The rule holds for a stream that writes a frame and for one that waits."""
    driver, (one, two, three) = full_broker(3)
    one.next()
    two.next()
    three.next()
    one.stream.detach()
    assert (two.wakes, three.wakes) == (1, 0)
    two.stream.detach()
    assert three.wakes == 1
    assert three.next() is not None
    three.stream.detach()
    assert in_use(driver) == 0


def test_a_watch_reader_that_waits_for_memory_gets_heartbeats() -> None:
    """Without heartbeats it would conclude that the broker is gone."""
    driver, (one, two) = full_broker(2)
    one.next()
    assert two.next() is None
    driver.advance(4)
    assert one.next() is None
    driver.advance(16)
    assert kinds(two.take()[:1]) == ["messages"]
    driver.advance(4)
    assert one.next() is not None


def test_the_stream_of_a_slow_watch_reader_is_ended_when_other_readers_need_its_memory() -> None:
    """No record is lost, because its watch continues with another stream."""
    driver, (slow, other) = full_broker(2)
    token = slow.watch.resume_token
    slow.next()
    assert other.next() is None
    driver.advance(4.9)
    assert other.wakes == 0
    driver.advance(0.1)
    with pytest.raises(Aborted, match="the broker needs the memory"):
        slow.next()
    assert other.wakes == 1
    assert other.next() is not None
    other.take()
    slow.watch.rewind(token)
    frames = Reader(slow.watch).take()
    assert seqs(frames[0].messages.messages) == [1, 2]


def test_a_slow_watch_reader_blocks_publishers_for_five_seconds_at_most() -> None:
    """Publishers are refused for 5 s. Otherwise a slow reader may block them for 30 s."""
    driver = Driver(max_bytes=400_000 + SESSION)
    driver.put()
    driver.append(LARGE)
    slow = Reader(driver.watch())
    slow.next()
    driver.advance(4.9)
    with pytest.raises(ResourceExhausted, match="bytes of watches"):
        driver.append(LARGE)
    assert slow.stream.ended is None
    driver.advance(0.1)
    driver.append(LARGE)
    assert slow.stream.ended is not None


def test_the_stream_of_an_already_slow_watch_reader_ends_at_once_when_others_need_memory() -> None:
    """Without other readers it would have had 30 s."""
    driver, (slow, other) = full_broker(2)
    slow.next()
    driver.advance(6)
    assert slow.stream.ended is None
    assert other.next() is None
    assert slow.stream.ended is not None
    assert other.next() is not None


def test_unsent_watch_frames_together_stay_within_their_own_byte_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit applies even if messages have no limit, and is exceeded by at most one frame."""
    monkeypatch.setattr(unsent, "MAX_UNSENT_BYTES", 500_000)
    driver = Driver()
    driver.put()
    driver.append(LARGE)
    readers = [Reader(driver.watch()) for _ in range(10)]
    assert [reader.next() is not None for reader in readers] == [True] * 3 + [False] * 7
    assert 500_000 <= in_use(driver) < 500_000 + 2 * COPIES * len(LARGE)


class _Stream:
    """A stream that makes a frame when it is woken, while it has some."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.is_awake = True
        self.is_writing = False
        self.is_slow = False
        self.has_ended = False

    def wake(self) -> None:
        self.is_awake = True

    def give_way(self) -> None:
        raise AssertionError("it is not slow")


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(1, 100), min_size=1),
    st.integers(0, 200),
    st.randoms(use_true_random=False),
)
def test_every_watch_stream_sends_all_its_frames_when_memory_for_frames_is_scarce(
    frames: list[int], sizes: list[int], room: int, random: object
) -> None:
    """The frames are written in any order of the streams, and also if some of them end early."""
    usage = Usage()
    memory = Unsent(usage, lambda: room - usage.watches)
    streams = [_Stream(count) for count in frames]
    step = 0
    while running := [s for s in streams if not s.has_ended and (s.is_awake or s.is_writing)]:
        stream = random.choice(running)  # type: ignore[attr-defined]
        step += 1
        if step % 7 == 0:
            stream.has_ended = True
            memory.leave(stream)
            continue
        stream.is_awake = stream.is_writing = False
        memory.release(stream)
        if stream.frames and memory.admits(stream):
            before = usage.watches
            assert before == 0 or before < room
            memory.reserve(stream, sizes[step % len(sizes)])
            stream.frames -= 1
            stream.is_writing = True
            memory.wake_next()
    assert all(stream.has_ended or not stream.frames for stream in streams)
    assert usage.watches == 0
