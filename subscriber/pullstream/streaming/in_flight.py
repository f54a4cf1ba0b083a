"""The messages in flight: received and not finished."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pullstream.columns.message_columns import MessageColumns
from pullstream.columns.portions import Portion, Unit, messages_of
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.flow_control import MAX_EXTENSION, LoadGauge
from pullstream.hooks import HookSet, LeaseLoss
from pullstream.message import (
    Disposition,
    Message,
    MessageBatch,
    ResponseBatch,
    ack_ids_of,
    attempts_of,
    count_late,
    has_begun,
    return_dropped,
    return_messages,
)
from pullstream.rpc.calls import PendingCall
from pullstream.runtime.lifecycle import Lifecycle
from pullstream.scheduling.scheduler import Scheduler
from pullstream.statistics import Statistics, StreamStatistics
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .ack_requests import AckRequest
from .callbacks import BatchRunner, CallbackRunner
from .dispatcher import Dispatcher, DispatchListener
from .lease_table import Released
from .leaser import Leaser
from .messages_on_hold import MessagesOnHold
from .receipts import ReceiptGate
from .settings import StreamingSettings
from .stream import ReceivedResponse

_log = logging.getLogger("pullstream.subscriber")


@dataclass(slots=True)
class Counters:
    """Counters of one subscription.

    The readers write theirs under a lock. Only one thread writes each of the others.

    Attributes:
        counted_returns: Messages returned at shutdown that a server may count as delivery attempts.
    """

    # Written by the readers' threads.
    received: int = 0
    redelivered: int = 0
    # Written by the dispatcher's thread.
    acked: int = 0
    nacked: int = 0
    returned: int = 0
    counted_returns: int = 0
    expired: int = 0
    # Written by the leaser's thread.
    extended: int = 0
    given_up: int = 0


class PrefetchAge:
    """The greatest possible age of the leases of messages that are read now.

    Messages that were buffered while the reader was paused are older than their receipt: their
    leases started when the server sent them.

    A server counts the outstanding messages of a stream, and sends at most the window of flow
    control. But its count starts at zero with each stream, while the client still holds messages of
    the previous one:

        1. The client holds 800 messages of a window of 1,000. The stream breaks and is reopened.
        2. The server sends 1,000. The client reads 200, then the reader is paused, and 800 remain
           unread.
        3. They are read minutes later, when some of their leases may be about to end.

    So after the beginning of a pause, the next messages that are read, as many as the window, may
    have been sent when the pause began. Used by the reader's thread.

    Args:
        window: Number of messages that the server may have sent.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._left = 0
        self._since = 0.0

    def paused(self, now: float) -> None:
        """Note that reading stops. Messages unread since an earlier pause may still be unread."""
        if self._left <= 0:
            self._since = now
        self._left = self._window

    def age(self, messages: int, now: float) -> int:
        """Note messages that were read, and return for how many whole seconds they may have waited.

        Args:
            messages: Number of messages.
            now: The present time.
        """
        if self._left <= 0:
            return 0
        self._left -= messages
        return int(now - self._since)


class InFlight(DispatchListener):
    """The messages of one subscription, from their receipt until the server knows their outcome.

    Receives the messages of each response from the reader, and the settlements from the
    Dispatcher. In between, it counts the messages for flow control, keeps their leases, and runs
    their callbacks in the order of their keys. Each of these is done by a part that this class
    creates.

    Owns the parts, the counters, and the messages that a shutdown will return. Callers: the
    readers' threads pass responses. The dispatcher's thread passes settled messages and answers
    of the server. The leaser's thread passes messages that it gave up. Any thread may pass messages
    that ordering returns or forgets.

    Guarantees:

    - A message counts for flow control and has a lease before any thread can settle it. It leaves
      both once.
    - A message that lost its lease does not begin its callback.
    - Messages that arrive during the shutdown do not begin. They are returned to the server.

    Args:
        callback: Takes a message, or a list of messages if `settings.batching` is set.
        settings: The user's choices.
        scheduler: Runs the callbacks.
        clock: Measures time.
        hooks: Hears of the messages.
        lifecycle: The state of the subscription. This class only reads it.
        send: Starts the call for a request. Must not wait.
        pause_readers: Stops reading, because too many messages are in flight. Called under the lock
            of the gauge, like `resume_readers`.
        resume_readers: Continues reading.
        fail: Ends the subscription with an error, because callbacks cannot run any more.

    Attributes:
        dispatcher: Sends settlements to the server.
        leaser: Keeps the leases.
        callbacks: Runs the callbacks in the order of their keys.
        counters: For the statistics.
    """

    def __init__(
        self,
        callback: Callable[..., Any],
        settings: StreamingSettings,
        *,
        scheduler: Scheduler,
        clock: Clock,
        hooks: HookSet,
        lifecycle: Lifecycle,
        send: Callable[[AckRequest], PendingCall],
        pause_readers: Callable[[], None],
        resume_readers: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._reject = settings.reject
        limits = settings.limits
        self._scheduler = scheduler
        self._clock = clock
        self._hooks = hooks
        self._lifecycle = lifecycle
        self._pause_readers = pause_readers
        self._fail = fail
        self.counters = Counters()
        # Guards the state that several readers share.
        self._receiving = CallLock()
        self._prefetch_age = PrefetchAge(limits.max_messages)
        self._gauge = LoadGauge(limits, pause=self._pause, resume=resume_readers)
        self._gate = ReceiptGate()
        self._hold = MessagesOnHold(limits)
        # Runs the callbacks that take columns.
        self._columns_runner: BatchRunner | None = None
        self.callbacks = self._new_runner(callback, settings)
        self.dispatcher = Dispatcher(
            clock,
            send=send,
            listener=self,
            max_messages=limits.max_messages,
            longest_extension=int(limits.max_duration_per_lease_extension or MAX_EXTENSION),
            report_at_once=hooks.listens_to("request_done"),
        )
        self.leaser = Leaser(
            limits,
            clock,
            extend=self._extend,
            give_up=self._leases_given_up,
            waits_over=self.callbacks.waits_over,
        )
        self._hooks_take_messages = hooks.takes_messages
        # Messages whose callback will not begin; None after they have been returned.
        self._unbegun: list[Message] | None = []
        self._unbegun_lock = threading.Lock()

    def _new_runner(
        self, callback: Callable[..., Any], settings: StreamingSettings
    ) -> CallbackRunner:
        batching = settings.batching
        if batching is None:
            return CallbackRunner(
                callback,
                self._scheduler,
                self._hold,
                listener=self,
                clock=self._clock,
                release_after_ack=settings.release_after == "ack",
            )
        runner = BatchRunner(
            callback,
            self._scheduler,
            self._hold,
            listener=self,
            clock=self._clock,
            max_messages=batching.max_messages,
            max_latency=batching.max_latency,
            pack=self._columns_of if batching.columns else MessageBatch,
        )
        if batching.columns:
            self._columns_runner = runner
        return runner

    def _columns_of(self, units: list[Unit]) -> MessageColumns:
        return MessageColumns(units, self.dispatcher.ack_portions)

    def statistics(self, streams: Sequence[StreamStatistics]) -> Statistics:
        """Return a snapshot. Its parts are read one after the other while the subscription runs.

        Args:
            streams: The statistics of each stream.
        """
        counters, change = self.counters, self._lifecycle.last_change
        return Statistics(
            state=change.state,
            since=change.since,
            received=counters.received,
            redelivered=counters.redelivered,
            acked=counters.acked,
            nacked=counters.nacked,
            returned=counters.returned,
            extended=counters.extended,
            expired=counters.given_up + counters.expired,
            failed=self.dispatcher.failures,
            callback_errors=self.callbacks.errors,
            reopened=sum(stream.reopened for stream in streams),
            leased=self._gauge.messages,
            leased_bytes=self._gauge.bytes,
            held=len(self._hold),
            waiting=self._scheduler.waiting + self.callbacks.waiting,
            running=self._scheduler.running,
            unanswered=self.dispatcher.unanswered,
            load=self._gauge.load,
            latency=self.leaser.latency(),
            streams=tuple(streams),
        )

    # ---- messages come in (the readers' threads) -----------------------------------------------

    def receive_response(self, arrival: ReceivedResponse) -> None:
        """Receive the messages of a response: count and lease them, and begin their callbacks."""
        response, size = arrival
        properties = response.subscription_properties
        exactly_once = properties.exactly_once_delivery_enabled
        self.dispatcher.exactly_once = self.leaser.exactly_once = exactly_once
        count = len(response.received_messages)
        if not count:
            return
        batch = ResponseBatch(self.dispatcher, self._clock.monotonic(), size // count, response)
        batch.reject = self._reject
        # If the server does not report this property, assume ordering: keeping the order then costs
        # only time.
        in_order = properties.message_ordering_enabled or not response.HasField(
            "subscription_properties"
        )
        age = self._count_received(batch)
        batch.may_be_stale = age > 0
        runner = self._columns_runner
        if runner is not None and self._has_no_exceptions(batch, in_order=in_order):
            self._receive_portions(runner, batch, age, in_order=in_order)
            return
        messages = batch.messages()
        self._hooks.tell("received", messages)
        self._lease(batch, messages, age)
        if self._lifecycle.is_stopping:
            self.return_after_stream(messages)
            return
        if exactly_once:
            # Set before the first of them begins, because a refused receipt fails its key.
            self.callbacks.keeps_order = in_order
            self._gate.hold_messages(messages, in_order=in_order)
            self.dispatcher.send_receipts(ack_ids_of(messages), self.leaser.stream_deadline)
            return
        # The last step, because this thread may run the callbacks and then stop being the reader.
        self._begin(messages, partial(self.callbacks.begin_callbacks, messages, in_order=in_order))

    def adopt_leases(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        """Take over the leases of another process. Any thread may call this method.

        Args:
            ack_ids: The leases.
            size: Bytes of their messages, for flow control.

        Returns:
            Messages without content, which can be settled. They have no callback.
        """
        if not ack_ids:
            return []
        leases = [pubsub.ReceivedMessage(ack_id=ack_id) for ack_id in ack_ids]
        response = pubsub.StreamingPullResponse(received_messages=leases)
        batch = ResponseBatch(
            self.dispatcher, self._clock.monotonic(), size // len(leases), response
        )
        # Their content is unknown, so they cannot be rejected.
        messages = batch.messages()
        self._lease(batch, messages)
        # The remaining time of these leases is not known.
        self.dispatcher.extend_leases(list(ack_ids), self.leaser.stream_deadline)
        return messages

    def _has_no_exceptions(self, batch: ResponseBatch, *, in_order: bool) -> bool:
        """Return whether all messages of a response are treated alike, as far as it is known now.

        With exactly-once delivery the server may refuse the receipt of each message, messages of a
        key may have to wait for each other, and hooks take messages.
        """
        if self.dispatcher.exactly_once or self._hooks_take_messages:
            return False
        messages = batch.unparsed
        return messages is not None and not (in_order and messages.has_ordering_keys)

    def _receive_portions(
        self, runner: BatchRunner, batch: ResponseBatch, age: int, *, in_order: bool
    ) -> None:
        """Receive the messages of a response without an object for each."""
        count, longest = len(batch.received), runner.max_messages
        portions = [
            Portion(batch, start, min(start + longest, count), self.leaser.lock)
            for start in range(0, count, longest)
        ]
        self._lease(batch, portions, age)
        if self._lifecycle.is_stopping:
            self.return_after_stream(messages_of(portions))
            return
        self._begin(portions, partial(runner.begin_portions, portions, in_order=in_order))

    def _begin(self, units: Sequence[Unit], begin: Callable[[], None]) -> None:
        """Begin the callbacks, or return the messages if the shutdown began before."""
        try:
            begin()
        except RuntimeError:
            if not self._lifecycle.is_stopping:
                raise
            self.return_after_stream(messages_of(units))

    def _lease(self, batch: ResponseBatch, messages: Sequence[Unit], age: int = 0) -> None:
        # First count the messages, then add their leases, both before any thread can settle them.
        # So every release follows its add.
        count = len(batch.received)
        self._gauge.add_load(count, count * batch.bytes_each)
        self.leaser.add_leases(batch, messages, age)

    def _count_received(self, batch: ResponseBatch) -> int:
        """Count messages, and return for how many seconds they may have waited to be read."""
        count = len(batch.received)
        attempts = attempts_of(batch)
        redelivered = sum(attempt > 1 for attempt in attempts) if attempts else 0
        with self._receiving.once:
            self.counters.received += count
            self.counters.redelivered += redelivered
            return self._prefetch_age.age(count, batch.received_at)

    def _pause(self) -> None:
        self._prefetch_age.paused(self._clock.monotonic())
        self._pause_readers()

    # ---- messages are finished (dispatcher's thread) -------------------------------------------

    def mark_settled(
        self,
        acked: list[Message],
        nacked: list[Message],
        dropped: list[Message],
        returned: list[Message],
    ) -> None:
        """Remove messages from the lease table and flow control, and let their keys continue."""
        if acked or nacked:
            self._hooks.tell("settled", acked, nacked)
        if returned:
            self._count_returned(returned)
        handled = self.leaser.remove_handled(acked)
        failed = self.leaser.remove_leases(nacked)
        # A message that has lost its lease is not in the lease table.
        late_acks = count_late(acked) if handled.messages < len(acked) else 0
        others = self.leaser.remove_leases((*dropped, *returned))
        # A message counts once, even if it is acknowledged several times.
        self.counters.acked += handled.messages + late_acks
        self.counters.nacked += failed.messages + count_late(nacked)
        self._gauge.release_load(
            handled.messages + failed.messages + others.messages,
            handled.size + failed.size + others.size,
        )
        self.callbacks.messages_settled(acked, nacked, dropped)
        over = [message for message in dropped if message.settled is Disposition.LOST]
        if over:
            self.counters.expired += len(over)
            self._tell_lost(over, "expired")
        if late_acks:
            _log.warning(
                "%d messages were acknowledged after their lease was given up: "
                "they may be delivered again",
                late_acks,
            )

    def portions_acked(self, portions: list[Portion]) -> None:
        """Remove acknowledged portions from the lease table and flow control."""
        handled = self.leaser.remove_portions(portions)
        self.counters.acked += handled.messages
        self._gauge.release_load(handled.messages, handled.size)

    def _count_returned(self, messages: list[Message]) -> None:
        self.counters.returned += len(messages)
        self._hooks.tell("returned", messages)
        # A server reports attempts only with a dead-letter policy, and then for every message. So
        # the first message is enough.
        if self._lifecycle.is_stopping and messages[0].delivery_attempt is not None:
            self.counters.counted_returns += len(messages)

    # ---- answers of the server (dispatcher's thread) -------------------------------------------

    def nacks_answered(self, ack_ids: list[str], seconds: int) -> None:
        """Note that nacked messages are redelivered `seconds` from now at the earliest."""
        self.callbacks.nacks_answered(ack_ids, self._clock.monotonic() + seconds)

    def receipts_answered(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        """Begin the callbacks of confirmed deliveries, and treat refused ones as expired."""
        released, lost = self._gate.record_answer(ack_ids, failed)
        if lost:
            self._leases_expired(lost)
        try:
            for messages, in_order in released:
                self.callbacks.begin_callbacks(messages, in_order=in_order)
        except Exception as error:
            # The subscription cannot continue without a scheduler. The shutdown returns the
            # messages.
            self._fail(error)

    def request_done(self, request: AckRequest, seconds: float, error: RpcError | None) -> None:
        """Tell the hooks the kind, size, duration and error of a call."""
        kind = "acknowledge" if request.is_ack else "modify_ack_deadline"
        self._hooks.tell("request_done", kind, len(request.ack_ids), seconds, error)

    def ack_ids_refused(self, request: AckRequest, failed: Mapping[str, AcknowledgeError]) -> None:
        """Tell the hooks; with exactly-once delivery, treat refused extensions as lost leases."""
        self._hooks.tell("refused", failed)
        if request.is_ack or not request.seconds or not self.dispatcher.exactly_once:
            return
        # The server refused extensions of these ack ids, so their leases are over.
        over = [i for i, e in failed.items() if e.error_code is AcknowledgeStatus.INVALID_ACK_ID]
        lost = self.leaser.leased_under(over)
        if lost:
            self._leases_expired(lost)

    def settlements_abandoned(self, errors: Mapping[str, AcknowledgeError]) -> None:
        """Tell the hooks which settlements have no confirmation at the end."""
        self._hooks.tell("refused", errors)

    # ---- leases --------------------------------------------------------------------------------

    def _extend(self, ack_ids: list[str], seconds: int) -> None:
        # The leaser's thread.
        self.dispatcher.extend_leases(ack_ids, seconds)
        self.counters.extended += len(ack_ids)
        self._hooks.tell("extended", len(ack_ids), seconds)

    def _leases_given_up(self, messages: list[Message], released: Released) -> None:
        # The leaser's thread.
        self.counters.given_up += len(messages)
        # Return them, because an expired lease would count as a delivery attempt.
        unseen = [message for message in messages if not has_begun(message)]
        return_messages(unseen)
        self.callbacks.leases_lost(unseen, None)
        ends_by = self._clock.monotonic() + self.leaser.longest_lease
        self._mark_lost(messages, released, "max_lease_duration", ends_by)

    def _leases_expired(self, messages: list[Message]) -> None:
        # The dispatcher's thread.
        now = self._clock.monotonic()
        parked = self._hold.parked_among(messages)
        if parked:
            # Nothing is lost: no callback has seen them, and they will be redelivered anyway.
            self.callbacks.leases_lost(list(parked), now)
            self.forget(list(parked))
        lost = [message for message in messages if message not in parked]
        if lost:
            self.counters.expired += len(lost)
            self._mark_lost(lost, self.leaser.remove_leases(lost), "expired", now)

    def _mark_lost(
        self, messages: list[Message], released: Released, why: LeaseLoss, comes_at: float
    ) -> None:
        self._gauge.release_load(released.messages, released.size)
        for message in messages:
            # A callback that has not begun must not begin: the message no longer counts towards
            # flow control, and will be redelivered.
            message.settled = message.settled or Disposition.LOST
        self.callbacks.leases_lost(messages, comes_at)
        self._tell_lost(messages, why)

    def _tell_lost(self, messages: list[Message], why: LeaseLoss) -> None:
        _log.warning(
            "lost the leases of %d messages (%s): they are delivered again, unless the server "
            "accepts a late acknowledgement",
            len(messages),
            why,
        )
        self._hooks.tell("lease_lost", messages, why)

    # ---- the order of keys (any thread) --------------------------------------------------------

    def return_messages(self, messages: Sequence[Message]) -> None:
        """Return messages immediately, or after the end of the stream during a shutdown."""
        if self._lifecycle.is_stopping:
            self.return_after_stream(messages)
        else:
            return_messages(messages)

    def return_dropped(self, messages: Sequence[Message]) -> None:
        """Return dropped messages; during a shutdown, let their leases expire instead."""
        # During the shutdown the server may redeliver them on this stream. Then they would be
        # returned a second time. Their leases end without a request.
        if not self._lifecycle.is_stopping:
            return_dropped(messages)

    def forget(self, messages: Sequence[Message]) -> None:
        """Drop unsettled messages, and remove all from the lease table and flow control."""
        for message in messages:
            message.settled = message.settled or Disposition.DROP
        released = self.leaser.remove_leases(messages)
        self._gauge.release_load(released.messages, released.size)

    def parked(self, messages: int, size: int) -> None:
        """Exempt parked messages from flow control; negative numbers end the exemption."""
        self._gauge.park_load(messages, size)

    def wait_began(self, due: float) -> None:
        """Wake the leaser by `due`, because its thread ends the waits of ordering keys."""
        self.leaser.wake_by(due)

    def stop(self, error: Exception) -> None:
        """End the subscription with an error, because callbacks cannot run any more."""
        self._fail(error)

    # ---- the shutdown's thread -----------------------------------------------------------------

    def begin_no_more(self) -> None:
        """Begin no more callbacks. `end_of_stream` returns the messages that have not begun."""
        self.dispatcher.stream_ends()
        # First the held messages, so that the end of a running callback does not start another one.
        self.return_after_stream(self.callbacks.give_up_held())
        self.return_after_stream(self.callbacks.close())
        # Then the messages that wait for a worker, before the wait for running callbacks.
        self.return_after_stream(self._scheduler.shutdown() or [])

    def return_after_stream(self, messages: Sequence[Message]) -> None:
        """Return messages whose callback will not begin to the server, after the end of the stream.

        If they were returned earlier, the server would immediately redeliver them on this stream,
        and they would be returned a second time. Some servers count each return as an attempt.

        Any thread may call this method, from the beginning of the shutdown.
        """
        with self._unbegun_lock:
            if self._unbegun is not None:
                self._unbegun += messages
                return
        return_messages(messages)

    def end_of_stream(self) -> None:
        """Return the messages that have not begun, as no more messages arrive."""
        self.dispatcher.stream_ended()
        with self._unbegun_lock:
            unbegun, self._unbegun = self._unbegun, None
        return_messages(unbegun or [])

    def return_unsettled(self) -> int:
        """Return all messages that are not settled to the server; return how many they were."""
        unsettled = [
            message for message in self.leaser.leased_messages() if message.settled is None
        ]
        return_messages(unsettled)
        return len(unsettled)
