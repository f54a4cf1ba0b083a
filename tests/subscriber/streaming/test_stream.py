"""The resuming stream: reopening, ending, and the fate of requests."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc
import pytest

from pullstream.streaming.stream import PROVEN_AFTER, ResumingStream, StreamEnded
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import BY_CODE, Cancelled, NotFound, RpcError, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.clocks import ImpatientClock
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.subscriber.streaming.scripted_stream import PONG, ScriptedCalls, ScriptedStream

MESSAGES = pubsub.StreamingPullResponse(received_messages=[{"ack_id": "a"}])

RESUMED = {
    *("CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL"),
    "UNAVAILABLE",
}


class Rig:
    """A resuming stream, the calls that it makes, and the events that its listener gets."""

    def __init__(
        self, clock: ManualClock | None = None, *, give_up_after: float | None = None
    ) -> None:
        self.clock = clock or ImpatientClock()
        self.calls = ScriptedCalls()
        self.heard: list[str] = []
        self.openings = 0
        self.stream = ResumingStream(
            self.clock,
            start=self.calls.streaming_pull,
            first_request=self._first_request,
            listener=self,
            gives_up_at=self._gives_up_at,
        )
        self._give_up_after = give_up_after
        self.stream.open()

    def _gives_up_at(self, now: float) -> float:
        if self._give_up_after is None:
            return math.inf
        return self.stream.last_worked(now) + self._give_up_after

    def _first_request(self) -> pubsub.StreamingPullRequest:
        self.openings += 1
        return pubsub.StreamingPullRequest(client_id=f"opening {self.openings}")

    def stream_opened(self) -> None:
        self.heard.append("opened")

    def stream_received(self) -> None:
        self.heard.append("received")

    def stream_broken(self, cause: RpcError | None) -> None:
        self.heard.append(f"broken: {cause.message if cause else 'OK'}")

    def read_on(self) -> NoReturn:
        """Read until the stream raises."""
        while True:
            self.stream.recv()

    def play(self, *parts: Callable[[ScriptedStream], None]) -> None:
        """Apply these functions to the streams that will be opened, in this order."""
        begin = self.calls.streaming_pull

        def streaming_pull(first: pubsub.StreamingPullRequest) -> ScriptedStream:
            call = begin(first)
            remaining.pop(0)(call)
            return call

        remaining = list(parts)
        self.stream._start = streaming_pull


def respond(call: ScriptedStream) -> None:
    call.respond(PONG)


def end_with(
    error: RpcError | None, *first: pubsub.StreamingPullResponse
) -> Callable[[ScriptedStream], None]:
    def play(call: ScriptedStream) -> None:
        for response in first:
            call.respond(response)
        call.end(error)

    return play


@pytest.mark.parametrize("code", [code for code in BY_CODE if code.name not in RESUMED])
def test_a_permanent_error_code_ends_the_streaming_pull_with_the_servers_error(
    code: grpc.StatusCode,
) -> None:
    """A non-retryable code ends the stream with the server's error and leaves no timer behind."""
    rig = Rig()
    rig.play(end_with(BY_CODE[code]("some text")))
    with pytest.raises(BY_CODE[code], match="some text"):
        rig.stream.recv()
    assert rig.heard == ["opened"]
    assert rig.clock._wakers == []


def test_a_stream_response_reports_its_length_in_bytes_on_the_wire() -> None:
    """The length is taken from the wire.

    Computing it again would cost more than reading the response.
    """
    rig = Rig()
    rig.play(lambda call: call.deliver("a", "b", data=b"x" * 300))
    response, size = rig.stream.recv()
    assert isinstance(response, pubsub.StreamingPullResponse)
    assert [one.ack_id for one in response.received_messages] == ["a", "b"]
    assert size == response.ByteSize() > 600


def test_a_stream_with_an_unparseable_response_is_replaced_by_a_new_stream() -> None:
    """The call is unusable after bytes that are not a response, so a new one is opened."""
    rig = Rig()
    rig.play(lambda call: call.respond_bytes(b"\xff\xff"), respond)
    assert rig.stream.recv().response == PONG
    assert rig.calls.next_stream().cancelled
    assert rig.heard[1].startswith("broken: the server sent an invalid response")


@pytest.mark.parametrize("answers", [(), (PONG,)])
def test_the_pauses_between_stream_reconnects_grow_until_messages_arrive(
    answers: tuple[pubsub.StreamingPullResponse],
) -> None:
    """A new call does not reset the pauses.

    Neither does a call that answers a ping and then breaks.
    """
    clock = ImpatientClock()
    rig = Rig(clock)
    rig.play(
        *[end_with(Unavailable("down"), *answers)] * 9,
        end_with(None, MESSAGES),
        respond,
    )
    for _ in range(9 * len(answers) + 2):
        rig.stream.recv()
    *outage, after = clock.pauses
    assert len(outage) == 9
    for attempt, pause in enumerate(outage):
        bound = min(0.1 * 2**attempt, 10.0)
        assert bound / 2 <= pause <= bound
    assert after <= 0.1


@pytest.mark.parametrize("answers", [(), (PONG,)])
@pytest.mark.parametrize("error", [Unavailable("down"), None])
def test_a_stream_ends_with_its_last_error_after_the_time_limit_of_reconnects(
    error: RpcError | None, answers: tuple[pubsub.StreamingPullResponse]
) -> None:
    """The stream gives up at the exact second with the error of the last attempt."""
    rig = Rig(give_up_after=25.0)
    rig.play(*[end_with(error, *answers)] * 100)
    with pytest.raises(Unavailable, match="down" if error else "closes every stream immediately"):
        rig.read_on()
    assert rig.clock.monotonic() == 25.0
    assert rig.heard.count("opened") == rig.heard.count(f"broken: {'down' if error else 'OK'}") + 1
    assert rig.clock._wakers == []


def test_a_working_stream_restarts_the_time_limit_for_reconnects() -> None:
    """The limit counts from the moment when the stream last worked."""
    rig = Rig(give_up_after=25.0)
    down = end_with(Unavailable("down"))
    rig.play(*[down] * 3, respond, *[down] * 100)
    rig.stream.recv()
    assert 0.0 < rig.clock.monotonic() < 1.0
    rig.clock.advance(100.0)
    rig.calls.next_stream()
    for _ in range(2):
        rig.calls.next_stream()
    began = rig.clock.monotonic()
    rig.calls.next_stream().end(Unavailable("down"))
    with pytest.raises(Unavailable, match="down"):
        rig.stream.recv()
    assert rig.clock.monotonic() == pytest.approx(began + 25.0)


def test_without_a_time_limit_a_stream_reconnects_for_ever_and_logs_the_outage_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a limit, a long outage is logged once."""
    rig = Rig()
    rig.play(*[end_with(Unavailable("down"))] * 2_000, respond)
    with caplog.at_level(logging.WARNING):
        rig.stream.recv()
    assert rig.clock.monotonic() > 2 * 3600.0
    (told,) = caplog.messages
    assert "unreachable" in told
    assert "down" in told


def test_a_long_open_stream_without_messages_restarts_the_time_limit_for_reconnects() -> None:
    """A server without messages may not answer pings.

    The end of such a stream does not count as a failure if the stream was open long enough.
    """
    clock = ImpatientClock()
    rig = Rig(clock, give_up_after=25.0)

    def stand() -> None:
        clock.advance(PROVEN_AFTER + 0.1)
        call = rig.calls.next_stream()
        call.end() if rig.openings < 10 else call.respond(PONG)

    rig.stream_opened = stand  # type: ignore[method-assign]
    rig.stream.recv()
    assert len(clock.pauses) == 9
    assert max(clock.pauses) <= 0.1


def test_a_stream_reset_for_silence_does_not_restart_the_time_limit_for_reconnects() -> None:
    """A stream that was reset for silence counts as a failure, however long it was open.

    So the outage reaches its limit.
    """
    rig = Rig(give_up_after=45.0)
    fallen_silent = "the server stopped answering heartbeats"

    def fall_silent() -> None:
        rig.clock.advance(PROVEN_AFTER + 5.0)
        rig.stream.reset(fallen_silent)

    rig.stream_opened = fall_silent  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=fallen_silent):
        rig.stream.recv()
    assert rig.clock.monotonic() <= 60.0


def test_the_first_request_of_each_reopened_stream_is_built_again_with_current_values() -> None:
    """The lease deadline in the first request may have changed since the last stream."""
    rig = Rig()
    rig.play(end_with(None), end_with(None), respond)
    rig.stream.recv()
    for number in (1, 2, 3):
        assert next(rig.calls.next_stream().requests).client_id == f"opening {number}"


def test_requests_on_a_stream_that_is_not_open_are_dropped_and_never_sent_later() -> None:
    """Requests without an open stream are dropped: a ping is meant for one stream only."""
    rig = Rig()
    rig.stream.send(pubsub.StreamingPullRequest(client_id="too early"))
    rig.play(respond)
    rig.stream.recv()
    rig.stream.send(pubsub.StreamingPullRequest(client_id="ping"))
    rig.stream.close()
    rig.stream.send(pubsub.StreamingPullRequest(client_id="too late"))
    requests = rig.calls.next_stream().requests
    assert [request.client_id for request in requests] == ["opening 1", "ping"]


def test_the_reader_of_a_cancelled_stream_reads_to_the_end_so_that_grpc_frees_the_call() -> None:
    """A stopping reader reads its cancelled call to the end. Only then does gRPC free the call."""
    rig = Rig()
    rig.play(respond)
    rig.stream.recv()
    call = rig.calls.next_stream()
    call.respond(PONG)
    rig.stream.discard()
    assert call.cancelled
    assert call.waiting == 0
    with pytest.raises(StreamEnded):
        rig.stream.recv()


def test_closing_the_stream_half_closes_the_streaming_call() -> None:
    """Closing half-closes the call.

    Remaining responses are read, and then the stream has ended with any status.
    """
    rig = Rig()
    rig.play(respond)
    rig.stream.recv()
    rig.stream.close()
    rig.stream.close()
    call = rig.calls.next_stream()
    assert len(list(call.requests)) == 1
    call.respond(PONG)
    call.end(NotFound("gone meanwhile"))
    assert rig.stream.recv().response == PONG
    with pytest.raises(StreamEnded):
        rig.stream.recv()
    assert not call.cancelled
    assert rig.clock._wakers == []


def test_a_stream_that_is_closed_before_it_opens_makes_no_call() -> None:
    rig = Rig()
    rig.stream.close()
    with pytest.raises(StreamEnded):
        rig.stream.recv()
    assert rig.heard == []


def test_a_streaming_call_is_half_closed_if_the_stream_is_closed_while_the_call_begins() -> None:
    """The server may have leased messages to this call. They are still read, and returned.

    The closing thread has not seen the call yet, so the opening thread half-closes it.
    """
    rig = Rig()

    def close_and_respond(call: ScriptedStream) -> None:
        rig.stream.close()
        call.respond(MESSAGES)
        call.end(None)

    rig.play(close_and_respond)
    assert rig.stream.recv().response == MESSAGES
    with pytest.raises(StreamEnded):
        rig.stream.recv()
    call = rig.calls.next_stream()
    assert len(list(call.requests)) == 1
    assert not call.cancelled


def test_a_streaming_call_is_cancelled_if_the_stream_is_aborted_while_the_call_begins() -> None:
    """The aborting thread has not seen the call yet, so the opening thread cancels it."""
    rig = Rig()
    rig.play(lambda call: rig.stream.abort())
    with pytest.raises(StreamEnded):
        rig.stream.recv()
    assert rig.calls.next_stream().cancelled


def test_aborting_the_stream_ends_the_readers_wait_for_a_response_at_once() -> None:
    """A reader that waits for a response returns."""
    rig = Rig(ManualClock())
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rig.stream.recv)
        call = rig.calls.next_stream()
        next(call.requests)
        rig.stream.abort()
        assert isinstance(reading.exception(TIMEOUT), StreamEnded)
    assert call.cancelled


def test_closing_the_stream_during_a_reconnect_pause_prevents_the_next_attempt() -> None:
    """The next attempt is not made."""
    rig = Rig(ManualClock())
    rig.play(end_with(Unavailable("down")))
    broken = threading.Event()
    rig.stream_broken = lambda cause: broken.set()  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rig.stream.recv)
        assert broken.wait(TIMEOUT)
        rig.stream.close()
        assert isinstance(reading.exception(TIMEOUT), StreamEnded)
    assert rig.openings == 1
    assert rig.clock._wakers == []


def test_resetting_the_stream_opens_a_new_stream_and_reports_the_reason_of_the_reset() -> None:
    """The listener gets the reason of the reset instead of the cancellation error."""
    rig = Rig()
    rig.play(respond, respond)
    rig.stream.recv()
    rig.stream.reset("the server fell silent")
    assert rig.calls.next_stream().cancelled
    rig.stream.recv()
    assert rig.heard[2] == "broken: the server fell silent"


def test_the_reason_of_a_stream_reset_is_not_given_for_a_later_cancellation_by_the_server() -> None:
    """A later cancellation by the server on another stream has its own reason.

    A reset without a stream does nothing.
    """
    rig = Rig()
    cancelled = end_with(Cancelled("by the server"), PONG)
    rig.stream.reset("nothing to reset")
    rig.play(cancelled, respond, cancelled, respond)
    for _ in range(2):
        rig.stream.recv()
    rig.stream.reset("the server fell silent")
    for _ in range(2):
        rig.stream.recv()
    broken = [heard for heard in rig.heard if heard.startswith("broken")]
    by_server, by_reset = "broken: by the server", "broken: the server fell silent"
    assert broken == [by_server, by_reset, by_server]


def test_a_streaming_call_that_cannot_begin_ends_the_stream_with_its_error() -> None:
    """The reader gets the error, for example of a closed channel, and no timer is left behind."""
    rig = Rig()

    def refuse(first: object) -> ScriptedStream:
        raise ValueError("Cannot invoke RPC on closed channel!")

    rig.stream._start = refuse
    with pytest.raises(ValueError, match="closed channel"):
        rig.stream.recv()
    assert rig.clock._wakers == []


def test_a_closed_stream_is_active_until_its_reader_has_received_the_end() -> None:
    """BackgroundConsumer reads `is_active`, and only `recv` may end it."""
    rig = Rig()
    rig.stream.add_done_callback(lambda call: None)
    rig.stream.close()
    assert rig.stream.is_active
