"""A dispatcher between messages made by hand and a server played by a test."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from protocol.clock import ManualClock
from protocol.errors import RpcError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.exceptions import AcknowledgeError
from subscriber.message import Batch, Message
from subscriber.streaming.dispatcher import Call, Dispatcher
from subscriber.streaming.requests import Request
from tests.subscriber.streaming.fakes import PATIENCE, Server, ids, received


class CountingClock(ManualClock):
    """Counts how often somebody asks how long to wait: a busy loop asks all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def timeout(self, deadline: float | None) -> float | None:
        self.questions += 1
        return super().timeout(deadline)


class Settled(NamedTuple):
    """The ids of messages that were reported as finished at a time."""

    acked: Sequence[str] = ()
    nacked: Sequence[str] = ()
    dropped: Sequence[str] = ()


class Rig:
    """A dispatcher between messages made by hand and a server played by hand; its listener."""

    def __init__(self, server: Server | None = None) -> None:
        self.clock = CountingClock()
        self.server = server or Server()
        self.finished: queue.SimpleQueue[Settled] = queue.SimpleQueue()
        # (confirmed ids, refused ones with what the server said).
        self.receipts: queue.SimpleQueue[tuple[list[str], Mapping[str, AcknowledgeError]]] = (
            queue.SimpleQueue()
        )
        # (ids, how long the call took, how it ended).
        self.calls_done: queue.SimpleQueue[tuple[list[str], float, RpcError | None]] = (
            queue.SimpleQueue()
        )
        self.refused: queue.SimpleQueue[tuple[Request, list[str]]] = queue.SimpleQueue()
        self.dispatcher = Dispatcher(self.clock, send=self._send, listener=self, max_messages=1)
        self.dispatcher.start()

    def _send(self, request: Request) -> Call:
        return self.server.send(request)

    # ---- what it is told -------------------------------------------------------------------------

    def settled(self, acked: list[Message], nacked: list[Message], dropped: list[Message]) -> None:
        self.finished.put(Settled(tuple(ids(acked)), tuple(ids(nacked)), tuple(ids(dropped))))

    def confirmed(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        self.receipts.put((ack_ids, failed))

    def request_done(self, request: Request, seconds: float, error: RpcError | None) -> None:
        self.calls_done.put((list(request.ack_ids), seconds, error))

    def not_taken(self, request: Request, failed: Mapping[str, AcknowledgeError]) -> None:
        self.refused.put((request, list(failed)))

    # ---- for the test ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Return when the dispatcher has handled all that it was told so far."""
        self.message("settle").drop()
        while "settle" not in self.finished.get(timeout=PATIENCE).dropped:
            pass

    def message(self, ack_id: str) -> Message:
        response = pubsub.StreamingPullResponse(received_messages=[received(ack_id)])
        (made,) = Batch(self.dispatcher, 0.0, 0, response).messages()
        return made
