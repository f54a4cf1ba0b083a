"""The reader's thread: it pauses, resumes and ends, and is never left hanging."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from protocol.clock import ManualClock
from protocol.errors import NotFound
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.streaming import consumer as consumer_module
from subscriber.streaming.consumer import Consumer
from subscriber.streaming.stream import Arrival, ResumingStream, StreamEnded
from tests.subscriber.streaming.fakes import PATIENCE
from tests.subscriber.streaming.scripted_stream import PONG, ScriptedCalls


class Rig:
    """A consumer of scripted streams."""

    def __init__(self) -> None:
        self.calls = ScriptedCalls()
        self.responses: queue.SimpleQueue[pubsub.StreamingPullResponse] = queue.SimpleQueue()
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

    def receive(self, arrival: Arrival) -> None:
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


def test_each_response_is_handed_on(rig: Rig) -> None:
    """In order, on a thread of the consumer's own."""
    rig.call.respond(PONG)
    rig.call.deliver("a")
    assert rig.responses.get(timeout=PATIENCE) == PONG
    assert len(rig.responses.get(timeout=PATIENCE).received_messages) == 1


def test_a_paused_reader_reads_no_more_until_it_is_resumed(rig: Rig) -> None:
    """The response in hand is the last one."""
    in_hand = threading.Event()

    def pause(arrival: Arrival) -> None:
        rig.consumer.pause()
        rig.receive(arrival)
        in_hand.set()

    rig.consumer._background._on_response = pause
    for _ in range(3):
        rig.call.respond(PONG)
    assert in_hand.wait(PATIENCE)
    for expected in (1, 2):
        assert rig.responses.get(timeout=PATIENCE) == PONG
        assert rig.call._inputs.qsize() == 3 - expected
        rig.consumer.resume()
    assert rig.responses.get(timeout=PATIENCE) == PONG
    rig.consumer.resume()


def test_the_end_is_told_once_with_its_cause(rig: Rig) -> None:
    """As the last thing the thread does."""
    rig.call.end(NotFound("gone"))
    assert isinstance(rig.ends.get(timeout=PATIENCE), NotFound)
    rig.consumer.stop()
    assert rig.ends.empty()
    assert not rig.consumer._background.is_active


def test_stopping_lets_the_server_end_its_side(rig: Rig) -> None:
    """Cancelling would give the leases back that callbacks still work on."""
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=PATIENCE), StreamEnded)
    assert not rig.call.cancelled


def test_stopping_cancels_a_stream_that_the_server_does_not_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment."""
    monkeypatch.setattr(consumer_module, "HALF_CLOSE_WAIT", 0.01)
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=PATIENCE), StreamEnded)
    assert rig.call.cancelled


def test_stopping_takes_no_longer_than_it_is_given(rig: Rig) -> None:
    """When a shutdown is nearly out of time. The limits of its own are far longer here."""
    rig.consumer.stop(timeout=0.01)
    assert isinstance(rig.ends.get(timeout=PATIENCE), StreamEnded)
    assert rig.call.cancelled


def test_stopping_a_paused_reader_ends_it(rig: Rig) -> None:
    """It could not see the end otherwise."""
    rig.consumer.pause()
    rig.call.respond(PONG)
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=PATIENCE), StreamEnded)


def test_a_reader_that_pauses_while_it_is_stopped_ends_all_the_same(rig: Rig) -> None:
    """The response in hand fills the window of flow control just after `stop` has resumed it."""
    resumed, in_hand = threading.Event(), threading.Event()
    resume = rig.consumer.resume

    def resume_and_tell() -> None:
        resume()
        resumed.set()

    def pause_late(arrival: Arrival) -> None:
        in_hand.set()
        resumed.wait(PATIENCE)
        rig.consumer.pause()

    rig.consumer.resume = resume_and_tell  # type: ignore[method-assign]
    rig.consumer._background._on_response = pause_late
    rig.call.respond(PONG)
    assert in_hand.wait(PATIENCE)
    rig.call.end_when_half_closed()
    rig.consumer.stop()
    assert isinstance(rig.ends.get(timeout=PATIENCE), StreamEnded)


def test_an_error_of_ours_ends_the_call_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that nobody reads would keep its leases at the server."""

    def fail(arrival: Arrival) -> None:
        raise RuntimeError("a scheduler that is shut down")

    rig.consumer._background._on_response = fail
    rig.call.respond(PONG)
    assert isinstance(rig.ends.get(timeout=PATIENCE), RuntimeError)
    monkeypatch.setattr(consumer_module, "HALF_CLOSE_WAIT", 0.01)
    rig.consumer.stop()
    assert rig.call.cancelled
