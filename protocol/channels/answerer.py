"""Polls that wait without a thread, and the one thread that answers them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

import grpc

from protocol.clock import SYSTEM_CLOCK
from protocol.deadlines import DeadlineTable
from protocol.errors import RpcError
from protocol.messages import encoded_pb2 as encoded

from .parking import ParkedCall
from .session import Poll

_log = logging.getLogger("pullstream.channels")

# Callers with one timeout wait for as long, but for microseconds. Rounded down to so many steps a
# second they are one queue of the table.
_STEPS = 100


class ParkedPoll(ParkedCall):
    """A poll and its call. To be called when there is something to do: it is ready, or it is over.

    It is both what wakes the poll and what the end of the call calls: ten thousand methods, each
    with its object, would be kept else.

    look: called with it then.
    """

    __slots__ = ("_look", "poll")

    def __init__(self, context: grpc.ServicerContext, look: Callable[[ParkedPoll], None]) -> None:
        super().__init__(context)
        self._look = look
        self.poll: Poll | None = None

    def __call__(self, poll: Poll | None = None) -> None:
        # Whoever publishes may be here before `begin_poll` has returned.
        self.poll = poll or self.poll
        self._look(self)


class Answerer:
    """Answers polls when they are ready, or when their callers wait no longer.

    A thread of its own does, "pullstream-answers": whoever wakes a poll holds the publisher's lock,
    and must not wait. It alone finishes polls and keeps the times.

    Args:
        finish: gives a poll's answer, or raises what it ends with.
        withdraw: told of a poll whose caller is gone.
    """

    def __init__(
        self,
        finish: Callable[[Poll], encoded.EncodedPollResponse],
        withdraw: Callable[[Poll], None],
    ) -> None:
        self._finish = finish
        self._withdraw = withdraw
        # What is to be looked at: at once, or in so many seconds; None: no more.
        self._events: queue.SimpleQueue[tuple[ParkedPoll, float] | None] = queue.SimpleQueue()
        self._waiting: DeadlineTable[ParkedPoll, None] = DeadlineTable()
        # Daemon: a program that forgets to close its publisher must still be able to exit.
        self._thread = threading.Thread(target=self._run, name="pullstream-answers", daemon=True)
        self._thread.start()

    def look(self, parked: ParkedPoll, seconds: float = 0.0) -> None:
        """Answer it, or let it go if its call is over: at once, or after so long at the latest."""
        self._events.put((parked, seconds))

    def stop(self) -> None:
        """End the thread, when it has done what it was asked for."""
        self._events.put(None)
        self._thread.join()

    def _run(self) -> None:
        # What these two have in hand is let go of when they return, not with the next event.
        while self._take_one():
            self._settle_due()

    def _take_one(self) -> bool:
        """Wait for an event, but no longer than somebody waits for his answer."""
        try:
            event = self._events.get(timeout=SYSTEM_CLOCK.timeout(self._waiting.next_due()))
        except queue.Empty:
            return True
        if event is None:
            return False
        parked, seconds = event
        if not seconds:
            self._waiting.pop(parked)
            self._settle(parked)
        elif parked.is_active:
            seconds = int(seconds * _STEPS) / _STEPS
            self._waiting.set(parked, None, seconds, SYSTEM_CLOCK.monotonic())
        return True

    def _settle_due(self) -> None:
        for parked, _ in self._waiting.pop_due(SYSTEM_CLOCK.monotonic()):
            self._settle(parked)

    def _settle(self, parked: ParkedPoll) -> None:
        try:
            if parked.is_active:
                self._answer(parked)
            else:
                self._let_go(parked)
        except Exception:
            _log.exception("A poll could not be answered.")

    def _answer(self, parked: ParkedPoll) -> None:
        assert parked.poll is not None, "nobody asks for it before"
        try:
            parked.answer(self._finish(parked.poll).SerializeToString())
        except RpcError as error:
            parked.fail(error)

    def _let_go(self, parked: ParkedPoll) -> None:
        """Its call is over. If that is because it was answered, there is nothing to withdraw."""
        poll, parked.poll = parked.poll, None
        if poll is not None:
            self._withdraw(poll)
