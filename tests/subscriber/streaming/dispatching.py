"""A dispatcher between messages made by hand and a server played by the test."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pullstream.exceptions import AcknowledgeError
from pullstream.message import Message, ResponseBatch
from pullstream.rpc.calls import PendingCall
from pullstream.streaming.ack_requests import AckRequest
from pullstream.streaming.dispatcher import Dispatcher, DispatchListener
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import TIMEOUT, Server, ids, received


class CountingClock(ManualClock):
    """Counts the questions for the waiting time: a busy loop asks all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def timeout(self, deadline: float | None) -> float | None:
        self.questions += 1
        return super().timeout(deadline)


class Settled(NamedTuple):
    """The ids of messages that were reported as finished at the same time."""

    acked: Sequence[str] = ()
    nacked: Sequence[str] = ()
    dropped: Sequence[str] = ()
    returned: Sequence[str] = ()


class Rig(DispatchListener):
    """A dispatcher with its listener, and a server played by the test."""

    def __init__(self, server: Server | None = None) -> None:
        self.clock = CountingClock()
        self.server = server or Server()
        self.finished: queue.SimpleQueue[Settled] = queue.SimpleQueue()
        # (confirmed ids, refused ids with the server's errors).
        self.receipts: queue.SimpleQueue[tuple[list[str], Mapping[str, AcknowledgeError]]] = (
            queue.SimpleQueue()
        )
        # (ids, duration of the call, its error).
        self.calls_done: queue.SimpleQueue[tuple[list[str], float, RpcError | None]] = (
            queue.SimpleQueue()
        )
        self.refused: queue.SimpleQueue[tuple[AckRequest, list[str]]] = queue.SimpleQueue()
        self.abandoned: queue.SimpleQueue[Mapping[str, AcknowledgeError]] = queue.SimpleQueue()
        # (ids of nacks, the seconds of their delay).
        self.nacks: queue.SimpleQueue[tuple[list[str], int]] = queue.SimpleQueue()
        self.dispatcher = Dispatcher(self.clock, send=self._send, listener=self, max_messages=1)
        self.dispatcher.start()

    def _send(self, request: AckRequest) -> PendingCall:
        return self.server.send(request)

    # ---- listener methods ------------------------------------------------------------------------

    def mark_settled(
        self,
        acked: list[Message],
        nacked: list[Message],
        dropped: list[Message],
        returned: list[Message],
    ) -> None:
        self.finished.put(Settled(*(tuple(ids(m)) for m in (acked, nacked, dropped, returned))))

    def nacks_answered(self, ack_ids: list[str], seconds: int) -> None:
        self.nacks.put((ack_ids, seconds))

    def receipts_answered(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        self.receipts.put((ack_ids, failed))

    def request_done(self, request: AckRequest, seconds: float, error: RpcError | None) -> None:
        self.calls_done.put((list(request.ack_ids), seconds, error))

    def ack_ids_refused(self, request: AckRequest, failed: Mapping[str, AcknowledgeError]) -> None:
        self.refused.put((request, list(failed)))

    def settlements_abandoned(self, errors: Mapping[str, AcknowledgeError]) -> None:
        self.abandoned.put(errors)

    # ---- test methods ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Return when the dispatcher has handled everything added before."""
        self.message("settle").drop()
        while "settle" not in self.finished.get(timeout=TIMEOUT).dropped:
            pass

    def message(self, ack_id: str) -> Message:
        response = pubsub.StreamingPullResponse(received_messages=[received(ack_id)])
        (made,) = ResponseBatch(self.dispatcher, 0.0, 0, response).messages()
        return made
