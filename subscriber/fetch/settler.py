"""What goes on beside a caller that works on fetched messages: verdicts are sent, leases kept."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from protocol.clock import Clock
from protocol.deadlines import DeadlineTable
from protocol.errors import RpcError
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus, SubscriberClosed
from subscriber.futures import AckFuture, RunningFuture, ShutdownMode
from subscriber.message import Message, Outcome, Verdict
from subscriber.refused_threads import start_or_undo
from subscriber.rpc import Rpcs
from subscriber.streaming.dispatcher import Call, Dispatcher
from subscriber.streaming.inbox import Inbox
from subscriber.streaming.requests import Request

from .rules import EXTEND_AT, EXTENSION
from .settle import call_for

_log = logging.getLogger("pullstream.fetch")

# Leases are not kept for longer than this, in seconds, as it is with `subscribe`.
LONGEST_LEASE = 3600.0

# Work that ends within so many seconds of the messages' arrival costs no call for their leases. Nor
# does that call arrive after the one that acknowledges, which a server with exactly-once delivery
# would refuse.
FIRST_HOLD = 0.5

# How long the last verdicts may take to be told when the client is closed, in seconds.
FLUSH_TIME = 10.0

# Verdicts of so many messages at a time are worth a call of their own: see Linger.
_WINDOW = 1000

_numbers = itertools.count()


class Verdicts:
    """What the messages of one fetch are told by: `Outcomes`, as `Message` wants them.

    Each verdict is sent by the subscription's settler. The futures of those that are final are
    kept, so that the end of a block can tell what became of them. Any thread may call any method.

    settler: called for each verdict; raises SubscriberClosed when there can be none.
    """

    # A pull's response does not tell.
    exactly_once = False

    def __init__(self, settler: Callable[[], Settler]) -> None:
        self._settler = settler
        self._futures: list[AckFuture] = []

    def ack(self, message: Message) -> None:
        self.put((Verdict.ACK, message, 0, None))

    def ack_all(self, messages: list[Message]) -> None:
        for message in messages:
            self.ack(message)

    def put(self, outcome: Outcome) -> None:
        verdict, message, seconds, _ = outcome
        if verdict is Verdict.DROP:
            return
        future = AckFuture()
        self.put_tracked((verdict, message, seconds, future))
        if future.done() and future.exception() is not None:
            _log.warning("%s of %s: %s", verdict.value, message.message_id, future.exception())

    def put_tracked(self, outcome: Outcome) -> None:
        future = outcome[3]
        assert future is not None
        if outcome[0] is not Verdict.EXTEND:
            self._futures.append(future)
        try:
            self._settler().put_tracked(outcome)
        except SubscriberClosed as error:
            future.set_exception(AcknowledgeError(AcknowledgeStatus.OTHER, str(error)))

    def pending(self) -> list[AckFuture]:
        """Futures of the acks and nacks so far, each told of once."""
        futures, self._futures = self._futures, []
        return futures


class Settler(RunningFuture):
    """Sends the verdicts of one subscription's fetched messages, and keeps leases.

    Owns a Dispatcher, which sends, and the messages whose leases are kept, behind a lock, with a
    thread that extends those that are due. Any thread may call any method. It runs until the client
    is closed; then what was decided is sent, what is still kept is given back, as nobody could
    settle it any more, and the future ends.
    """

    ends_last = True

    def __init__(self, rpcs: Rpcs, subscription: str, clock: Clock) -> None:
        super().__init__()
        self._rpcs = rpcs
        self._subscription = subscription
        self._clock = clock
        self._lock = threading.Lock()
        # By number: the messages, and until when their leases are kept.
        self._held: DeadlineTable[int, tuple[Sequence[Message], float]] = DeadlineTable()
        self._closing = False
        self._inbox: Inbox[None] = Inbox(clock)
        self._dispatcher = Dispatcher(
            clock, send=self._send, listener=self, max_messages=_WINDOW, report_at_once=False
        )
        self._thread = threading.Thread(target=self._run, name="pullstream-leaser", daemon=True)
        self._dispatcher.start()
        start_or_undo(self._thread, lambda: self._dispatcher.stop(FLUSH_TIME))

    def put_tracked(self, outcome: Outcome) -> None:
        self._dispatcher.put_tracked(outcome)

    def hold(self, messages: Sequence[Message]) -> int:
        """Keep the leases of those that are not settled, until `let_go`.

        Raises:
            SubscriberClosed: the client is closed.
        """
        number, now = next(_numbers), self._clock.monotonic()
        came_at = min((message.batch.received_at for message in messages), default=now)
        with self._lock:
            if self._closing:
                raise SubscriberClosed("this client is closed; the leases cannot be kept")
            until = now + LONGEST_LEASE
            self._held.set(number, (messages, until), max(came_at + FIRST_HOLD - now, 0.0), now)
        self._inbox.wake()
        return number

    def let_go(self, number: int) -> None:
        with self._lock:
            self._held.pop(number)

    # ---- the future ----------------------------------------------------------------------------

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        with self._lock:
            begun, self._closing = self._closing, True
        if begun:
            return
        limit = FLUSH_TIME if timeout is None else min(timeout, FLUSH_TIME)
        thread = threading.Thread(
            target=self._close, args=[limit], name="pullstream-shutdown", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is about to exit, and allows no more threads.
            self._close(limit)

    def runs_here(self) -> bool:
        return self._dispatcher.runs_here()

    def _close(self, limit: float) -> None:
        self._inbox.wake()
        self._thread.join()
        self._inbox.close()
        self._give_back_held()
        self._dispatcher.stop(limit)
        self.set_result(True)

    def _give_back_held(self) -> None:
        with self._lock:
            held = [message for messages, _ in self._held.values() for message in messages]
        for message in held:
            if message.settled is None:
                message.settled = Verdict.NACK
                self._dispatcher.put((Verdict.NACK, message, 0, None))

    # ---- the leaser's thread -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            with self._lock:
                due = self._extend_due(self._clock.monotonic())
                next_due = self._held.next_due()
            for messages in due:
                self._extend(messages)
            self._inbox.take(next_due)

    def _extend_due(self, now: float) -> list[Sequence[Message]]:
        due = []
        for number, (messages, until) in self._held.pop_due(now):
            if now >= until:
                count = sum(message.settled is None for message in messages)
                _log.warning("the leases of %d fetched messages are not kept any longer", count)
                continue
            due.append(messages)
            self._held.set(number, (messages, until), EXTENSION * EXTEND_AT, now)
        return due

    def _extend(self, messages: Sequence[Message]) -> None:
        ack_ids = [message.ack_id for message in messages if message.settled is None]
        if ack_ids:
            self._dispatcher.extend(ack_ids, EXTENSION)

    # ---- for the dispatcher --------------------------------------------------------------------

    def _send(self, request: Request) -> Call:
        call: Call = call_for(self._subscription, request).begin(self._rpcs)
        return call

    def settled(self, acked: list[Message], nacked: list[Message], dropped: list[Message]) -> None:
        """Nothing is counted here."""

    def confirmed(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        """Nothing is asked that would be confirmed."""

    def request_done(self, request: Request, seconds: float, error: RpcError | None) -> None:
        """Futures tell."""

    def not_taken(self, request: Request, failed: Mapping[str, AcknowledgeError]) -> None:
        """Futures tell, and the dispatcher's log."""
