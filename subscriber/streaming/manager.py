"""The manager: builds the parts of a subscription, joins them, and takes them down again."""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from protocol.clock import SYSTEM_CLOCK, Clock
from protocol.errors import RpcError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.flow_control import FlowControl, LoadGauge
from subscriber.futures import StreamingPullFuture
from subscriber.message import Message, Verdict
from subscriber.scheduler import Scheduler

from .consumer import Consumer
from .dispatcher import Call, Dispatcher
from .heartbeater import Heartbeater
from .lease_table import Released
from .leaser import Leaser
from .messages_on_hold import MessagesOnHold
from .outbox import Request
from .state import Lifecycle, SubscriptionState
from .stream import Requests, ResumingStream, StreamEnded, StreamingCall

_log = logging.getLogger("pullstream.subscriber")

# How long the last acknowledgements may take at shutdown, in seconds.
FLUSH_TIMEOUT = 10.0


class Calls(Protocol):
    """The three RPCs that a subscription needs."""

    def streaming_pull(self, requests: Requests) -> StreamingCall: ...

    def acknowledge(self, request: pubsub.AcknowledgeRequest) -> Call: ...

    def modify_ack_deadline(self, request: pubsub.ModifyAckDeadlineRequest) -> Call: ...


class StreamingPullManager:
    """One running subscription. It has no thread and no rules of its own: it is the wiring.

    Owns the parts and the named state. What calls it: the consumer's thread with responses and the
    stream's fate, workers when a callback ends, the leaser's and the dispatcher's threads with what
    they gave up or finished, and anybody who wants it to stop.
    """

    def __init__(
        self,
        calls: Calls,
        subscription: str,
        callback: Callable[[Message], Any],
        *,
        limits: FlowControl,
        scheduler: Scheduler,
        await_callbacks: bool = False,
        limit_server: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._calls = calls
        self._subscription = subscription
        self._callback = callback
        self._limits = limits
        self._scheduler = scheduler
        self._await_callbacks = await_callbacks
        self._limit_server = limit_server
        self._clock = clock
        # The same for every stream of this subscription: the server may recognise a comeback.
        self._client_id = str(uuid.uuid4())
        self._lifecycle = Lifecycle()
        self.future = StreamingPullFuture(self.stop)
        self._callback_errors = itertools.count(1)
        # Callbacks that raised; see also Dispatcher.failures.
        self.callback_errors = 0

        self._hold = MessagesOnHold()
        self._gauge = LoadGauge(limits, pause=self._pause, resume=self._resume)
        self._dispatcher = Dispatcher(
            clock, send=self._send, finished=self._finished, max_messages=limits.max_messages
        )
        self._leaser = Leaser(
            limits, clock, extend=self._dispatcher.extend, give_up=self._leases_given_up
        )
        self._stream = ResumingStream(
            clock, start=calls.streaming_pull, first_request=self._first_request, listener=self
        )
        self._heartbeater = Heartbeater(
            clock,
            ping=lambda: self._stream.send(pubsub.StreamingPullRequest()),
            on_silence=lambda: self._stream.reset("the server stopped answering heartbeats"),
        )
        self._consumer = Consumer(
            self._stream, on_response=self._on_response, on_end=self._on_stream_end
        )

    @property
    def state(self) -> SubscriptionState:
        return self._lifecycle.state

    def start(self) -> None:
        """Open the stream. Last of all, when every part is there to receive what it brings."""
        self._consumer.start()

    def runs_here(self) -> bool:
        """Whether the calling thread is one that the shutdown may have to wait for."""
        return self._scheduler.runs_here() or self._dispatcher.runs_here()

    def stop(self, error: Exception | None = None) -> None:
        """Begin the shutdown and return; `future` tells its end. Idempotent, from any thread."""
        if self._lifecycle.move(SubscriptionState.CLOSING):
            # A thread of its own: the caller may be a callback or the consumer, which it waits for.
            threading.Thread(
                target=self._shut_down, args=(error,), name="pullstream-shutdown", daemon=True
            ).start()

    # ---- a response comes in (consumer's thread) -----------------------------------------------

    def _on_response(self, response: pubsub.StreamingPullResponse) -> None:
        received = response.received_messages
        self._heartbeater.received(is_pong=not received)
        properties = response.subscription_properties
        self._dispatcher.exactly_once = properties.exactly_once_delivery_enabled
        if not received:
            return
        now = self._clock.monotonic()
        outcomes = self._dispatcher
        share = response.ByteSize() // len(received)
        messages = [Message(one, outcomes, now, share) for one in received]
        if self._lifecycle.is_stopping:
            self._dispatcher.nack(messages)
            return
        # Counted first, and leased before anybody can settle them: no release without its add.
        self._gauge.add(len(messages), len(messages) * share)
        self._leaser.add(messages, now)
        # A server that does not tell is taken to keep order: then ours costs nothing but time.
        if properties.message_ordering_enabled or not response.HasField("subscription_properties"):
            offered = self._hold.offer(messages)
            self._dispatcher.nack(offered.refuse)
            self._scheduler.schedule_many(self._run_in_order, offered.run)
        else:
            self._scheduler.schedule_many(self._run, messages)

    # ---- a callback runs (workers' threads) ----------------------------------------------------

    def _run(self, message: Message) -> None:
        if message.settled is not None:
            # Given up or given back while it waited for a worker: it is not ours any more.
            return
        try:
            self._callback(message)
        except BaseException:
            # SystemExit too: a callback cannot end the subscription, only its own message.
            self.callback_errors = next(self._callback_errors)
            _log.exception("callback raised for message %s, which is nacked", message.message_id)
            if message.settled is None:
                message.nack()

    def _run_in_order(self, message: Message) -> None:
        self._run(message)
        if not message.ordering_key:
            return
        if message.settled in (Verdict.NACK, Verdict.DROP):
            self._dispatcher.nack(self._hold.failed(message))
            return
        following = self._hold.finished(message)
        if following is None:
            return
        try:
            self._scheduler.schedule(self._run_in_order, following)
        except Exception as error:
            # Without a place to run callbacks there is no going on. The shutdown gives it back.
            self.stop(error)

    # ---- outcomes (dispatcher's and leaser's threads) ------------------------------------------

    def _finished(self, settled: Sequence[Message], acked: Sequence[Message]) -> None:
        self._leaser.handled(acked)
        released = self._leaser.remove([message.ack_id for message in settled])
        self._gauge.release(released.messages, released.size)

    def _leases_given_up(self, messages: list[Message], released: Released) -> None:
        self._gauge.release(released.messages, released.size)
        for message in messages:
            # One that has not begun is not to begin: it counts no more, and will come again.
            message.settled = message.settled or Verdict.DROP
        self._dispatcher.nack(self._hold.lost(messages))
        _log.warning(
            "gave up %d messages after max_lease_duration (%g s); they will be delivered again",
            len(messages),
            self._limits.max_lease_duration,
        )

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
        self._consumer.pause()
        self._heartbeater.paused()

    def _resume(self) -> None:
        self._heartbeater.resumed()
        self._consumer.resume()

    # ---- the stream (consumer's thread) --------------------------------------------------------

    def _first_request(self) -> pubsub.StreamingPullRequest:
        return pubsub.StreamingPullRequest(
            subscription=self._subscription,
            client_id=self._client_id,
            stream_ack_deadline_seconds=self._leaser.stream_deadline,
            max_outstanding_messages=self._limits.max_messages if self._limit_server else 0,
            max_outstanding_bytes=self._limits.max_bytes if self._limit_server else 0,
            protocol_version=1,
        )

    def stream_opened(self) -> None:
        self._heartbeater.opened()

    def stream_received(self) -> None:
        self._lifecycle.move(SubscriptionState.STREAMING)

    def stream_broken(self, cause: RpcError | None) -> None:
        self._heartbeater.closed()
        self._lifecycle.move(SubscriptionState.RECONNECTING)

    def _on_stream_end(self, error: Exception) -> None:
        if not isinstance(error, StreamEnded):
            self.stop(error)

    # ---- shutdown (a thread of its own) --------------------------------------------------------

    def _shut_down(self, error: Exception | None) -> None:
        """Take the parts down in the order in which a message passes them.

        Nothing new comes in; what has not begun is given back; what runs may finish (or not, as the
        user chose); then the server is told of everything, and only then is the future resolved.
        """
        steps: tuple[Callable[[], None], ...] = (
            self._consumer.stop,
            self._heartbeater.stop,
            self._give_back_unbegun,
            self._give_back_unsettled,
            self._leaser.stop,
            lambda: self._dispatcher.stop(FLUSH_TIMEOUT),
        )
        for step in steps:
            try:
                step()
            except Exception:
                # A scheduler of the user's may fail; the steps after it are needed all the more.
                _log.exception("a step of the shutdown failed")
        self._lifecycle.move(SubscriptionState.CLOSED)
        if error is None:
            self.future.set_result(True)
        else:
            self.future.set_exception(error)

    def _give_back_unbegun(self) -> None:
        # First the held ones: the end of a running callback must not bring in another.
        self._dispatcher.nack(self._hold.give_up())
        # Then what waits for a worker, before the callbacks that run are waited for.
        self._dispatcher.nack(self._scheduler.shutdown() or [])
        if self._await_callbacks:
            self._dispatcher.nack(self._scheduler.shutdown(await_msg_callbacks=True) or [])

    def _give_back_unsettled(self) -> None:
        self._dispatcher.nack([m for m in self._leaser.messages() if m.settled is None])
