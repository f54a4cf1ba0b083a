"""Two ways to make a streaming pull, with the same behaviour against a gRPC server."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from pullstream.rpc.calls import DirectCall, IteratedCall, StreamCall, begin
from pullstream_protocol.errors import (
    STATUS_DETAILS_KEY,
    Cancelled,
    NotFound,
    RpcError,
    rich_status,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import SUBSCRIBER
from tests.subscriber.streaming.fakes import TIMEOUT

FIRST = pubsub.StreamingPullRequest(client_id="first")
METADATA = (("x-goog-request-params", "subscription=s"),)
MOST_STREAMS = 4


class Server:
    """Serves streams as the test orders. `requests` has its requests, and None at their end.

    Streams are numbered from 0 in the order in which they came.
    """

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.metadata: dict[str, str | bytes] = {}
        self._numbers = itertools.count()
        # One queue for each stream. With a shared queue, a faster stream could take a step that is
        # meant for another.
        self._steps: list[queue.SimpleQueue[bytes | RpcError | None]] = [
            queue.SimpleQueue() for _ in range(MOST_STREAMS)
        ]
        self._pool = ThreadPoolExecutor(MOST_STREAMS)
        self._server = grpc.server(self._pool)
        handler: Any = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SUBSCRIBER, {"StreamingPull": handler})]
        )
        self.endpoint = f"localhost:{self._server.add_insecure_port('localhost:0')}"
        self._server.start()

    def respond(self, response: bytes, stream: int = 0) -> None:
        self._steps[stream].put(response)

    def end(self, error: RpcError | None = None, stream: int = 0) -> None:
        self._steps[stream].put(error)

    def next_request(self) -> str | None:
        return self.requests.get(timeout=TIMEOUT)

    def stop(self) -> None:
        for stream in range(MOST_STREAMS):
            self.end(stream=stream)
        self._server.stop(None).wait()
        self._pool.shutdown()

    def _serve(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        steps = self._steps[next(self._numbers)]
        self.metadata = dict(context.invocation_metadata())
        threading.Thread(target=self._listen, args=(requests,), daemon=True).start()
        while (step := steps.get()) is not None:
            if isinstance(step, RpcError):
                context.set_trailing_metadata(((STATUS_DETAILS_KEY, rich_status(step)),))
                context.abort(step.grpc_status_code, step.message)
            yield step

    def _listen(self, requests: Iterator[bytes]) -> None:
        # gRPC ends the requests of a broken call with an error, if it is asked in time.
        with contextlib.suppress(Exception):
            for encoded in requests:
                self.requests.put(pubsub.StreamingPullRequest.FromString(encoded).client_id)
        self.requests.put(None)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.endpoint) as channel:
        yield channel


@pytest.fixture(params=[DirectCall, IteratedCall])
def open_call(request: pytest.FixtureRequest, channel: grpc.Channel) -> Callable[[], StreamCall]:
    """Begin a call in one of the two ways."""
    return lambda: request.param(channel, FIRST, METADATA)


def ping(number: int) -> pubsub.StreamingPullRequest:
    return pubsub.StreamingPullRequest(client_id=f"ping {number}")


def read_to_end(call: StreamCall) -> list[bytes]:
    responses = []
    with contextlib.suppress(StopIteration):
        while True:
            responses.append(next(call))
    return responses


def test_a_streaming_call_sends_its_first_request_and_its_metadata_when_it_is_created(
    server: Server, open_call: Callable[[], StreamCall]
) -> None:
    """The metadata, by which Google routes the call, goes out as well."""
    call = open_call()
    assert server.next_request() == "first"
    assert server.metadata["x-goog-request-params"] == "subscription=s"
    call.cancel()


def test_a_streaming_call_yields_the_servers_responses_until_the_server_ends_the_call(
    server: Server, open_call: Callable[[], StreamCall]
) -> None:
    """Responses are bytes. A heartbeat is an empty response."""
    call = open_call()
    for response in (b"one", b"", b"x" * 3_000_000):
        server.respond(response)
        assert next(call) == response
    server.end()
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(call)


def test_an_error_status_of_a_streaming_call_is_raised_as_a_pullstream_error(
    server: Server, open_call: Callable[[], StreamCall]
) -> None:
    """The error has the text in any script and the ErrorInfo, as often as the reader asks."""
    call = open_call()
    server.respond(b"one")
    server.end(NotFound("kein Thema für dich: 主題", reason="GONE", metadata={"topic": "t"}))
    assert next(call) == b"one"
    for _ in range(2):
        with pytest.raises(NotFound, match="kein Thema für dich: 主題") as caught:
            next(call)
        assert caught.value.reason == "GONE"
        assert caught.value.metadata == {"topic": "t"}


def test_a_streaming_call_sends_its_requests_in_order_and_none_after_the_half_close(
    server: Server, open_call: Callable[[], StreamCall]
) -> None:
    """Later requests have no effect, and the server's last responses are still read."""
    call = open_call()
    assert server.next_request() == "first"
    # A DirectCall sends a request only when its reader knows that the previous one is sent.
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_to_end, call)
        for number in range(3):
            call.send(ping(number))
            assert server.next_request() == f"ping {number}"
            server.respond(b"pong")
        call.half_close()
        call.half_close()
        call.send(ping(9))
        assert server.next_request() is None
        server.respond(b"last words")
        server.end()
        assert reading.result(TIMEOUT) == [b"pong"] * 3 + [b"last words"]
    call.send(ping(10))
    call.half_close()
    call.cancel()


def test_a_streaming_call_whose_responses_are_not_read_keeps_only_its_newest_unsent_ping(
    server: Server, channel: grpc.Channel
) -> None:
    """Pings do not pile up: gRPC sends one message at a time and reports only to the reader."""
    call = DirectCall(channel, FIRST, METADATA)
    server.respond(b"one")
    assert next(call) == b"one"
    for number in range(5):
        call.send(ping(number))
    call.half_close()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, call)
        got = list(iter(server.next_request, None))
        server.end()
        assert isinstance(reading.exception(TIMEOUT), StopIteration)
    assert got[0] == "first"
    assert got[-1] == "ping 4"
    assert len(got) <= 4


def test_cancelling_a_streaming_call_raises_an_error_in_the_thread_that_reads_responses(
    server: Server, open_call: Callable[[], StreamCall]
) -> None:
    """A reader that waits for a missing response gets an error."""
    call = open_call()
    assert server.next_request() == "first"
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, call)
        call.cancel()
        call.cancel()
        assert isinstance(reading.exception(TIMEOUT), Cancelled)
    assert server.next_request() is None


def test_closing_a_channel_ends_its_streaming_calls_and_a_closed_channel_refuses_new_ones(
    server: Server, channel: grpc.Channel, open_call: Callable[[], StreamCall]
) -> None:
    """Waiting readers get an error."""
    call = open_call()
    assert server.next_request() == "first"
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, call)
        channel.close()
        assert isinstance(reading.exception(TIMEOUT), Cancelled)
    with pytest.raises(ValueError, match="closed"):
        open_call()


def test_an_unread_streaming_call_does_not_block_the_close_of_its_channel(
    server: Server, channel: grpc.Channel, open_call: Callable[[], StreamCall]
) -> None:
    """The channel closes, and the server sees the end of the call."""
    open_call()
    assert server.next_request() == "first"
    channel.close()
    assert server.next_request() is None


def test_each_of_many_streaming_calls_on_one_channel_gets_only_its_own_responses(
    channel: grpc.Channel, server: Server
) -> None:
    """Each reader gets the responses of its own call."""
    calls = [DirectCall(channel, FIRST, METADATA) for _ in range(3)]
    for _ in calls:
        server.next_request()
    with ThreadPoolExecutor(3) as pool:
        readings = [pool.submit(next, call) for call in calls]
        responses = {b"one", b"two", b"three"}
        for stream, response in enumerate(responses):
            server.respond(response, stream)
        assert {reading.result(TIMEOUT) for reading in readings} == responses
    for call in calls:
        call.cancel()


class Passing(grpc.StreamStreamClientInterceptor):
    """An interceptor that records the calls and changes nothing."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def intercept_stream_stream(self, continue_: Any, details: Any, requests: Any) -> Any:
        self.methods.append(details.method)
        return continue_(details, requests)


def test_interceptors_of_a_channel_passed_by_the_user_apply_to_streaming_calls(
    server: Server, channel: grpc.Channel
) -> None:
    """Users pass their own channel for its interceptors, which the direct way would bypass."""
    passing = Passing()
    intercepted = grpc.intercept_channel(channel, passing)
    call = begin(intercepted, FIRST, METADATA)
    assert isinstance(call, IteratedCall)
    assert passing.methods == ["/google.pubsub.v1.Subscriber/StreamingPull"]
    server.respond(b"one")
    assert next(call) == b"one"


def test_a_streaming_call_on_a_channel_without_interceptors_uses_the_direct_reader(
    channel: grpc.Channel,
) -> None:
    """Every gRPC version in the test matrix has the method that the direct reader needs.

    A version without the method would only be slower.
    """
    call = begin(channel, FIRST, METADATA)
    assert isinstance(call, DirectCall)
    call.cancel()
