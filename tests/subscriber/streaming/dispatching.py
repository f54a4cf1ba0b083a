"""A dispatcher between messages made by hand and a server played by a test."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from protocol.clock import ManualClock
from subscriber.message import Message
from subscriber.streaming.dispatcher import Call, Dispatcher
from subscriber.streaming.outbox import Request
from tests.subscriber.streaming.fakes import PATIENCE, Server, ids, received


class CountingClock(ManualClock):
    """Counts how often somebody asks how long to wait: a busy loop asks all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def timeout(self, deadline: float | None) -> float | None:
        self.questions += 1
        return super().timeout(deadline)


class Rig:
    """A dispatcher between messages made by hand and a server played by hand."""

    def __init__(self, server: Server | None = None) -> None:
        self.clock = CountingClock()
        self.server = server or Server()
        self.finished: queue.SimpleQueue[tuple[list[str], list[str]]] = queue.SimpleQueue()
        self.dispatcher = Dispatcher(
            self.clock, send=self._send, finished=self._finished, max_messages=1
        )

    def _send(self, request: Request) -> Call:
        return self.server.send(request)

    def _finished(self, settled: Sequence[Message], acked: Sequence[Message]) -> None:
        self.finished.put((ids(settled), ids(acked)))

    def settle(self) -> None:
        """Return when the dispatcher has handled all that it was told so far."""
        self.message("settle").drop()
        while "settle" not in self.finished.get(timeout=PATIENCE)[0]:
            pass

    def message(self, ack_id: str) -> Message:
        return Message(received(ack_id), self.dispatcher, 0.0, share=0)
