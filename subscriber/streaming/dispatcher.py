"""The dispatcher: takes what callbacks decided, tells the server, and reports how that went."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

import grpc

from protocol.clock import Clock
from protocol.errors import RpcError, Unknown, from_rpc_error
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus, forked
from subscriber.futures import AckFuture
from subscriber.message import Message, Outcome, Verdict, ack_ids_of

from .inbox import Inbox
from .keeper import KEEP_FOR
from .linger import Linger
from .outbox import MAX_IDS, Outbox, resolve
from .requests import ACK, Purpose, Request
from .verdicts import Answer

_log = logging.getLogger("pullstream.dispatcher")

# Requests of a kind, acknowledgements or deadline changes, under way at a time. While all are,
# outcomes gather and go out in larger ones. So they do while as many acknowledgements are
# unanswered as one request can hold, or flow control's window: gRPC answers on one thread of the
# channel, and where a hundred subscriptions are busy that thread is seconds behind. Ten full
# requests of each were most of the memory that they took.
MAX_IN_FLIGHT = 10

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


class DispatchListener(Protocol):
    """Told what happens, on the dispatcher's thread, which it must not hold up."""

    def settled(self, acked: list[Message], nacked: list[Message], dropped: list[Message]) -> None:
        """Messages are finished. The server has not been told yet."""

    def confirmed(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        """The server said which freshly delivered messages are ours, and which are not."""

    def request_done(self, request: Request, seconds: float, error: RpcError | None) -> None:
        """A call ended; it may be made again."""

    def not_taken(self, request: Request, failed: Mapping[str, AcknowledgeError]) -> None:
        """The server did not take these, for good; by ack id."""


class Dispatcher:
    """An actor: outcomes of messages in, calls to the server out, their answers in again.

    Owns the Outbox and the calls under way; only its own thread touches them. Workers, the user's
    threads, the leaser and gRPC's callbacks all speak to it through its inbox. It never waits for a
    call: several are under way at a time (grpc cancels one whose future is dropped, so they are
    kept).

    Guarantees: a finished message is reported to the listener as it comes, before the server is
    told; every tracked future is resolved, at the latest by `stop`; what could not be delivered
    is logged once and counted.

    Args:
        send: start the call for a request. Must not wait.
        listener: told on this actor's thread of what was settled, and of how calls ended.
        max_messages: the window of flow control, which decides how long outcomes may gather.
        longest_extension: seconds by which a lease may be extended at a time.
        report_at_once: tell the listener of each answered call when it is answered, and not when
            there is something else to do.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        send: Callable[[Request], Call],
        listener: DispatchListener,
        max_messages: int,
        longest_extension: int = KEEP_FOR,
        report_at_once: bool = False,
    ) -> None:
        self._clock = clock
        self._send = send
        self._listener = listener
        self._linger = Linger(max_messages)
        self._max_acks_in_flight = max(max_messages, MAX_IDS)
        self._report_at_once = report_at_once
        self._outbox = Outbox(keep_for=min(KEEP_FOR, longest_extension))
        self._in_flight: dict[int, tuple[Request, Call]] = {}
        self._inbox: Inbox[Event] = Inbox(clock)
        # Acknowledgements, nearly all there is, by a way of their own: see `ack`.
        self._acks: list[Message] = []
        # Answered calls: request, error, seconds that it took. And whether one is waited for.
        self._answers: deque[tuple[Request, RpcError | None, float]] = deque()
        self._awaits_answers = False
        self._asleep = False
        # Set when somebody waits for an answer: then outcomes do not gather.
        self._hurry = threading.Event()
        self._phase = _Phase.RUNNING
        self._process = os.getpid()
        _dispatchers.add(self)
        # By the newest response; the consumer's thread sets it, messages show it.
        self.exactly_once = False
        self.failures = 0
        self.put: Callable[[Outcome], None] = self._inbox.put
        self._thread = threading.Thread(target=self._run, name="pullstream-dispatcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # ---- from any thread -----------------------------------------------------------------------

    def ack(self, message: Message) -> None:
        """A message is handled.

        A list and a flag instead of the inbox: half the price. No wake-up is lost, as the two
        threads do the two steps in opposite order: here first the append, then the look at the
        flag; there first the flag, then the look at the list. Whoever comes second sees the other.
        """
        self._acks.append(message)
        if self._asleep:
            self._asleep = False
            self._inbox.wake()

    def ack_all(self, messages: list[Message]) -> None:
        """Messages are handled. To extend a list by another is a single step, too."""
        self._acks.extend(messages)
        if self._asleep:
            self._asleep = False
            self._inbox.wake()

    def put_tracked(self, outcome: Outcome) -> None:
        """An outcome whose future somebody waits for (`put` is for the others).

        Raises:
            ForkedProcess: this is a child process, which the actor's thread did not follow into.
        """
        if os.getpid() != self._process:
            raise forked(self._process)
        future = outcome[3]
        if self._inbox.offer(outcome):
            self._hurry.set()
        elif future is not None:
            info = "the subscription is shut down; the server was not told"
            future.set_exception(AcknowledgeError(AcknowledgeStatus.OTHER, info))

    def extend(self, ack_ids: list[str], seconds: int) -> None:
        """Ask the server to let leases last `seconds` from now."""
        self._inbox.put(partial(self._outbox.add, seconds, ack_ids, Purpose.LEASE))

    def confirm(self, ack_ids: list[str], seconds: int) -> None:
        """Ask the server whether these are still ours; the listener is told what it says."""
        self._inbox.put(partial(self._outbox.add, seconds, ack_ids, Purpose.RECEIPT))

    def nack(self, messages: Sequence[Message]) -> None:
        """Give messages back that no callback has seen or will settle."""
        for message in messages:
            # Not a failure: what stands behind it in its key is seen to by whoever gives it back.
            message.purged = True
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

    @property
    def unanswered(self) -> int:
        """Acknowledgements that the server has not answered yet, or whose answer is not read."""
        return len(self._acks) + self._outbox.unanswered

    def runs_here(self) -> bool:
        """Whether the calling thread is this actor's: the done callbacks of futures run on it."""
        return threading.current_thread() is self._thread

    def refuse(self) -> None:
        """In a forked child: raise ForkedProcess for whatever comes, as nobody would see to it."""
        # `ack` looks at no process's number: it is called for every message.
        self._acks = _ForkedList(self._process)
        self.put = self._acks.append

    # ---- the dispatcher's own thread -----------------------------------------------------------

    def _run(self) -> None:
        while not self._is_done():
            self._handle(self._next_events(), self._take_acks())
            self._take_answers()
            self._send_requests()
        self._cancel_calls()
        self._handle(self._inbox.close(), self._take_acks())
        self._abandon()

    def _is_done(self) -> bool:
        is_idle = self._outbox.is_empty and not self._in_flight
        return self._phase is _Phase.GIVEN_UP or (self._phase is _Phase.FLUSHING and is_idle)

    def _next_events(self) -> list[Event]:
        """Wait until there is something to do, and a little longer for what comes with it."""
        acks, changes = self._open_lanes()
        # What a full lane has to send cannot be sent, due or not, before a call is answered.
        self._awaits_answers = (
            not (acks and changes)
            or self._report_at_once
            or self._phase is not _Phase.RUNNING
            or self._outbox.has_somebody_waiting
            or any(request.is_receipt for request, _ in self._in_flight.values())
        )
        self._asleep = True
        if self._acks or self._answers:
            events = self._inbox.drain()
        else:
            events = self._inbox.take(self._outbox.next_due(acks=acks, changes=changes))
        self._asleep = False
        if (events or self._acks) and self._phase is _Phase.RUNNING:
            # Most outcomes come in crowds; woken for each alone we would cost more than they do.
            self._hurry.wait(self._linger.seconds)
            self._hurry.clear()
            events += self._inbox.drain()
            self._linger.learn(len(events) + len(self._acks))
        return events

    def _take_acks(self) -> list[Message]:
        count = len(self._acks)
        acks = self._acks[:count]
        # Others only append meanwhile, behind these.
        del self._acks[:count]
        return acks

    def _handle(self, events: Sequence[Event], acked: list[Message]) -> None:
        nacked: list[Message] = []
        dropped: list[Message] = []
        for event in events:
            if not isinstance(event, tuple):
                event()
                continue
            verdict, message, seconds, future = event
            purpose = Purpose.NACK if verdict is Verdict.NACK else Purpose.ASKED
            if verdict is Verdict.ACK:
                acked.append(message)
                seconds = ACK
            elif verdict is Verdict.DROP:
                dropped.append(message)
                continue
            else:
                self._outbox.add(seconds, (message.ack_id,), purpose)
                if verdict is Verdict.NACK:
                    nacked.append(message)
            if future is not None:
                self._track(seconds, purpose, message, future)
        if acked:
            self._outbox.add(ACK, ack_ids_of(acked))
        if acked or nacked or dropped:
            self._listener.settled(acked, nacked, dropped)

    def _track(self, seconds: int, purpose: Purpose, message: Message, future: AckFuture) -> None:
        if message.settled is Verdict.DROP:
            # Given up before: the server may take it none the less, but it has been told, or will
            # find, that the lease is over, and will deliver the message again.
            info = "the lease was given up before; the message will be delivered again"
            resolve(future, AcknowledgeError(AcknowledgeStatus.INVALID_ACK_ID, info))
        else:
            self._outbox.track(seconds, message.ack_id, future, purpose)

    def _open_lanes(self) -> tuple[bool, bool]:
        """Whether an acknowledgement may be begun before another call is answered, and whether a
        deadline change may."""
        acks = [len(request.ack_ids) for request, _ in self._in_flight.values() if request.is_ack]
        changes = len(self._in_flight) - len(acks)
        may_ack = len(acks) < MAX_IN_FLIGHT and sum(acks) < self._max_acks_in_flight
        return may_ack, changes < MAX_IN_FLIGHT

    def _send_requests(self) -> None:
        while True:
            acks, changes = self._open_lanes()
            request = self._outbox.next_request(self._clock.monotonic(), acks=acks, changes=changes)
            if request is None:
                return
            try:
                call = self._send(request)
            except Exception as error:
                # A closed channel, which no other attempt will open.
                self._report(request, self._outbox.refused(request, str(error)))
                continue
            self._in_flight[id(request)] = request, call
            call.add_done_callback(partial(self._on_done, request))

    def _on_done(self, request: Request, call: Call) -> None:
        """Runs on a thread of gRPC: pass the answer on to our own.

        A plain success can wait until there is something else to do, and most do; being woken for
        each would be half of all wake-ups.
        """
        error = _error_of(call)
        seconds = self._clock.monotonic() - request.sent_at
        self._answers.append((request, error, seconds))
        if self._asleep and (error is not None or self._awaits_answers):
            self._asleep = False
            self._inbox.wake()

    def _take_answers(self) -> None:
        while self._answers:
            request, error, seconds = self._answers.popleft()
            if self._in_flight.pop(id(request), None) is not None:
                # First: of a request that failed in part, only some ids stay in it.
                self._listener.request_done(request, seconds, error)
                now = self._clock.monotonic()
                self._report(request, self._outbox.answered(request, error, now))

    def _report(self, request: Request, answer: Answer) -> None:
        if request.is_receipt:
            self._listener.confirmed(answer.succeeded, answer.failed)
        elif answer.failed:
            self.failures += len(answer.failed)
            what = "acknowledge" if request.is_ack else "change the deadline of"
            _log.warning(
                "could not %s %d messages, which may be delivered again: %s",
                what,
                len(answer.failed),
                next(iter(answer.failed.values())),
            )
            self._listener.not_taken(request, answer.failed)

    def _flush(self) -> None:
        self._phase = _Phase.FLUSHING

    def _give_up(self) -> None:
        self._phase = _Phase.GIVEN_UP

    def _cancel_calls(self) -> None:
        unanswered = 0
        for request, call in self._in_flight.values():
            call.cancel()
            if request.purpose is not Purpose.KEEP:
                unanswered += len(request.ack_ids)
        self._in_flight.clear()
        if unanswered:
            self.failures += unanswered
            _log.warning("shut down before the server answered about %d messages", unanswered)

    def _abandon(self) -> None:
        unsent = self._outbox.abandon("the subscription was shut down before the server answered")
        if unsent:
            self.failures += unsent
            _log.warning("shut down before the server was told about %d messages", unsent)


class _ForkedList(list[Any]):
    """Takes nothing, in a child of the process that made it."""

    def __init__(self, made_in: int) -> None:
        super().__init__()
        self._made_in = made_in

    def append(self, _: object) -> None:
        raise forked(self._made_in)

    def extend(self, _: Iterable[object]) -> None:
        raise forked(self._made_in)


_dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for dispatcher in list(_dispatchers):
        dispatcher.refuse()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)


def _error_of(call: Call) -> RpcError | None:
    """How a call that is done ended; None: well."""
    try:
        error = call.exception()
    except grpc.FutureCancelledError:
        return Unknown("the call was cancelled")
    if isinstance(error, grpc.RpcError):
        return from_rpc_error(error)
    return None if error is None else Unknown(str(error))
