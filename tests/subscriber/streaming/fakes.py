"""Messages made by hand, and fakes for a part's neighbours, as narrow as their protocols."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

import grpc

from pullstream.columns.portions import Portion
from pullstream.lazy_messages import RawResponse
from pullstream.message import Disposition, Message, ResponseBatch, Settlement
from pullstream.rpc.calls import PendingCall
from pullstream.streaming.ack_requests import AckRequest
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.failed_call import FailedCall

# In seconds. Longer than any step that works.
TIMEOUT = 20.0


def eventually(condition: Callable[[], bool], timeout: float = TIMEOUT) -> None:
    """Return when `condition` holds. For events without a notification."""
    deadline = SYSTEM_CLOCK.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        assert SYSTEM_CLOCK.monotonic() < deadline, "it has not happened"
        pause.wait(0.001)


class RecordingSettlementSink:
    """Records the dispositions of messages."""

    def __init__(self, *, exactly_once: bool = False) -> None:
        self.taken: list[Settlement] = []
        self.exactly_once = exactly_once

    def ack(self, message: Message) -> None:
        self.taken.append((Disposition.ACK, message, 0, None))

    def ack_all(self, messages: list[Message]) -> None:
        for message in messages:
            self.ack(message)

    def put(self, settlement: Settlement) -> None:
        self.taken.append(settlement)

    put_tracked = put

    def verdicts(self) -> list[tuple[Disposition, str]]:
        return [(verdict, message.ack_id) for verdict, message, _, _ in self.taken]


def received(
    ack_id: str, *, key: str = "", data: bytes = b"", message_id: str | None = None
) -> pubsub.ReceivedMessage:
    """Return a message as the server sends it. Its id is the part of the ack id before a slash."""
    return pubsub.ReceivedMessage(
        ack_id=ack_id,
        message=pubsub.PubsubMessage(
            data=data, message_id=message_id or ack_id.partition("/")[0], ordering_key=key
        ),
    )


def message(
    ack_id: str,
    *,
    key: str = "",
    data: bytes = b"",
    at: float = 0.0,
    outcomes: RecordingSettlementSink | None = None,
) -> Message:
    """Return a message as a callback gets it, received at the time `at`."""
    one = received(ack_id, key=key, data=data)
    response = pubsub.StreamingPullResponse(received_messages=[one])
    (made,) = ResponseBatch(
        outcomes or RecordingSettlementSink(), at, one.message.ByteSize(), response
    ).messages()
    return made


def response(
    *ack_ids: str, at: float = 0.0, bytes_each: int = 0
) -> tuple[ResponseBatch, list[Message]]:
    """Return a batch and its messages, received at the time `at`."""
    messages = [received(ack_id) for ack_id in ack_ids]
    response = pubsub.StreamingPullResponse(received_messages=messages)
    batch = ResponseBatch(RecordingSettlementSink(), at, bytes_each, response)
    return batch, batch.messages()


def portions(
    *ack_ids: str, longest: int = 1000, at: float = 0.0, bytes_each: int = 0
) -> list[Portion]:
    """Return a response as portions, received at the time `at`."""
    encoded = pubsub.StreamingPullResponse(received_messages=map(received, ack_ids))
    raw = RawResponse(encoded.SerializeToString())
    batch = ResponseBatch(RecordingSettlementSink(), at, bytes_each, raw)
    lock = CallLock()
    return [
        Portion(batch, start, min(start + longest, len(ack_ids)), lock)
        for start in range(0, len(ack_ids), longest)
    ]


def ids(messages: Iterable[Message]) -> list[str]:
    return [message.ack_id for message in messages]


class UnaryCall:
    """An open call, like grpc's future, until the test answers it."""

    def __init__(self, request: AckRequest | None = None) -> None:
        self._request = request
        self.cancelled = False
        self._lock = threading.Lock()
        self._done = False
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[PendingCall], None]] = []

    @classmethod
    def answered(cls, error: BaseException | None = None) -> UnaryCall:
        call = cls()
        call.answer(error)
        return call

    @property
    def request(self) -> AckRequest:
        assert self._request is not None
        return self._request

    def add_done_callback(self, callback: Callable[[PendingCall], None]) -> None:
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self.cancelled:
            raise grpc.FutureCancelledError
        return self._error

    def cancel(self) -> None:
        self.cancelled = True
        self.answer()

    def answer(self, error: BaseException | None = None) -> None:
        """End with success, or with `error`. Callbacks run here, as they do on grpc's thread."""
        with self._lock:
            self._done, self._error = True, error
        for callback in self._callbacks:
            callback(self)

    def answer_with(self, error: RpcError) -> None:
        """End as a call does that the server fails with `error`."""
        self.answer(FailedCall.of(error))


class Server:
    """Takes the calls of a dispatcher. The test answers them one by one, or all by `automatic`."""

    def __init__(self, *, automatic: bool = False) -> None:
        self.automatic = automatic
        self._calls: queue.SimpleQueue[UnaryCall] = queue.SimpleQueue()

    def send(self, request: AckRequest) -> UnaryCall:
        call = UnaryCall(request)
        if self.automatic:
            call.answer()
        self._calls.put(call)
        return call

    def next_call(self) -> UnaryCall:
        """Return the next call that was begun, or fail if there is none."""
        return self._calls.get(timeout=TIMEOUT)

    @property
    def calls_waiting(self) -> int:
        """Return the number of calls that were begun and not taken by the test."""
        return self._calls.qsize()


class ClosedServer(Server):
    """Takes no calls, as a closed channel."""

    def send(self, request: AckRequest) -> UnaryCall:
        raise ValueError("Cannot invoke RPC on closed channel!")
