"""The dispatcher: takes what callbacks decided, tells the server, and reports how that went."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

import grpc

from protocol.clock import Clock
from protocol.errors import RpcError, Unknown, from_rpc_error
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.message import Message, Outcome, Verdict

from .inbox import Inbox
from .outbox import ACK, Outbox, Request
from .verdicts import Answer

_log = logging.getLogger("pullstream.dispatcher")

# Requests under way at a time. While all are, outcomes gather and go out in larger ones.
MAX_IN_FLIGHT = 10

# How long outcomes may gather before they are handled, in seconds: at most LONGEST_LINGER, less for
# a small window of flow control, where each finished message is needed to let the next one in.
LONGEST_LINGER = 0.005
LINGER_PER_MESSAGE = 20e-6

# How long the thread may take to come to its end when it has been told to give up, in seconds.
GIVE_UP_WAIT = 1.0

Event = Outcome | Callable[[], None]


class _Phase(Enum):
    RUNNING = "running"
    # What is there is still sent, and answers are waited for.
    FLUSHING = "flushing"
    # Neither.
    GIVEN_UP = "given up"


class Call(Protocol):
    """A unary call under way: what grpc's future offers of use here."""

    def add_done_callback(self, callback: Callable[[Call], None]) -> None: ...

    def exception(self, timeout: float | None = None) -> BaseException | None: ...

    def cancel(self) -> object: ...


class Dispatcher:
    """An actor: outcomes of messages in, calls to the server out, their answers in again.

    Owns the Outbox and the calls under way; only its own thread touches them. Workers, the user's
    threads, the leaser and gRPC's callbacks all speak to it through its inbox. It never waits for a
    call: several are under way at a time (grpc cancels one whose future is dropped, so they are
    kept).

    Guarantees: a finished message is reported to `finished` exactly as it comes, before the server
    is told; every tracked future is resolved, at the latest by `stop`; what could not be delivered
    is logged once and counted.

    Args:
        send: start the call for a request. Must not wait.
        finished: told of each batch of settled messages: (all of them, those acknowledged).
        max_messages: the window of flow control, which decides how long outcomes may gather.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        send: Callable[[Request], Call],
        finished: Callable[[Sequence[Message], Sequence[Message]], None],
        max_messages: int,
    ) -> None:
        self._clock = clock
        self._send = send
        self._finished = finished
        self._linger = min(LONGEST_LINGER, max_messages * LINGER_PER_MESSAGE)
        self._outbox = Outbox()
        self._in_flight: dict[int, Call] = {}
        self._inbox: Inbox[Event] = Inbox(clock)
        # Set when somebody waits for an answer: then outcomes do not gather.
        self._hurry = threading.Event()
        self._phase = _Phase.RUNNING
        # By the newest response; the consumer's thread sets it, messages show it.
        self.exactly_once = False
        self.failures = 0
        self.put: Callable[[Outcome], None] = self._inbox.put
        self._thread = threading.Thread(target=self._run, name="pullstream-dispatcher", daemon=True)
        self._thread.start()

    # ---- from any thread -----------------------------------------------------------------------

    def put_tracked(self, outcome: Outcome) -> None:
        """An outcome whose future somebody waits for (`put` is for the others)."""
        future = outcome[3]
        if self._inbox.offer(outcome):
            self._hurry.set()
        elif future is not None:
            info = "the subscription is shut down; the server was not told"
            future.set_exception(AcknowledgeError(AcknowledgeStatus.OTHER, info))

    def extend(self, ack_ids: list[str], seconds: int) -> None:
        """Ask the server to let leases last `seconds` from now."""
        self._inbox.put(partial(self._outbox.add, seconds, ack_ids))

    def nack(self, messages: Sequence[Message]) -> None:
        """Give messages back that no callback has seen or will settle."""
        for message in messages:
            message.nack()

    def stop(self, timeout: float) -> None:
        """Send what is waiting, wait for the answers, and end the thread. Idempotent.

        What is not answered within `timeout` seconds is given up, its futures resolved with an
        error.
        """
        self._inbox.put(self._flush)
        self._hurry.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._inbox.put(self._give_up)
            # Bounded, too: a done callback of the user's may hold the thread up.
            self._thread.join(GIVE_UP_WAIT)

    def runs_here(self) -> bool:
        """Whether the calling thread is this actor's: the done callbacks of futures run on it."""
        return threading.current_thread() is self._thread

    # ---- the dispatcher's own thread -----------------------------------------------------------

    def _run(self) -> None:
        while not self._is_done():
            # With all calls under way nothing can be sent, due or not, before one is answered.
            full = len(self._in_flight) >= MAX_IN_FLIGHT
            events = self._inbox.take(None if full else self._outbox.next_due())
            if events and self._phase is _Phase.RUNNING:
                # Most outcomes come in crowds; woken for each alone we would cost more than they
                # do.
                self._hurry.wait(self._linger)
                self._hurry.clear()
                events += self._inbox.drain()
            self._handle(events)
            self._send_requests()
        for call in self._in_flight.values():
            call.cancel()
        self._in_flight.clear()
        self._handle(self._inbox.close())
        self._abandon()

    def _is_done(self) -> bool:
        is_idle = self._outbox.is_empty and not self._in_flight
        return self._phase is _Phase.GIVEN_UP or (self._phase is _Phase.FLUSHING and is_idle)

    def _handle(self, events: Sequence[Event]) -> None:
        settled: list[Message] = []
        acked: list[Message] = []
        nacked: list[str] = []
        for event in events:
            if not isinstance(event, tuple):
                event()
                continue
            verdict, message, seconds, future = event
            kind = 0
            if verdict is Verdict.ACK:
                acked.append(message)
                kind = ACK
            elif verdict is Verdict.NACK:
                nacked.append(message.ack_id)
            elif verdict is Verdict.EXTEND:
                self._outbox.add(seconds, (message.ack_id,))
                kind = seconds
            if verdict is not Verdict.EXTEND:
                settled.append(message)
            if future is not None:
                self._outbox.track(kind, message.ack_id, future)
        if acked:
            self._outbox.add(ACK, [message.ack_id for message in acked])
        if nacked:
            self._outbox.add(0, nacked)
        if settled:
            self._finished(settled, acked)

    def _send_requests(self) -> None:
        while len(self._in_flight) < MAX_IN_FLIGHT:
            request = self._outbox.next_request(self._clock.monotonic())
            if request is None:
                return
            try:
                call = self._send(request)
            except Exception as error:
                # A closed channel, which no other attempt will open.
                self._report(request, self._outbox.refused(request, str(error)))
                continue
            self._in_flight[id(request)] = call
            call.add_done_callback(partial(self._on_done, request))

    def _on_done(self, request: Request, call: Call) -> None:
        """Runs on a thread of gRPC: pass the answer on to our own."""
        self._inbox.put(partial(self._take_answer, request, call))

    def _take_answer(self, request: Request, call: Call) -> None:
        if self._in_flight.pop(id(request), None) is None:
            return
        try:
            error = call.exception()
        except grpc.FutureCancelledError:
            error = Unknown("the call was cancelled")
        if isinstance(error, grpc.RpcError):
            self._answered(request, from_rpc_error(error))
        else:
            self._answered(request, None if error is None else Unknown(str(error)))

    def _answered(self, request: Request, error: RpcError | None) -> None:
        self._report(request, self._outbox.answered(request, error, self._clock.monotonic()))

    def _report(self, request: Request, answer: Answer) -> None:
        if answer.failed:
            self.failures += len(answer.failed)
            what = "acknowledge" if request.is_ack else "change the deadline of"
            _log.warning(
                "could not %s %d messages, they will be delivered again: %s",
                what,
                len(answer.failed),
                next(iter(answer.failed.values())),
            )

    def _flush(self) -> None:
        self._phase = _Phase.FLUSHING

    def _give_up(self) -> None:
        self._phase = _Phase.GIVEN_UP

    def _abandon(self) -> None:
        unsent = self._outbox.abandon("the subscription was shut down before the server answered")
        if unsent:
            self.failures += unsent
            _log.warning("shut down before the server was told about %d messages", unsent)
