"""Messages made by hand, and stand-ins for a part's neighbours, as narrow as their protocols."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

import grpc

from protocol.clock import SYSTEM_CLOCK
from protocol.errors import RpcError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.message import Batch, Message, Outcome, Verdict
from subscriber.streaming.dispatcher import Call
from subscriber.streaming.requests import Request
from tests.failed_call import FailedCall

# Longer than anything takes that is not broken.
PATIENCE = 20.0


def eventually(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; for what tells nobody that it has happened."""
    deadline = SYSTEM_CLOCK.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        assert SYSTEM_CLOCK.monotonic() < deadline, "it has not happened"
        pause.wait(0.001)


class Outcomes:
    """Keeps what messages decide."""

    def __init__(self, *, exactly_once: bool = False) -> None:
        self.taken: list[Outcome] = []
        self.exactly_once = exactly_once

    def ack(self, message: Message) -> None:
        self.taken.append((Verdict.ACK, message, 0, None))

    def ack_all(self, messages: list[Message]) -> None:
        for message in messages:
            self.ack(message)

    def put(self, outcome: Outcome) -> None:
        self.taken.append(outcome)

    put_tracked = put

    def verdicts(self) -> list[tuple[Verdict, str]]:
        return [(verdict, message.ack_id) for verdict, message, _, _ in self.taken]


def received(
    ack_id: str, *, key: str = "", data: bytes = b"", message_id: str | None = None
) -> pubsub.ReceivedMessage:
    """A message as the server sends it; its id is its ack id without the part after a slash."""
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
    outcomes: Outcomes | None = None,
) -> Message:
    """A message as a callback gets it, received `at` this moment."""
    one = received(ack_id, key=key, data=data)
    response = pubsub.StreamingPullResponse(received_messages=[one])
    (made,) = Batch(outcomes or Outcomes(), at, one.message.ByteSize(), response).messages()
    return made


def response(*ack_ids: str, at: float = 0.0, share: int = 0) -> tuple[Batch, list[Message]]:
    """The messages of one response, and what they have in common, received `at` this moment."""
    messages = [received(ack_id) for ack_id in ack_ids]
    response = pubsub.StreamingPullResponse(received_messages=messages)
    batch = Batch(Outcomes(), at, share, response)
    return batch, batch.messages()


def ids(messages: Iterable[Message]) -> list[str]:
    return [message.ack_id for message in messages]


class UnaryCall:
    """A call under way, as grpc's future is one, until a test answers it."""

    def __init__(self, request: Request | None = None) -> None:
        self._request = request
        self.cancelled = False
        self._lock = threading.Lock()
        self._done = False
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Call], None]] = []

    @classmethod
    def answered(cls, error: BaseException | None = None) -> UnaryCall:
        call = cls()
        call.answer(error)
        return call

    @property
    def request(self) -> Request:
        assert self._request is not None
        return self._request

    def add_done_callback(self, callback: Callable[[Call], None]) -> None:
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
        """End with success, or with `error`; callbacks run here, as they do on grpc's thread."""
        with self._lock:
            self._done, self._error = True, error
        for callback in self._callbacks:
            callback(self)

    def answer_with(self, error: RpcError) -> None:
        """End as a call does that the server fails with `error`."""
        self.answer(FailedCall.of(error))


class Server:
    """Takes the calls of a dispatcher. A test answers them one by one, or all by `automatic`."""

    def __init__(self, *, automatic: bool = False) -> None:
        self.automatic = automatic
        self._calls: queue.SimpleQueue[UnaryCall] = queue.SimpleQueue()

    def send(self, request: Request) -> UnaryCall:
        call = UnaryCall(request)
        if self.automatic:
            call.answer()
        self._calls.put(call)
        return call

    def next_call(self) -> UnaryCall:
        """The next call that was begun; fails when none comes."""
        return self._calls.get(timeout=PATIENCE)

    @property
    def calls_waiting(self) -> int:
        """Calls that were begun and that no test has looked at."""
        return self._calls.qsize()
