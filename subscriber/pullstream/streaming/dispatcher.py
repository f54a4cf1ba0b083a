"""The dispatcher: sends the settlements to the server, and reports the results."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import grpc

from pullstream.columns.portions import Portion
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.message import Disposition, Message, Settlement, ack_ids_of, has_begun
from pullstream.rpc.calls import PendingCall
from pullstream.rpc.rpcs import to_error
from pullstream.runtime.process import ForkCheck, WakeUp, in_forked_child
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError, Unknown
from pullstream_protocol.inbox import Inbox

from .ack_lease_keepalive import KEEP_FOR
from .ack_requests import ALL_KINDS, AckRequest, AckResult, Purpose, RequestKind
from .outbox import Outbox

_log = logging.getLogger("pullstream.dispatcher")

# Largest number of requests in flight of each kind: acknowledgements and deadline changes. While
# that many are in flight, settlements gather and go out in larger requests.
MAX_IN_FLIGHT = 10

# Settlements also gather while this many acknowledgements are unanswered, or the window of flow
# control if that is larger. Reason: gRPC delivers answers on one thread of the channel, which is
# seconds behind when a hundred subscriptions are busy. A hundred subscriptions with the default
# window took 2.4 to 3.5 MiB each with a limit of 2,500 and now take 1.4 to 1.8. A limit of a small
# window alone would cost a quarter more CPU, because each answer would wake the thread.
MAX_UNANSWERED_ACKS = 1_000

# Seconds in which the thread must end after an abort.
ABORT_WAIT = 1.0

# Bounds in seconds: the longest delay while messages arrive steadily, the longest delay while few
# arrive (then a user may wait for the effect of a single message), and the shortest delay.
LONGEST_LINGER = 0.1
LONGEST_QUIET_LINGER = 0.02
SHORTEST_LINGER = 20e-6

# This many settlements in one round are a steady flow.
STEADY = 8

# At most this part of flow control's window should gather, so that the server keeps sending.
GATHERED_PART = 0.25

Event = Settlement | Callable[[], None]
T = TypeVar("T")


class _Phase(Enum):
    RUNNING = "running"
    # Waiting settlements are still sent, and the thread waits for answers.
    FLUSHING = "flushing"
    # Nothing is sent, and the thread does not wait for answers.
    ABORTED = "aborted"


class DispatchListener:
    """Receives events on the dispatcher's thread; here, it ignores them.

    Its methods must not block.
    """

    def mark_settled(
        self,
        acked: list[Message],
        nacked: list[Message],
        dropped: list[Message],
        returned: list[Message],
    ) -> None:
        """Handle messages that are finished. The server does not know it yet.

        Args:
            acked: Acknowledged messages.
            nacked: Nacked messages.
            dropped: Dropped messages, whose leases end by themselves.
            returned: Messages that the SDK returns, because no callback has seen or settled them.
        """

    def portions_acked(self, portions: list[Portion]) -> None:
        """Handle acknowledged portions. The server does not know it yet."""

    def nacks_answered(self, ack_ids: list[str], seconds: int) -> None:
        """Handle nacks that the server accepted, or refused permanently.

        Args:
            ack_ids: Ack ids of the nacks.
            seconds: The server does not redeliver the messages for this long, from now on.
        """

    def receipts_answered(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        """Handle the answer to receipts.

        Args:
            ack_ids: Deliveries whose ack ids are valid.
            failed: Deliveries whose ack ids are not valid, with the error of each.
        """

    def request_done(self, request: AckRequest, seconds: float, error: RpcError | None) -> None:
        """Handle the end of a call, which may be repeated.

        Args:
            request: The request of the call.
            seconds: Duration of the call.
            error: The error of the call; None if it succeeded.
        """

    def ack_ids_refused(self, request: AckRequest, failed: Mapping[str, AcknowledgeError]) -> None:
        """Handle ack ids that the server refused permanently, with the error of each."""

    def settlements_abandoned(self, errors: Mapping[str, AcknowledgeError]) -> None:
        """Handle settlements without a confirmation at the end, with the error of each ack id."""


class Linger:
    """A delay that grows while few settlements arrive during it, and shrinks while many do.

    Every round costs a wake-up and a call, so rounds should be long when there is little to do. But
    the server may wait for each finished message before it sends the next one. With the quiet
    bound, a hundred busy subscriptions in one process would spend most of their time on such
    rounds.

    Args:
        max_messages: The window of flow control.

    Attributes:
        seconds: The present delay.
    """

    def __init__(self, max_messages: int) -> None:
        self._enough = max_messages * GATHERED_PART
        self.seconds = SHORTEST_LINGER

    def learn(self, gathered: int) -> None:
        """Adjust the delay to the number of settlements that gathered during it."""
        if gathered > self._enough:
            self.seconds = max(self.seconds / 2, SHORTEST_LINGER)
        elif gathered < self._enough / 2:
            longest = LONGEST_LINGER if gathered >= STEADY else LONGEST_QUIET_LINGER
            self.seconds = min(self.seconds * 1.5, longest)


class Dispatcher:
    """An actor that takes settlements, calls the server, and takes the answers.

    Owns the Outbox and the calls in flight; only its own thread touches them. Workers, the user's
    threads, the leaser and gRPC's callbacks pass events to it through its inbox. It never waits for
    one call: several are in flight at a time. It keeps their futures, because grpc cancels a call
    whose future is dropped.

    Guarantees:

    - A finished message is reported to the listener immediately, before the server knows it.
    - Every tracked future is resolved, at the latest by `stop`.
    - Settlements that could not be delivered are logged once and counted.

    Args:
        clock: Measures time; its seconds are monotonic.
        send: Starts the call for a request. Must not wait.
        listener: Receives settled messages and ended calls, on this actor's thread.
        max_messages: The window of flow control, which limits how long settlements gather.
        longest_extension: Largest extension of a lease, in seconds.
        report_at_once: Report each answered call to the listener immediately, and not only when
            there is other work.

    Attributes:
        exactly_once: Whether the newest response reported exactly-once delivery. The consumer's
            thread sets it; messages show it.
        put: Adds a settlement without a future. Any thread may call it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        send: Callable[[AckRequest], PendingCall],
        listener: DispatchListener,
        max_messages: int,
        longest_extension: int = KEEP_FOR,
        report_at_once: bool = False,
    ) -> None:
        self._clock = clock
        self._send = send
        self._listener = listener
        self._linger = Linger(max_messages)
        self._max_acks_in_flight = max(max_messages, MAX_UNANSWERED_ACKS)
        self._report_at_once = report_at_once
        self._outbox = Outbox(keep_for=min(KEEP_FOR, longest_extension))
        self._in_flight: dict[int, tuple[AckRequest, PendingCall]] = {}
        self._inbox: Inbox[Event] = Inbox(clock)
        # Nearly all settlements are acknowledgements. They have a separate queue: see `ack`.
        self._acks: list[Message] = []
        # The same for portions, with the ack ids of their messages.
        self._acked_portions: list[tuple[Sequence[Portion], Sequence[str]]] = []
        # Answered calls: request, error, duration in seconds. The flag says whether an answer must
        # wake the thread.
        self._answers: deque[tuple[AckRequest, RpcError | None, float]] = deque()
        self._awaits_answers = False
        self._asleep = False
        # Set when a future waits for an answer: then settlements do not gather.
        self._send_now = WakeUp()
        self._phase = _Phase.RUNNING
        self._stream_ends = False
        self._fork = ForkCheck()
        in_forked_child(self, Dispatcher.refuse_in_child)
        self.exactly_once = False
        self.put: Callable[[Settlement], None] = self._inbox.put
        self._thread = threading.Thread(target=self._run, name="pullstream-dispatcher", daemon=True)

    def start(self) -> None:
        """Start the thread that sends requests and handles their answers."""
        self._thread.start()

    # ---- from any thread -----------------------------------------------------------------------

    def ack(self, message: Message) -> None:
        """Acknowledge a message.

        Uses a list and a flag instead of the inbox, which costs half as much. No wake-up is lost,
        because the two threads do two steps in opposite order: this thread appends and then reads
        the flag; the dispatcher's thread sets the flag and then reads the list. So the thread that
        is second sees the first step of the other.
        """
        self._acks.append(message)
        if self._asleep:
            self._asleep = False
            self._inbox.wake()

    def ack_all(self, messages: list[Message]) -> None:
        """Acknowledge messages. Extending the list is atomic, as `append` is in `ack`."""
        self._acks.extend(messages)
        if self._asleep:
            self._asleep = False
            self._inbox.wake()

    def ack_portions(self, portions: Sequence[Portion], ack_ids: Sequence[str]) -> None:
        """Acknowledge portions, whose messages have these ack ids."""
        self._acked_portions.append((portions, ack_ids))
        if self._asleep:
            self._asleep = False
            self._inbox.wake()

    def put_tracked(self, settlement: Settlement) -> None:
        """Add a settlement that has a future. Use `put` for settlements without one.

        Raises:
            ForkedProcess: This is a forked child process, in which the actor's thread does not run.
        """
        self._fork.refuse_child()
        refused = self._inbox.offer(settlement)
        self._send_now.set()
        for event in refused:
            if isinstance(event, tuple) and (future := event[3]) is not None:
                info = "not sent: the subscription is shut down"
                future.set_exception(AcknowledgeError(AcknowledgeStatus.OTHER, info))

    def extend_leases(self, ack_ids: list[str], seconds: int) -> None:
        """Extend leases to `seconds` from now."""
        self._inbox.put(partial(self._outbox.add_ack_ids, Purpose.LEASE, ack_ids, seconds))

    def send_receipts(self, ack_ids: list[str], seconds: int) -> None:
        """Send receipts with a deadline of `seconds`. The listener gets the answer."""
        self._inbox.put(partial(self._outbox.add_ack_ids, Purpose.RECEIPT, ack_ids, seconds))

    def stream_ends(self) -> None:
        """Send no deadline changes until `stream_ended`; nacks are among them.

        The server would redeliver a nacked message on the stream that is about to end, with the
        later messages of its key. All of them would be returned, and the server may count that.
        """
        self._stream_ends = True

    def stream_ended(self) -> None:
        """Send deadline changes again."""
        self._stream_ends = False
        self._inbox.wake()

    def stop(self, timeout: float) -> None:
        """Send the waiting settlements, wait for the answers, and end the thread. Idempotent.

        Args:
            timeout: Seconds to wait for answers. Unanswered settlements are then given up, and
                their futures are resolved with an error.
        """
        self._inbox.put(self._flush)
        self._send_now.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._inbox.put(self._abort)
            # This wait is limited, too: a done callback of the user may block the thread.
            self._thread.join(ABORT_WAIT)

    @property
    def unanswered(self) -> int:
        """Number of acknowledgements without an answer, or whose answer was not processed yet."""
        return len(self._acks) + self._portion_acks() + self._outbox.unanswered

    @property
    def failures(self) -> int:
        """Number of settlements that could not be delivered."""
        return self._outbox.failures

    def _portion_acks(self) -> int:
        # A list at once, because other threads append.
        return sum(len(ack_ids) for _, ack_ids in list(self._acked_portions))

    def runs_here(self) -> bool:
        """Return whether the calling thread is this actor's. Futures run done callbacks on it."""
        return threading.current_thread() is self._thread

    def refuse_in_child(self) -> None:
        """Make all later settlements raise ForkedProcess, in a forked child without the thread."""
        # `ack` does not check the process id, because it is called for every message.
        self._acks = _ForkedList(self._fork)
        self._acked_portions = _ForkedList(self._fork)
        self.put = self._acks.append

    # ---- the dispatcher's own thread -----------------------------------------------------------

    def _run(self) -> None:
        while not self._is_done():
            self._handle(self._next_events(), _take_all(self._acks))
            self._handle_portions(_take_all(self._acked_portions))
            self._take_answers()
            self._send_requests()
        self._handle(self._inbox.close(), _take_all(self._acks))
        self._handle_portions(_take_all(self._acked_portions))
        self._abandon()

    def _is_done(self) -> bool:
        is_idle = self._outbox.is_empty and not self._in_flight
        return self._phase is _Phase.ABORTED or (self._phase is _Phase.FLUSHING and is_idle)

    def _next_events(self) -> list[Event]:
        """Wait until there is work, and a little longer, so that settlements gather."""
        kinds = self._open_kinds()
        # Of a full kind nothing can be sent before one of its calls is answered, even if it is due.
        self._awaits_answers = (
            len(kinds) < len(ALL_KINDS)
            or self._report_at_once
            or self._phase is not _Phase.RUNNING
            or self._outbox.has_futures
            or any(request.is_awaited for request, _ in self._in_flight.values())
        )
        self._asleep = True
        if self._acks or self._acked_portions or self._answers:
            events = self._inbox.drain()
        else:
            events = self._inbox.take(self._outbox.next_due(kinds))
        self._asleep = False
        if (events or self._acks or self._acked_portions) and self._phase is _Phase.RUNNING:
            # Most settlements come in groups. To wake up for each one would cost more than sending
            # it.
            self._send_now.wait(self._linger.seconds)
            self._send_now.clear()
            events += self._inbox.drain()
            self._linger.learn(len(events) + len(self._acks) + self._portion_acks())
        return events

    def _handle(self, events: Sequence[Event], acked: list[Message]) -> None:
        nacked: list[Message] = []
        dropped: list[Message] = []
        returned: list[Message] = []
        for event in events:
            if not isinstance(event, tuple):
                event()
                continue
            disposition, message, seconds, future = event
            if disposition is Disposition.ACK:
                acked.append(message)
                purpose = Purpose.ACK
            elif disposition is Disposition.DROP:
                dropped.append(message)
                continue
            else:
                purpose = Purpose.USER
                if disposition is Disposition.NACK:
                    nacked.append(message)
                    purpose = Purpose.NACK
                elif disposition is Disposition.RETURN:
                    returned.append(message)
                    purpose = Purpose.NACK if has_begun(message) else Purpose.RETURN
                self._outbox.add_ack_ids(purpose, (message.ack_id,), seconds)
            if future is not None:
                self._outbox.track_future(purpose, message.ack_id, future, seconds)
        if acked:
            self._outbox.add_ack_ids(Purpose.ACK, ack_ids_of(acked))
        if acked or nacked or dropped or returned:
            self._listener.mark_settled(acked, nacked, dropped, returned)

    def _handle_portions(self, acked: Sequence[tuple[Sequence[Portion], Sequence[str]]]) -> None:
        if acked:
            for _, ack_ids in acked:
                self._outbox.add_ack_ids(Purpose.ACK, ack_ids)
            self._listener.portions_acked([each for portions, _ in acked for each in portions])

    def _open_kinds(self) -> Collection[RequestKind]:
        """Return the kinds of which a call may begin before another one is answered."""
        acks = [len(request.ack_ids) for request, _ in self._in_flight.values() if request.is_ack]
        changes = len(self._in_flight) - len(acks)
        may_ack = len(acks) < MAX_IN_FLIGHT and sum(acks) < self._max_acks_in_flight
        if changes < MAX_IN_FLIGHT and not self._stream_ends:
            return ALL_KINDS if may_ack else (RequestKind.DEADLINES,)
        return (RequestKind.ACKS,) if may_ack else ()

    def _send_requests(self) -> None:
        while True:
            request = self._outbox.next_request(self._clock.monotonic(), self._open_kinds())
            if request is None:
                return
            try:
                call = self._send(request)
            except Exception as error:
                # The channel is closed, so another attempt cannot succeed.
                self._report(request, self._outbox.record_failure(request, str(error)))
                continue
            self._in_flight[id(request)] = request, call
            call.add_done_callback(partial(self._on_done, request))

    def _on_done(self, request: AckRequest, call: PendingCall) -> None:
        """Pass an answer from a thread of gRPC to this actor's thread.

        Most answers are a plain success, which can wait until there is other work. To wake the
        thread for each one would cause half of all wake-ups.
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
                # Before `record_answer`, which removes ids from a request that failed partially.
                self._listener.request_done(request, seconds, error)
                now = self._clock.monotonic()
                self._report(request, self._outbox.record_answer(request, error, now))

    def _report(self, request: AckRequest, answer: AckResult) -> None:
        if request.is_receipt:
            self._listener.receipts_answered(list(answer.succeeded), answer.failed)
            return
        if request.is_nack and (answer.succeeded or answer.failed):
            self._listener.nacks_answered([*answer.succeeded, *answer.failed], request.seconds)
        if answer.failed:
            errors = list(answer.failed.values())
            if request.purpose in (Purpose.LEASE, Purpose.RETURN, Purpose.NACK):
                # The lease of a returned message may have ended already, and that of a nacked one
                # by an earlier attempt. The listener reports a lease that was lost before its
                # extension.
                over = AcknowledgeStatus.INVALID_ACK_ID
                errors = [
                    error
                    for error in errors
                    if error.error_code is not over
                    or (request.purpose is Purpose.NACK and not error.may_have_succeeded)
                ]
            if errors:
                consequence = "may be delivered again"
                if request.is_ack and any(error.may_have_succeeded for error in errors):
                    consequence = "may be acknowledged"
                _log.warning(
                    "could not %s %d messages, which %s: %s",
                    "acknowledge" if request.is_ack else "change the deadline of",
                    len(errors),
                    consequence,
                    errors[0],
                )
            self._listener.ack_ids_refused(request, answer.failed)

    def _flush(self) -> None:
        self._phase = _Phase.FLUSHING

    def _abort(self) -> None:
        self._phase = _Phase.ABORTED

    def _abandon(self) -> None:
        self._take_answers()
        in_flight = [request for request, _ in self._in_flight.values()]
        for _, call in self._in_flight.values():
            call.cancel()
        self._in_flight.clear()
        errors = self._outbox.abandon(in_flight, "the subscription was shut down")
        if not errors:
            return
        sent = sum(error.may_have_succeeded for error in errors.values())
        if sent:
            _log.warning("shut down before the server confirmed %d messages", sent)
        if sent < len(errors):
            unsent = len(errors) - sent
            _log.warning("shut down before the outcomes of %d messages were sent", unsent)
        self._listener.settlements_abandoned(errors)


class _ForkedList(list[Any]):
    """Refuses all items, in a child of the process that created the dispatcher."""

    def __init__(self, fork: ForkCheck) -> None:
        super().__init__()
        self._fork = fork

    def append(self, _: object) -> None:
        raise self._fork.error()

    def extend(self, _: Iterable[object]) -> None:
        raise self._fork.error()


def _take_all(items: list[T]) -> list[T]:
    """Take the items of a list to which other threads append."""
    count = len(items)
    taken = items[:count]
    # Other threads only append meanwhile, after these.
    del items[:count]
    return taken


def _error_of(call: PendingCall) -> RpcError | None:
    """Return the error of a finished call; None if it succeeded."""
    try:
        error = call.exception()
    except grpc.FutureCancelledError:
        return Unknown("the call was cancelled")
    if isinstance(error, grpc.RpcError):
        return to_error(error)
    return None if error is None else Unknown(str(error))
