"""Poll responder: one thread that answers all polls of a `grpc.server` that wait."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

import grpc

from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.deadlines import DeadlineTable
from pullstream_protocol.errors import RpcError
from pullstream_protocol.grpc_internals import DeferredReply
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.queue_wait import get_within

from .session import Poll

_log = logging.getLogger("pullstream.channels")

# Callers with the same timeout differ by microseconds. Their waiting times are rounded down to this
# many steps per second, so that they share one queue of the deadline table.
_STEPS = 100


class ParkedPoll(DeferredReply):
    """A poll and its call. The object is called when the poll is ready or the call is over.

    It is used as the `wake` function of the poll and as the callback for the end of the call.
    Separate bound methods would take more memory with ten thousand polls.

    Args:
        context: The context of the call.
        check: Called with the ParkedPoll when it is ready or over.
    """

    __slots__ = ("_check", "poll")

    def __init__(self, context: grpc.ServicerContext, check: Callable[[ParkedPoll], None]) -> None:
        super().__init__(context)
        self._check = check
        self.poll: Poll | None = None

    def __call__(self, poll: Poll | None = None) -> None:
        """Pass this object to `check`; gRPC gives no argument when the call is over."""
        # A publishing thread may call this before `begin_poll` has returned and `poll` is set.
        self.poll = poll or self.poll
        self._check(self)


class PollResponder:
    """Answers polls when they are ready, or when their deadlines are near.

    A background thread, "pullstream-answers", does this, because the thread that wakes a poll holds
    the publisher's lock and must not wait. Only this thread finishes polls and uses the deadline
    table.

    Args:
        finish: Returns the response of a poll, or raises its error.
        withdraw: Called with a poll whose caller is gone.
    """

    def __init__(
        self,
        finish: Callable[[Poll], encoded.EncodedPollResponse],
        withdraw: Callable[[Poll], None],
    ) -> None:
        self._finish = finish
        self._withdraw = withdraw
        # Polls to check, with the seconds until then (0: now). None ends the thread.
        self._events: queue.SimpleQueue[tuple[ParkedPoll, float] | None] = queue.SimpleQueue()
        self._waiting: DeadlineTable[ParkedPoll, None] = DeadlineTable()
        # A daemon thread: a program that forgets to close its publisher must still be able to exit.
        self._thread = threading.Thread(target=self._run, name="pullstream-answers", daemon=True)
        self._thread.start()

    def check(self, parked: ParkedPoll, seconds: float = 0.0) -> None:
        """Check a poll, now or in `seconds`: answer it, or withdraw it if its call is over."""
        self._events.put((parked, seconds))

    def stop(self) -> None:
        """End the thread when it has processed all earlier events, and wait for that."""
        self.end()
        self._thread.join()

    def end(self) -> None:
        """End the thread when it has processed all earlier events. Takes no lock."""
        self._events.put(None)

    def _run(self) -> None:
        # Two functions, so that their local variables are freed when they return. In one loop, the
        # last poll would stay in memory until the next event.
        while self._take_one():
            self._answer_due()

    def _take_one(self) -> bool:
        """Wait for an event and process it; stop waiting when a poll's deadline is near."""
        try:
            event = get_within(self._events, SYSTEM_CLOCK.timeout(self._waiting.next_due()))
        except queue.Empty:
            return True
        if event is None:
            return False
        parked, seconds = event
        if not seconds:
            self._waiting.pop(parked)
            self._answer_or_withdraw(parked)
        elif parked.is_active:
            seconds = int(seconds * _STEPS) / _STEPS
            self._waiting.set(parked, None, seconds, SYSTEM_CLOCK.monotonic())
        return True

    def _answer_due(self) -> None:
        for parked, _ in self._waiting.pop_due(SYSTEM_CLOCK.monotonic()):
            self._answer_or_withdraw(parked)

    def _answer_or_withdraw(self, parked: ParkedPoll) -> None:
        try:
            if parked.is_active:
                self._answer(parked)
            else:
                self._let_go(parked)
        except Exception:
            _log.exception("a poll could not be answered because of an internal error")

    def _answer(self, parked: ParkedPoll) -> None:
        assert parked.poll is not None, "a poll is checked only after it was begun"
        try:
            parked.answer(self._finish(parked.poll).SerializeToString())
        except RpcError as error:
            parked.fail(error)

    def _let_go(self, parked: ParkedPoll) -> None:
        """Withdraw a poll whose call is over. Has no effect if the poll was answered."""
        poll, parked.poll = parked.poll, None
        if poll is not None:
            self._withdraw(poll)
