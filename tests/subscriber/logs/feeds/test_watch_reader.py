"""One watch on scripted streams: frames for the handler, reasons to end, and time limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from pullstream.feeds import Frame, Opened, Records, TopicDeleted
from pullstream.logs.feeds.resumable_watch import ResumableWatch
from pullstream.logs.feeds.watch_reader import WatchFuture, WatchReader
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Internal, InvalidArgument, NotFound, Unavailable
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.contract.watching import Held
from tests.subscriber.feeding import HEARTBEAT, NEWS, Stream, Streams, deleted, opened, records
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


class Stage:
    """A watch, its streams, and the frames that its handler got."""

    def __init__(self, then: Callable[[Frame], object] = lambda frame: None) -> None:
        self.clock = ManualClock()
        self.streams = Streams()
        self.frames: list[Frame] = []
        self.threads: set[str] = set()
        self._then = then
        spec = feeds.WatchSpec()
        spec.topics[NEWS].tail = True
        session = ResumableWatch(spec)
        self.watch = WatchReader(
            self.streams, session, self._handle, heartbeat=15.0, clock=self.clock
        )
        self.future = self.watch.future
        self.watch.start()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.stop()

    def _handle(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.threads.add(threading.current_thread().name)
        self._then(frame)

    @property
    def state(self) -> SubscriptionState:
        return self.future.state

    @property
    def seqs(self) -> list[int]:
        some = [frame for frame in self.frames if isinstance(frame, Records)]
        return [int(message.message_id) for frame in some for message in frame.messages]

    def begin(self) -> Stream:
        """Open the first stream and return it."""
        stream = self.streams.next()
        stream.send(opened({NEWS: 0}))
        eventually(lambda: len(self.frames) == 1 and self.is_waiting)
        return stream

    @property
    def is_waiting(self) -> bool:
        """Return whether the watch waits for the server, with its silence timer running."""
        return self.watch._silence_timer._waiting_since is not None

    def wait_for_seqs(self, *seqs: int) -> None:
        eventually(lambda: self.seqs == list(seqs))


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as one:
        yield one


def ended(stage: Stage) -> BaseException | None:
    return stage.future.exception(timeout=TIMEOUT)


def test_a_watch_passes_its_frames_to_the_handler_in_order_on_one_thread(stage: Stage) -> None:
    """The handler does not get heartbeats."""
    stream = stage.begin()
    stream.send(records(NEWS, 1, 2), HEARTBEAT, records(NEWS, 3))
    stage.wait_for_seqs(1, 2, 3)
    assert isinstance(stage.frames[0], Opened)
    assert len(stage.frames) == 3
    assert stage.threads == {"pullstream-watch"}


def test_a_watch_reopens_a_broken_stream_after_a_pause(stage: Stage) -> None:
    """The new stream begins after the last handled frame, and the handler gets Opened again."""
    first = stage.begin()
    first.send(records(NEWS, 1))
    stage.wait_for_seqs(1)
    first.end(Unavailable("gone"))
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    stage.clock.advance(2.0)
    second = stage.streams.next()
    assert second.request == feeds.WatchRequest(watch_id="w-1", resume_token=f"{NEWS}@1")
    second.send(opened({NEWS: 1}), records(NEWS, 2))
    stage.wait_for_seqs(1, 2)
    assert sum(isinstance(frame, Opened) for frame in stage.frames) == 2
    assert stage.future.resume_token == f"{NEWS}@2"


def test_a_watch_reopens_a_stream_that_the_server_ended_with_status_ok(stage: Stage) -> None:
    """Only the reader ends a watch."""
    stage.begin().end()
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    stage.clock.advance(2.0)
    stage.streams.next()


def test_a_watch_that_receives_invalid_frame_bytes_opens_a_new_stream(stage: Stage) -> None:
    """The watch opens another stream."""
    first = stage.begin()
    first.respond_bytes(b"\xff")
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    assert first.cancelled
    stage.clock.advance(2.0)
    stage.streams.next().send(opened({NEWS: 0}), records(NEWS, 1))
    stage.wait_for_seqs(1)


def test_a_permanent_error_of_the_server_is_raised_by_the_future_of_the_watch(stage: Stage) -> None:
    """The future raises the error, and the threads end."""
    stage.streams.next().end(NotFound("no such topic"))
    assert isinstance(ended(stage), NotFound)
    stage.watch.join()
    assert stage.state is SubscriptionState.CLOSED


def test_a_watch_ends_successfully_when_all_its_topics_are_deleted() -> None:
    """The handler gets TopicDeleted, and the future's result is a success."""
    with Stage() as stage:
        stream = stage.begin()
        stream.send(deleted(NEWS))
        assert stage.future.result(timeout=TIMEOUT)
        assert stage.frames[1:] == [TopicDeleted(NEWS)]
        assert stream.cancelled


# ---- the silence timer ---------------------------------------------------------------------------


def test_a_watch_reopens_a_stream_that_was_silent_for_two_heartbeat_intervals(stage: Stage) -> None:
    """The client cancels the silent stream."""
    first = stage.begin()
    stage.clock.advance(29.9)
    assert not first.cancelled
    stage.clock.advance(0.1)
    eventually(lambda: first.cancelled)
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    stage.clock.advance(2.0)
    stage.streams.next()


def test_a_watch_keeps_a_stream_that_receives_only_heartbeats_open(stage: Stage) -> None:
    """Each heartbeat restarts the timer."""
    stream = stage.begin()
    for number in range(1, 6):
        stage.clock.advance(20.0)
        stream.send(HEARTBEAT, records(NEWS, number))
        stage.wait_for_seqs(*range(1, number + 1))
    assert not stream.cancelled


def test_a_watch_cancels_a_stream_whose_opening_the_server_does_not_answer_in_time(
    stage: Stage,
) -> None:
    """The time limit also covers the opening of the stream."""
    first = stage.streams.next()
    eventually(lambda: stage.is_waiting)
    stage.clock.advance(30.0)
    eventually(lambda: first.cancelled)


def test_the_running_time_of_a_watch_handler_does_not_count_as_silence_of_the_stream() -> None:
    """The timer does not run while the handler runs."""
    held = Held()
    with Stage(held) as stage:
        stream = stage.begin()
        stream.send(records(NEWS, 1))
        held.wait()
        stage.clock.advance(100.0)
        held.release()
        stream.send(records(NEWS, 2))
        stage.wait_for_seqs(1, 2)
        assert not stream.cancelled


# ---- the handler ---------------------------------------------------------------------------------


def test_an_exception_of_a_watch_handler_ends_the_watch_and_is_raised_by_its_future(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The future has the handler's error.

    The frame does not count as handled, and no frame follows.
    """

    def handle(frame: Frame) -> None:
        if isinstance(frame, Records) and frame.to_seq == 2:
            raise ZeroDivisionError

    with Stage(handle) as stage:
        stream = stage.begin()
        stream.send(records(NEWS, 1), records(NEWS, 2), records(NEWS, 3))
        assert isinstance(ended(stage), ZeroDivisionError)
        assert stage.seqs == [1, 2]
        assert stage.future.resume_token == f"{NEWS}@1"
        assert stream.cancelled
    assert "the frame handler raised an error" in caplog.text


def test_an_rpc_error_raised_by_a_watch_handler_ends_the_watch_without_a_retry() -> None:
    """The watch does not mistake it for an error of the stream."""

    def handle(frame: Frame) -> None:
        raise Unavailable("elsewhere")

    with Stage(handle) as stage:
        stage.streams.next().send(opened({NEWS: 0}))
        assert isinstance(ended(stage), Unavailable)


# ---- the end -------------------------------------------------------------------------------------


def test_closing_a_watch_waits_for_the_running_handler_and_the_end_of_the_watch_thread() -> None:
    """Later frames are not handled even if they have arrived."""
    held = Held()
    with Stage(held) as stage:
        stream = stage.begin()
        stream.send(records(NEWS, 1), records(NEWS, 2))
        held.wait()
        stage.future.begin_close()
        assert stage.state.value == "closing"
        assert not stage.future.done()
        held.release()
        assert stage.future.close()
        assert stage.future.result() is True
        assert stage.seqs == [1]
        assert not stage.watch._thread.is_alive()
        assert stage.state is SubscriptionState.CLOSED


def test_closing_a_watch_in_its_own_handler_does_not_wait_for_the_end_of_the_watch() -> None:
    """The close would wait for itself."""
    here: list[WatchFuture] = []
    closed: list[bool] = []
    with Stage(lambda frame: closed.append(here[0].close())) as stage:
        here.append(stage.future)
        stage.streams.next().send(opened({NEWS: 0}))
        assert stage.future.result(timeout=TIMEOUT)
        assert closed == [False]


def test_closing_a_watch_during_its_reconnect_pause_ends_the_pause(stage: Stage) -> None:
    """No new stream is opened."""
    stage.begin().end(Unavailable("gone"))
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    assert stage.future.cancel()
    assert stage.future.result(timeout=TIMEOUT)


def test_a_stream_that_opens_while_its_watch_is_being_closed_is_cancelled(stage: Stage) -> None:
    """The thread that stopped the watch could not see the new stream."""
    first = stage.begin()
    begun: list[Stream] = []

    def begin_late(request: feeds.WatchRequest) -> Stream:
        stage.watch.stop()
        begun.append(Stream(request))
        return begun[0]

    stage.watch._begin = begin_late
    first.end(Unavailable("gone"))
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    stage.clock.advance(2.0)
    assert stage.future.result(timeout=TIMEOUT)
    assert begun[0].cancelled


def test_closing_the_channel_of_a_watch_ends_the_watch_with_an_error(stage: Stage) -> None:
    """The future has the error, as for every unexpected error."""
    first = stage.begin()

    def refuse(request: feeds.WatchRequest) -> Stream:
        raise ValueError("closed channel")

    stage.watch._begin = refuse
    first.end(Internal("gone"))
    eventually(lambda: stage.state is SubscriptionState.RECONNECTING)
    stage.clock.advance(2.0)
    assert isinstance(ended(stage), ValueError)


def test_a_watch_request_that_the_broker_rejects_as_invalid_is_not_retried(stage: Stage) -> None:
    """There is no retry."""
    stage.streams.next().end(InvalidArgument("no such filter"))
    with pytest.raises(InvalidArgument, match="no such filter"):
        stage.future.result(timeout=TIMEOUT)
