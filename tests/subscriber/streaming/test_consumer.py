"""The reader's thread pauses, resumes and ends, and never hangs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from pullstream.scheduling.inline_run import InlineRun
from pullstream.streaming import consumer as consumer_module
from pullstream.streaming.consumer import Consumer
from pullstream.streaming.stream import ReceivedResponse, Response, ResumingStream, StreamEnded
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.subscriber.streaming.scripted_stream import PONG, ScriptedCalls


class Rig:
    """A consumer of scripted streams."""

    def __init__(self) -> None:
        self.calls = ScriptedCalls()
        self.responses: queue.SimpleQueue[Response] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self.stream = ResumingStream(
            ManualClock(),
            start=self.calls.streaming_pull,
            first_request=pubsub.StreamingPullRequest,
            listener=self,
        )
        self.consumer = Consumer(self.stream, on_response=self.receive, on_end=self.ends.put)
        self.consumer.start()
        self.call = self.calls.next_stream()

    def receive(self, arrival: ReceivedResponse) -> None:
        self.responses.put(arrival.response)

    def stream_opened(self) -> None: ...

    def stream_received(self) -> None: ...

    def stream_broken(self, cause: object) -> None: ...


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    # A test that needs one of these fails by its own timeout.
    monkeypatch.setattr(consumer_module, "HALF_CLOSE_WAIT", 200.0)
    monkeypatch.setattr(consumer_module, "CANCEL_WAIT", 200.0)
    rig = Rig()
    yield rig
    rig.call.end()
    rig.consumer.stop()


def test_the_stream_consumer_passes_responses_to_its_handler_in_order(rig: Rig) -> None:
    """Responses are passed on in order, on the consumer's own thread."""
    rig.call.respond(PONG)
    rig.call.deliver("a")
    assert rig.responses.get(timeout=TIMEOUT) == PONG
    assert len(rig.responses.get(timeout=TIMEOUT).received_messages) == 1


def test_a_paused_stream_consumer_reads_no_response_until_it_is_resumed(rig: Rig) -> None:
    """The current response is the last one."""
    in_hand = threading.Event()

    def pause(arrival: ReceivedResponse) -> None:
        rig.consumer.pause()
        rig.receive(arrival)
        in_hand.set()

    rig.consumer._background._on_response = pause
    for _ in range(3):
        rig.call.respond(PONG)
    assert in_hand.wait(TIMEOUT)
    for expected in (1, 2):
        assert rig.responses.get(timeout=TIMEOUT) == PONG
        assert rig.call._inputs.qsize() == 3 - expected
        rig.consumer.resume()
    assert rig.responses.get(timeout=TIMEOUT) == PONG
    rig.consumer.resume()


def test_the_stream_consumer_reports_the_end_of_its_stream_once_with_the_cause(rig: Rig) -> None:
    """The report is the last step of the thread."""
    rig.call.end(NotFound("gone"))
    assert isinstance(rig.ends.get(timeout=TIMEOUT), NotFound)
    rig.consumer.stop()
    assert rig.ends.empty()
    assert not rig.consumer._background.is_active


def test_stopping_the_stream_consumer_does_not_cancel_a_stream_that_the_server_ends(
    rig: Rig,
) -> None:
    """A cancellation would end the leases of running callbacks."""
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=TIMEOUT), StreamEnded)
    assert not rig.call.cancelled


def test_stopping_the_stream_consumer_cancels_a_stream_that_the_server_does_not_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation comes after a short wait."""
    monkeypatch.setattr(consumer_module, "HALF_CLOSE_WAIT", 0.01)
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=TIMEOUT), StreamEnded)
    assert rig.call.cancelled


def test_stopping_the_stream_consumer_takes_no_longer_than_the_given_time_limit(rig: Rig) -> None:
    """The shutdown is nearly out of time. The consumer's own limits are far longer here."""
    rig.consumer.stop(timeout=0.01)
    assert isinstance(rig.ends.get(timeout=TIMEOUT), StreamEnded)
    assert rig.call.cancelled


def test_stopping_a_paused_stream_consumer_ends_its_reader_thread(rig: Rig) -> None:
    """A paused reader would not see the end."""
    rig.consumer.pause()
    rig.call.respond(PONG)
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=TIMEOUT), StreamEnded)


def test_a_stream_consumer_that_is_paused_during_its_stop_still_ends(rig: Rig) -> None:
    """The current response fills the window of flow control just after `stop` has resumed it."""
    resumed, in_hand = threading.Event(), threading.Event()
    resume = rig.consumer.resume

    def resume_and_tell() -> None:
        resume()
        resumed.set()

    def pause_late(arrival: ReceivedResponse) -> None:
        in_hand.set()
        resumed.wait(TIMEOUT)
        rig.consumer.pause()

    rig.consumer.resume = resume_and_tell  # type: ignore[method-assign]
    rig.consumer._background._on_response = pause_late
    rig.call.respond(PONG)
    assert in_hand.wait(TIMEOUT)
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=TIMEOUT), StreamEnded)


def test_an_error_in_the_handler_of_stream_responses_ends_the_stream(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unread call would keep its leases at the server."""

    def fail(arrival: ReceivedResponse) -> None:
        raise RuntimeError("a scheduler that is shut down")

    rig.consumer._background._on_response = fail
    rig.call.respond(PONG)
    assert isinstance(rig.ends.get(timeout=TIMEOUT), RuntimeError)
    monkeypatch.setattr(consumer_module, "HALF_CLOSE_WAIT", 0.01)
    rig.consumer.stop()
    assert rig.call.cancelled


# ---- a reader that runs callbacks ----------------------------------------------------------------


class Callback:
    """Work that the reader does at the end of a response, and that blocks it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.inline_runs: queue.SimpleQueue[InlineRun | None] = queue.SimpleQueue()
        self.may_end = threading.Event()

    def __call__(self, arrival: ReceivedResponse) -> None:
        inline_run = self._rig.consumer.inline_run()
        self.inline_runs.put(inline_run)
        assert self.may_end.wait(TIMEOUT)
        if inline_run is not None:
            inline_run.end()


@pytest.fixture
def callback(rig: Rig) -> Iterator[Callback]:
    """Yield a callback that runs for the first response."""
    callback = Callback(rig)
    # For later readers as well.
    rig.consumer._on_response = rig.receive
    rig.consumer._background._on_response = callback
    rig.call.respond(PONG)
    yield callback
    callback.may_end.set()


def relieved(callback: Callback) -> InlineRun:
    inline_run = callback.inline_runs.get(timeout=TIMEOUT)
    assert inline_run is not None
    assert inline_run.relieve()
    return inline_run


def test_only_the_thread_that_reads_the_stream_may_run_callbacks_inline(rig: Rig) -> None:
    """Another thread has no duties here that a new reader could take over."""
    assert rig.consumer.inline_run() is None


def test_another_thread_reads_the_stream_while_the_reader_thread_is_blocked_in_a_callback(
    rig: Rig, callback: Callback
) -> None:
    """Another reader continues at once. The first one reads nothing after its callback."""
    held_up = rig.consumer._background._thread
    assert held_up is not None
    relieved(callback)
    rig.call.respond(PONG)
    assert rig.responses.get(timeout=TIMEOUT) == PONG
    callback.may_end.set()
    held_up.join(TIMEOUT)
    assert not held_up.is_alive()
    rig.call.respond(PONG)
    assert rig.responses.get(timeout=TIMEOUT) == PONG
    assert rig.ends.empty()


def test_a_reader_thread_continues_if_its_callback_ends_before_a_replacement_starts(
    rig: Rig, callback: Callback
) -> None:
    """The inline run is over, so the relief comes too late."""
    inline_run = callback.inline_runs.get(timeout=TIMEOUT)
    callback.may_end.set()
    rig.call.respond(PONG)
    assert callback.inline_runs.get(timeout=TIMEOUT) is not None
    assert inline_run is not None
    assert not inline_run.relieve()


def test_a_replacement_reader_thread_reads_nothing_while_flow_control_pauses_the_stream(
    rig: Rig, callback: Callback
) -> None:
    """The window of flow control was full when the first reader began its callbacks."""
    rig.consumer.pause()
    relieved(callback)
    rig.call.respond(PONG)
    assert rig.call.waiting == 1
    with pytest.raises(queue.Empty):
        rig.responses.get(timeout=0.05)
    rig.consumer.resume()
    assert rig.responses.get(timeout=TIMEOUT) == PONG


def test_a_replacement_reader_thread_blocked_in_a_callback_is_replaced_by_a_third_thread(
    rig: Rig, callback: Callback
) -> None:
    """The first reader no longer counts as the reader."""
    relieved(callback)
    rig.consumer._background._on_response = callback
    rig.call.respond(PONG)
    relieved(callback)
    rig.call.respond(PONG)
    assert rig.responses.get(timeout=TIMEOUT) == PONG


def test_an_error_in_a_replaced_reader_thread_does_not_end_the_stream_of_the_new_reader(
    rig: Rig, callback: Callback
) -> None:
    """Two threads at the end of one call are not supported by gRPC."""

    def fail(arrival: ReceivedResponse) -> None:
        callback(arrival)
        raise RuntimeError("no thread can be started")

    rig.consumer._on_response = rig.receive
    callback.may_end.set()
    assert callback.inline_runs.get(timeout=TIMEOUT) is not None
    callback.may_end.clear()
    rig.consumer._background._on_response = fail
    rig.call.respond(PONG)
    relieved(callback)
    callback.may_end.set()
    assert isinstance(rig.ends.get(timeout=TIMEOUT), RuntimeError)
    assert not rig.call.cancelled
    rig.call.respond(PONG)
    assert rig.responses.get(timeout=TIMEOUT) == PONG


def test_stopping_the_stream_consumer_does_not_wait_for_a_replaced_reader_thread(
    rig: Rig, callback: Callback
) -> None:
    """The callback may never end. The new reader reports the end of the stream."""
    relieved(callback)
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=TIMEOUT), StreamEnded)
    callback.may_end.set()
    with pytest.raises(queue.Empty):
        rig.ends.get(timeout=0.05)
