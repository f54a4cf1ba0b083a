"""The manager: builds the parts of a subscription, joins them, and takes them down again."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import RpcError
from protocol.messages import columns_pb2 as columns
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.flow_control import MAX_EXTENSION, LoadGauge
from subscriber.futures import ShutdownMode, StreamingPullFuture
from subscriber.hooks import HookSet, LeaseLoss
from subscriber.message import Batch, Message, Verdict, ack_ids_of
from subscriber.scheduler import Scheduler
from subscriber.statistics import Statistics

from .callbacks import BatchRunner, CallbackRunner
from .consumer import Consumer
from .dispatcher import Call, Dispatcher
from .heartbeater import Heartbeater
from .lease_table import Released
from .leaser import Leaser
from .messages_on_hold import MessagesOnHold
from .receipts import ReceiptGate
from .requests import Request
from .settings import Settings
from .shutdown import FLUSH_TIMEOUT, Shutdown
from .shutdown_terms import ShutdownTerms
from .state import Lifecycle, StateChange, SubscriptionState
from .stream import Arrival, Response, ResumingStream, StreamEnded
from .stream_call import StreamCall
from .tally import Tally
from .unread import Unread

_log = logging.getLogger("pullstream.subscriber")


class Calls(Protocol):
    """The three RPCs that a subscription needs, until it has ended."""

    def streaming_pull(self, first: pubsub.StreamingPullRequest) -> StreamCall: ...

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Call: ...

    def modify_ack_deadline(self, request: pubsub.ModifyAckDeadlineRequest) -> Call: ...

    def close(self) -> None: ...


class StreamingPullManager:
    """One running subscription. It has no thread and no rules of its own: it is the wiring.

    Owns the parts and the named state. What calls it: the consumer's thread with responses and the
    stream's fate, the leaser's and the dispatcher's threads with what they gave up or finished, and
    anybody who wants it to stop.
    """

    def __init__(
        self,
        calls: Calls,
        subscription: str,
        callback: Callable[..., Any],
        settings: Settings,
        *,
        scheduler: Scheduler,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        limits = settings.limits
        self._calls = calls
        self._subscription = subscription
        self._settings = settings
        self._scheduler = scheduler
        self._clock = clock
        # The same for every stream of this subscription: the server may recognise a comeback.
        self._client_id = str(uuid.uuid4())
        self._hooks = HookSet(subscription, settings.hooks)
        # A hook may raise here; then no thread has been started yet.
        callback = self._hooks.wrap(callback)
        self._tally = Tally()
        self._lifecycle = Lifecycle(clock, self._state_changed)
        self._terms = ShutdownTerms(clock)
        self.future = StreamingPullFuture(self)

        self._hold = MessagesOnHold()
        self._gate = ReceiptGate()
        self._unread = Unread(limits.max_messages)
        self._gauge = LoadGauge(limits, pause=self._pause, resume=self._resume)
        self._dispatcher = Dispatcher(
            clock,
            send=self._send,
            listener=self,
            max_messages=limits.max_messages,
            longest_extension=int(limits.max_duration_per_lease_extension or MAX_EXTENSION),
            report_at_once=self._hooks.listens_to("request_done"),
        )
        self._leaser = Leaser(limits, clock, extend=self._extend, give_up=self._leases_given_up)
        self._callbacks = self._new_runner(callback)
        self._stream = ResumingStream(
            clock,
            start=calls.streaming_pull,
            first_request=self._first_request,
            listener=self,
            give_up_after=settings.give_up_after,
            parse=(
                columns.ResponseColumns if settings.unparsed else pubsub.StreamingPullResponse
            ).FromString,
        )
        self._heartbeater = Heartbeater(
            clock,
            ping=lambda: self._stream.send(pubsub.StreamingPullRequest()),
            on_silence=lambda: self._stream.reset("the server stopped answering heartbeats"),
        )
        self._consumer = Consumer(
            self._stream, on_response=self._on_response, on_end=self._on_stream_end
        )
        scheduler.admit(self._consumer)
        self._shutdown = Shutdown(
            self._terms,
            consumer=self._consumer,
            heartbeater=self._heartbeater,
            hold=self._hold,
            callbacks=self._callbacks,
            scheduler=scheduler,
            leaser=self._leaser,
            dispatcher=self._dispatcher,
            hang_up=calls.close,
        )

    def _new_runner(self, callback: Callable[..., Any]) -> CallbackRunner:
        batching = self._settings.batching
        if batching is None:
            return CallbackRunner(
                callback,
                self._scheduler,
                self._hold,
                nack=self._dispatcher.nack,
                stop=self.stop,
                release_after_ack=self._settings.release_after == "ack",
            )
        return BatchRunner(
            callback,
            self._scheduler,
            self._hold,
            nack=self._dispatcher.nack,
            stop=self.stop,
            clock=self._clock,
            max_messages=batching.max_messages,
            max_latency=batching.max_latency,
        )

    def start(self) -> None:
        """Start the threads; last the reader's, when every part is there for what it brings.

        Raises:
            RuntimeError: the process may have no more threads. Those that were started have ended.
        """
        with ExitStack() as undo:
            for start, stop in (
                (self._dispatcher.start, partial(self._dispatcher.stop, FLUSH_TIMEOUT)),
                (self._leaser.start, self._leaser.stop),
                (self._heartbeater.start, self._heartbeater.stop),
                (self._callbacks.start, self._callbacks.close),
            ):
                start()
                undo.callback(stop)
            self._hooks.tell("subscribed", self.statistics)
            try:
                self._consumer.start()
            except RuntimeError as error:
                # Who was told of the beginning is told of the end.
                for state in (SubscriptionState.CLOSING, SubscriptionState.CLOSED):
                    self._lifecycle.move(state, error)
                raise
            undo.pop_all()

    # ---- for the future ------------------------------------------------------------------------

    def stop(
        self,
        error: Exception | None = None,
        *,
        mode: ShutdownMode | None = None,
        timeout: float | None = None,
    ) -> None:
        """Begin the shutdown and return; `future` tells its end. Idempotent, from any thread."""
        if error is not None and self._lifecycle.is_stopping:
            # It comes of the shutdown itself, and is no reason to hurry that.
            return
        self._terms.tighten(
            mode or ("drain" if self._settings.await_callbacks else "nack"), timeout
        )
        if self._lifecycle.move(SubscriptionState.CLOSING, error):
            # A thread of its own: the caller may be a callback or the consumer, which it waits for.
            thread = threading.Thread(
                target=self._shut_down, args=(error,), name="pullstream-shutdown", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                # The interpreter is about to exit, and allows no more threads.
                self._shut_down(error)

    def runs_here(self) -> bool:
        """Whether the calling thread is one that the shutdown may have to wait for."""
        return self._scheduler.runs_here() or self._dispatcher.runs_here()

    def statistics(self) -> Statistics:
        """A snapshot. Its parts are read one after the other, while all goes on."""
        tally, change = self._tally, self._lifecycle.last_change
        return Statistics(
            state=change.state,
            since=change.since,
            received=tally.received,
            redelivered=tally.redelivered,
            acked=tally.acked,
            nacked=tally.nacked,
            extended=tally.extended,
            expired=tally.given_up + tally.expired,
            failed=self._dispatcher.failures,
            callback_errors=self._callbacks.errors,
            reopened=max(tally.opened - 1, 0),
            leased=self._gauge.messages,
            leased_bytes=self._gauge.bytes,
            held=len(self._hold),
            waiting=self._scheduler.waiting + self._callbacks.waiting,
            running=self._scheduler.running,
            unanswered=self._dispatcher.unanswered,
            load=self._gauge.load,
            latency=self._leaser.latency(),
        )

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        if not ack_ids:
            return []
        leases = [pubsub.ReceivedMessage(ack_id=ack_id) for ack_id in ack_ids]
        batch = self._batch(pubsub.StreamingPullResponse(received_messages=leases), size)
        messages = batch.messages()
        self._lease(batch, messages)
        # Nobody knows how much is left of them.
        self._dispatcher.extend(list(ack_ids), self._leaser.stream_deadline)
        return messages

    # ---- a response comes in (consumer's thread) -----------------------------------------------

    def _on_response(self, arrival: Arrival) -> None:
        response, size = arrival
        received = response.received_messages
        self._heartbeater.received(is_pong=not received)
        properties = response.subscription_properties
        exactly_once = properties.exactly_once_delivery_enabled
        self._dispatcher.exactly_once = self._leaser.exactly_once = exactly_once
        if not received:
            return
        batch = self._batch(response, size)
        messages = batch.messages()
        self._count(messages)
        self._lease(batch, messages, self._unread.age(len(messages), batch.received_at))
        if self._lifecycle.is_stopping:
            self._dispatcher.nack(messages)
            return
        # A server that does not tell is taken to keep order: then ours costs nothing but time.
        in_order = properties.message_ordering_enabled or not response.HasField(
            "subscription_properties"
        )
        if exactly_once:
            self._gate.add(messages, in_order=in_order)
            self._dispatcher.confirm(ack_ids_of(messages), self._leaser.stream_deadline)
        else:
            # Last of all: it may be that this thread runs them, and is the reader no more after it.
            self._begin(messages, in_order)

    def _begin(self, messages: list[Message], in_order: bool) -> None:
        try:
            self._callbacks.begin(messages, in_order=in_order)
        except RuntimeError:
            if not self._lifecycle.is_stopping:
                raise
            # The shutdown was quicker than this response.
            self._dispatcher.nack([message for message in messages if message.settled is None])

    def _batch(self, response: Response, size: int) -> Batch:
        share = size // len(response.received_messages)
        return Batch(self._dispatcher, self._clock.monotonic(), share, response)

    def _lease(self, batch: Batch, messages: list[Message], age: int = 0) -> None:
        # Counted first, and leased before anybody can settle them: no release without its add.
        self._gauge.add(len(messages), len(messages) * batch.share)
        self._leaser.add(batch, messages, age)

    def _count(self, messages: list[Message]) -> None:
        self._tally.received += len(messages)
        # Counted by a server with a dead-letter policy only, and then for every message.
        if messages[0].delivery_attempt is not None:
            self._tally.redelivered += sum((m.delivery_attempt or 0) > 1 for m in messages)
        self._hooks.tell("received", messages)

    # ---- outcomes (dispatcher's thread) --------------------------------------------------------

    def settled(self, acked: list[Message], nacked: list[Message], dropped: list[Message]) -> None:
        if acked or nacked:
            self._hooks.tell("settled", acked, nacked)
        handled = self._leaser.handled(acked)
        given_back = self._leaser.remove(nacked)
        forgotten = self._leaser.remove(dropped)
        # Each once, however often it is acknowledged.
        self._tally.acked += handled.messages
        self._tally.nacked += given_back.messages
        self._gauge.release(
            handled.messages + given_back.messages + forgotten.messages,
            handled.size + given_back.size + forgotten.size,
        )
        self._callbacks.settled(acked, nacked, dropped)
        if handled.messages < len(acked):
            self._report_late(acked)

    def confirmed(self, ack_ids: list[str], failed: Mapping[str, AcknowledgeError]) -> None:
        released, lost = self._gate.answered(ack_ids, failed)
        if lost:
            self._hold.missed(lost)
            self._expired(lost)
        try:
            for messages, in_order in released:
                self._callbacks.begin(messages, in_order=in_order)
        except Exception as error:
            # Without a place to run callbacks there is no going on. The shutdown gives them back.
            self.stop(error)

    def request_done(self, request: Request, seconds: float, error: RpcError | None) -> None:
        kind = "acknowledge" if request.is_ack else "modify_ack_deadline"
        self._hooks.tell("request_done", kind, len(request.ack_ids), seconds, error)

    def not_taken(self, request: Request, failed: Mapping[str, AcknowledgeError]) -> None:
        self._hooks.tell("not_taken", failed)
        if request.is_ack or not request.seconds or not self._dispatcher.exactly_once:
            return
        # An extension that the server refuses by id: those leases are over.
        over = {i for i, e in failed.items() if e.error_code is AcknowledgeStatus.INVALID_ACK_ID}
        lost = [message for message in self._leaser.messages() if message.ack_id in over]
        if lost:
            self._expired(lost)

    def _expired(self, messages: list[Message]) -> None:
        self._tally.expired += len(messages)
        self._lost(messages, self._leaser.remove(messages), "expired")

    def _report_late(self, acked: list[Message]) -> None:
        late = sum(message.settled is Verdict.DROP for message in acked)
        if late:
            _log.warning(
                "%d messages were acknowledged after their lease was given up: "
                "they may be delivered again",
                late,
            )

    # ---- leases (leaser's thread) --------------------------------------------------------------

    def _extend(self, ack_ids: list[str], seconds: int) -> None:
        self._dispatcher.extend(ack_ids, seconds)
        self._tally.extended += len(ack_ids)
        self._hooks.tell("extended", len(ack_ids), seconds)

    def _leases_given_up(self, messages: list[Message], released: Released) -> None:
        self._tally.given_up += len(messages)
        self._lost(messages, released, "max_lease_duration")

    def _lost(self, messages: list[Message], released: Released, why: LeaseLoss) -> None:
        self._gauge.release(released.messages, released.size)
        for message in messages:
            # One that has not begun is not to begin: it counts no more, and will come again.
            message.settled = message.settled or Verdict.DROP
        self._callbacks.lost(messages)
        _log.warning("lost the lease of %d messages (%s); they come again", len(messages), why)
        self._hooks.tell("lease_lost", messages, why)

    def _send(self, request: Request) -> Call:
        if request.is_ack:
            return self._calls.acknowledge(
                pubsub.AcknowledgeRequest(subscription=self._subscription, ack_ids=request.ack_ids)
            )
        return self._calls.modify_ack_deadline(
            pubsub.ModifyAckDeadlineRequest(
                subscription=self._subscription,
                ack_ids=request.ack_ids,
                ack_deadline_seconds=request.seconds,
            )
        )

    # ---- flow control (consumer's and dispatcher's threads, under the gauge's lock) -------------

    def _pause(self) -> None:
        self._unread.paused(self._clock.monotonic())
        self._consumer.pause()
        self._heartbeater.paused()

    def _resume(self) -> None:
        self._heartbeater.resumed()
        self._consumer.resume()

    # ---- the stream (consumer's thread) --------------------------------------------------------

    def _first_request(self) -> pubsub.StreamingPullRequest:
        limits = self._settings.limits
        limit_server = self._settings.limit_server
        return pubsub.StreamingPullRequest(
            subscription=self._subscription,
            client_id=self._client_id,
            stream_ack_deadline_seconds=self._leaser.stream_deadline,
            max_outstanding_messages=limits.max_messages if limit_server else 0,
            max_outstanding_bytes=limits.max_bytes if limit_server else 0,
            protocol_version=1,
        )

    def stream_opened(self) -> None:
        self._tally.opened += 1
        self._heartbeater.opened()

    def stream_received(self) -> None:
        self._lifecycle.move(SubscriptionState.STREAMING)

    def stream_broken(self, cause: RpcError | None) -> None:
        self._heartbeater.closed()
        self._lifecycle.move(SubscriptionState.RECONNECTING, cause)

    def _on_stream_end(self, error: Exception) -> None:
        if not isinstance(error, StreamEnded):
            self.stop(error)

    def _state_changed(self, change: StateChange) -> None:
        self._hooks.tell("state_changed", change)

    # ---- shutdown (a thread of its own) --------------------------------------------------------

    def _shut_down(self, error: Exception | None) -> None:
        self._shutdown.run()
        self._lifecycle.move(SubscriptionState.CLOSED, error)
        if error is None:
            self.future.set_result(True)
        else:
            self.future.set_exception(error)
