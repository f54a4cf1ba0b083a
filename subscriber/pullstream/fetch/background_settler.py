"""Background work for fetched messages: sends settlements and keeps leases."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from pullstream.ack_future import AckFuture
from pullstream.columns.portions import Unit, ack_ids_in, messages_of, size_of, unsettled_in
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus, SubscriberClosed
from pullstream.futures import RunningFuture, ShutdownMode
from pullstream.message import Disposition, Message, Settlement
from pullstream.rpc.calls import PendingCall
from pullstream.rpc.rpcs import DEFAULT_TIMEOUT, Rpcs
from pullstream.runtime.process import at_exit
from pullstream.runtime.thread_start import start_or_undo
from pullstream.streaming.ack_requests import AckRequest
from pullstream.streaming.dispatcher import Dispatcher, DispatchListener
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock
from pullstream_protocol.deadlines import DeadlineTable
from pullstream_protocol.due_thread import DueThread

from .protocol import EXTEND_AT, EXTENSION
from .settle_call import RETRY_FOR

_log = logging.getLogger("pullstream.fetch")

# Leases are kept for at most this many seconds, as with `subscribe`.
LONGEST_LEASE = 3600.0

# The first extension is sent this many seconds after the arrival of the messages. Shorter work
# costs no call for their leases, and no extension arrives after the acknowledgement, when a server
# with exactly-once delivery would refuse it.
KEEP_AFTER = 0.5

# Time limit for the last settlements when the client is closed, in seconds.
FLUSH_TIME = 10.0

# The window that the Linger assumes, as fetched messages have no flow control.
_WINDOW = 1000

_numbers = itertools.count()


class FetchedDispositions:
    """Takes the settlements of one fetch: the SettlementSink of these messages.

    The subscription's settler sends each settlement. The futures of acks and nacks are kept, so
    that the end of a block can check their results. Any thread may call any method.

    Args:
        settler: Returns the settler; called for each settlement. Raises SubscriberClosed if the
            client is closed.
    """

    # The response of a unary pull does not report exactly-once delivery.
    exactly_once = False

    def __init__(self, settler: Callable[[], BackgroundSettler]) -> None:
        self._settler = settler
        self._futures: list[AckFuture] = []

    def ack(self, message: Message) -> None:
        """Send an acknowledgement, and keep its future for `pending`."""
        self.put((Disposition.ACK, message, 0, None))

    def ack_all(self, messages: list[Message]) -> None:
        """Acknowledge each message separately; the dispatcher combines them into requests."""
        for message in messages:
            self.ack(message)

    def put(self, settlement: Settlement) -> None:
        """Send a settlement unless it drops the message, and log an error that is known at once."""
        disposition, message, seconds, _ = settlement
        if disposition is Disposition.DROP:
            return
        future = AckFuture()
        self.put_tracked((disposition, message, seconds, future))
        if future.done() and future.exception() is not None:
            _log.warning("%s of %s: %s", disposition.value, message.message_id, future.exception())

    def put_tracked(self, settlement: Settlement) -> None:
        """Send a settlement; if the client is closed, fail its future with an AcknowledgeError."""
        future = settlement[3]
        assert future is not None
        if settlement[0] is not Disposition.EXTEND:
            self._futures.append(future)
        try:
            self._settler().put_tracked(settlement)
        except SubscriberClosed as error:
            info = f"not sent: {error}"
            future.set_exception(AcknowledgeError(AcknowledgeStatus.OTHER, info))

    def pending(self) -> list[AckFuture]:
        """Return the futures of the acks and nacks since the last call."""
        futures, self._futures = self._futures, []
        return futures


class BackgroundSettler(RunningFuture):
    """Sends the settlements of one subscription's fetched messages, and keeps leases.

    Owns a Dispatcher, which sends; the messages whose leases are kept, behind a lock; and a thread
    that extends the leases. Any thread may call any method. It runs until the client is closed.
    Then it sends the waiting settlements, and returns the messages whose leases it keeps, because
    they can no longer be settled. Then the future ends.
    """

    ends_last = True

    def __init__(self, rpcs: Rpcs, subscription: str, clock: Clock) -> None:
        super().__init__()
        self._rpcs = rpcs
        self._subscription = subscription
        self._clock = clock
        self._lock = CallLock()
        # By number: the messages, and the end of the time in which their leases are kept.
        self._kept: DeadlineTable[int, tuple[Sequence[Unit], float]] = DeadlineTable()
        self._closing = False
        # Nothing listens: futures have the results, and no message or ordering key is counted.
        self._dispatcher = Dispatcher(
            clock,
            send=self._send,
            listener=DispatchListener(),
            max_messages=_WINDOW,
            report_at_once=False,
        )
        self._thread = DueThread(clock, self._next_due, self._extend_due, name="pullstream-leaser")
        self._dispatcher.start()
        start_or_undo(self._thread, lambda: self._dispatcher.stop(FLUSH_TIME))
        # The client may be collected before the last settlements are sent.
        at_exit(self, BackgroundSettler.begin_close, BackgroundSettler.wait_until_done)

    def put_tracked(self, settlement: Settlement) -> None:
        """Pass a settlement to the dispatcher, which resolves its future."""
        self._dispatcher.put_tracked(settlement)

    def keep_leases(self, messages: Sequence[Unit]) -> int:
        """Keep the leases of unsettled messages until `stop_leases`.

        Returns:
            A number for `stop_leases`.

        Raises:
            SubscriberClosed: The client is closed.
        """
        number, now = next(_numbers), self._clock.monotonic()
        came_at = min((message.batch.received_at for message in messages), default=now)
        with self._lock.once:
            if self._closing:
                raise SubscriberClosed("this client is closed; the leases cannot be extended")
            until = now + LONGEST_LEASE
            self._kept.set(number, (messages, until), max(came_at + KEEP_AFTER - now, 0.0), now)
        self._thread.wake()
        return number

    def stop_leases(self, number: int) -> None:
        """Stop the extensions that `keep_leases` began under this number, if they still run."""
        with self._lock.once:
            self._kept.pop(number)

    # ---- the future ----------------------------------------------------------------------------

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Begin the shutdown with at most FLUSH_TIME for the outbox; `mode` has no effect."""
        self._begin_close(FLUSH_TIME if timeout is None else min(timeout, FLUSH_TIME))

    def release(self) -> None:
        """Send the waiting settlements and end, because the client is collected.

        The garbage collector calls this method on any thread, at any instruction. So it takes no
        lock, and leaves the work to a thread of the settler.
        """
        self._thread.post(partial(self._begin_close, RETRY_FOR))

    def _begin_close(self, limit: float) -> None:
        with self._lock.once:
            begun, self._closing = self._closing, True
        if begun:
            return
        thread = threading.Thread(
            target=self._close, args=[limit], name="pullstream-shutdown", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is about to exit, and allows no more threads.
            self._close(limit)

    def runs_here(self) -> bool:
        """Return whether the calling thread is the dispatcher's; the shutdown waits for it."""
        return self._dispatcher.runs_here()

    def _close(self, limit: float) -> None:
        self._thread.stop()
        self._return_kept()
        self._dispatcher.stop(limit)
        self.set_result(True)

    def _return_kept(self) -> None:
        with self._lock.once:
            kept = [unit for units, _ in self._kept.values() for unit in units]
        for message in messages_of(unsettled_in(kept)):
            message.settled = Disposition.RETURN
            self._dispatcher.put((Disposition.RETURN, message, 0, None))

    # ---- the leaser's thread -------------------------------------------------------------------

    def _next_due(self) -> float | None:
        with self._lock.once:
            return self._kept.next_due()

    def _extend_due(self) -> None:
        with self._lock.once:
            due = self._pop_due(self._clock.monotonic())
        for units in due:
            self._extend(units)

    def _pop_due(self, now: float) -> list[Sequence[Unit]]:
        due = []
        for number, (units, until) in self._kept.pop_due(now):
            if now >= until:
                count = size_of(unsettled_in(units))
                _log.warning(
                    "stopped extending the leases of %d fetched messages after one hour", count
                )
                continue
            due.append(units)
            self._kept.set(number, (units, until), EXTENSION * EXTEND_AT, now)
        return due

    def _extend(self, units: Sequence[Unit]) -> None:
        ack_ids = ack_ids_in(unsettled_in(units))
        if ack_ids:
            self._dispatcher.extend_leases(ack_ids, EXTENSION)

    # ---- for the dispatcher --------------------------------------------------------------------

    def _send(self, request: AckRequest) -> PendingCall:
        # The interpreter may be about to exit. Then the messages of open blocks are returned, and
        # gRPC may get no thread for that.
        return request.begin(self._subscription, DEFAULT_TIMEOUT, self._rpcs)
