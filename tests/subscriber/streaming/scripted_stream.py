"""A streaming pull whose server side is played by a test."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from pullstream.streaming.ack_requests import AckRequest
from pullstream_protocol.errors import Cancelled, RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.failed_call import FailedCall
from tests.subscriber.streaming.fakes import TIMEOUT, UnaryCall, received

PONG = pubsub.StreamingPullResponse()
PONG.subscription_properties.SetInParent()


class ScriptedResponses:
    """The responses of a streaming call whose server is the test."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._over = False
        self._inputs: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def __next__(self) -> bytes:
        given = self._inputs.get()
        if isinstance(given, Exception):
            raise given
        return given

    def cancel(self) -> None:
        self.cancelled = True
        self.end(Cancelled("Locally cancelled by application!"))

    def respond_bytes(self, encoded: bytes) -> None:
        self._inputs.put(encoded)

    @property
    def waiting(self) -> int:
        """Return the number of unread responses, including the end."""
        return self._inputs.qsize()

    def end(self, error: RpcError | None = None) -> None:
        """End the call as the server does: with OK, or with `error`. Only the first end counts."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._inputs.put(self._as_raised(error) if error else StopIteration())

    def _as_raised(self, error: RpcError) -> Exception:
        """Return what the call raises for `error`: here the error, as the streams of rpc.calls."""
        return error


class ScriptedStream(ScriptedResponses):
    """A StreamCall whose server is the test.

    `requests` yields the client's requests, and ends with its half-close or with the call.
    """

    def __init__(self, first: pubsub.StreamingPullRequest) -> None:
        super().__init__()
        self._sent: queue.SimpleQueue[pubsub.StreamingPullRequest | None] = queue.SimpleQueue()
        self._sent.put(first)
        self.requests: Iterator[pubsub.StreamingPullRequest] = iter(self._sent.get, None)

    # ---- client side -------------------------------------------------------------------------

    def send(self, request: pubsub.StreamingPullRequest) -> None:
        self._sent.put(request)

    def half_close(self) -> None:
        self._sent.put(None)

    # ---- test side ---------------------------------------------------------------------------

    def respond(self, response: pubsub.StreamingPullResponse) -> None:
        self.respond_bytes(response.SerializeToString())

    def deliver(
        self,
        *ack_ids: str,
        key: str = "",
        data: bytes = b"",
        ordering: bool | None = True,
        exactly_once: bool = False,
    ) -> None:
        """Send messages in one response. `ordering` says whether order is kept; None omits this."""
        response = pubsub.StreamingPullResponse(
            received_messages=[received(ack_id, key=key, data=data) for ack_id in ack_ids]
        )
        if ordering is not None:
            response.subscription_properties.message_ordering_enabled = ordering
        if exactly_once:
            response.subscription_properties.exactly_once_delivery_enabled = True
        self.respond(response)

    def end(self, error: RpcError | None = None) -> None:
        super().end(error)
        self._sent.put(None)

    def end_when_half_closed(self) -> None:
        """Read requests until there are no more, then end with OK, as a correct server does."""

        def serve() -> None:
            for _ in self.requests:
                pass
            self.end()

        threading.Thread(target=serve, daemon=True).start()


class ScriptedCalls:
    """The three RPCs of a subscription: streams played by a test, and unary calls that succeed.

    The test may also answer extensions itself, or set an error.
    """

    def __init__(self) -> None:
        self.acknowledged: queue.SimpleQueue[str] = queue.SimpleQueue()
        # (ack id, seconds); 0 seconds is a nack.
        self.modified: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self.answers_extensions = True
        self.acknowledge_error: RpcError | None = None
        # Extensions that wait for an answer, with their ids.
        self._unanswered: queue.SimpleQueue[tuple[list[str], UnaryCall]] = queue.SimpleQueue()
        self._streams: queue.SimpleQueue[ScriptedStream] = queue.SimpleQueue()

    def new_stream(self) -> ScriptedCalls:
        """Return this object: all streams of a subscription are in one queue."""
        return self

    def close(self) -> None: ...

    def reconnect(self) -> None: ...

    def name_resource(self, error: RpcError) -> None: ...

    def streaming_pull(self, first: pubsub.StreamingPullRequest) -> ScriptedStream:
        stream = ScriptedStream(first)
        self._streams.put(stream)
        return stream

    def send(self, request: AckRequest) -> UnaryCall:
        if request.is_ack:
            for ack_id in request.ack_ids:
                self.acknowledged.put(ack_id)
            error = self.acknowledge_error
            return UnaryCall.answered(None if error is None else FailedCall.of(error))
        for ack_id in request.ack_ids:
            self.modified.put((ack_id, request.seconds))
        if self.answers_extensions or request.seconds == 0:
            return UnaryCall.answered()
        call = UnaryCall()
        self._unanswered.put((list(request.ack_ids), call))
        return call

    def next_extension(self) -> tuple[list[str], UnaryCall]:
        """Return the next deadline change that waits for the test's answer, or fail without one."""
        return self._unanswered.get(timeout=TIMEOUT)

    def next_stream(self) -> ScriptedStream:
        """Return the next stream that the client opened, or fail without one."""
        return self._streams.get(timeout=TIMEOUT)

    @property
    def streams_waiting(self) -> int:
        return self._streams.qsize()
