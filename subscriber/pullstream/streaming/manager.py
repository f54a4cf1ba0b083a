"""The manager: creates the parts of a subscription, connects them, and shuts them down."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from pullstream.futures import ShutdownMode, StreamingPullFuture
from pullstream.hooks import HookSet
from pullstream.message import Message
from pullstream.rpc.calls import PendingCall, StreamCall
from pullstream.runtime.callback_kinds import is_coroutine_function
from pullstream.runtime.lifecycle import Lifecycle, StateChange, SubscriptionState
from pullstream.scheduling.scheduler import Scheduler
from pullstream.statistics import Statistics
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import columns_pb2 as columns
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .ack_requests import AckRequest
from .consumer import Consumer
from .heartbeater import Heartbeater
from .in_flight import InFlight
from .settings import StreamingSettings
from .shutdown import FLUSH_TIMEOUT, Shutdown, ShutdownDeadline
from .stream import ReceivedResponse, ResumingStream, StreamEnded

_log = logging.getLogger("pullstream.subscriber")


class SubscriptionCalls(Protocol):
    """The calls that a subscription makes until it has ended."""

    def streaming_pull(self, first: pubsub.StreamingPullRequest) -> StreamCall:
        """Begin a streaming pull with its first request."""

    def send(self, request: AckRequest) -> PendingCall:
        """Begin an Acknowledge or ModifyAckDeadline call, without retries."""

    def name_resource(self, error: RpcError) -> None:
        """Add what is known of a missing subscription to an error. May take a second."""

    def reconnect(self) -> None:
        """Begin the next stream on another connection."""

    def close(self) -> None:
        """Close the channel of the stream, and open no more streams."""


class StreamingPullManager:
    """One running subscription: its stream, its state and its shutdown. It has no thread.

    InFlight handles the messages. This class creates the other parts, connects them, and ends them.

    Owns the parts and the named state. Callers: the consumer's thread reports responses and the
    state of the stream. Any thread may stop the subscription.

    Args:
        calls: The RPCs.
        subscription: Full name.
        callback: Takes a message, or a list of messages if `settings.batching` is set.
        settings: The user's choices.
        scheduler: Runs the callbacks.
        clock: Measures time.

    Attributes:
        future: The user's handle on the subscription.
    """

    def __init__(
        self,
        calls: SubscriptionCalls,
        subscription: str,
        callback: Callable[..., Any],
        settings: StreamingSettings,
        *,
        scheduler: Scheduler,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._calls = calls
        self._subscription = subscription
        self._settings = settings
        self._scheduler = scheduler
        # Equal for all streams of this subscription, so that a server can recognise a reconnect.
        self._client_id = str(uuid.uuid4())
        self._streams_opened = 0
        self._hooks = HookSet(subscription, settings.hooks)
        # A hook may raise here, so this is done before any thread starts.
        wrapped = self._hooks.wrap(callback)
        if is_coroutine_function(wrapped) != is_coroutine_function(callback):
            raise TypeError(
                f"the hooks wrapped {callback!r} as {wrapped!r}; `Hooks.wrap` must return an async "
                "def for an async def, and a plain function for a plain one"
            )
        callback = wrapped
        self._lifecycle = Lifecycle(clock, self._state_changed)
        self._deadline = ShutdownDeadline(clock)
        self.future = StreamingPullFuture(self, f"the subscription to {subscription}")
        self._in_flight = InFlight(
            callback,
            settings,
            scheduler=scheduler,
            clock=clock,
            hooks=self._hooks,
            lifecycle=self._lifecycle,
            send=calls.send,
            pause_reader=self._pause_reader,
            resume_reader=self._resume_reader,
            fail=self.stop,
        )
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
            on_silence=self._server_is_silent,
        )
        self._consumer = Consumer(
            self._stream, on_response=self._on_response, on_end=self._on_stream_end
        )
        scheduler.admit(self._consumer)
        self._shutdown = Shutdown(
            self._deadline,
            consumer=self._consumer,
            heartbeater=self._heartbeater,
            in_flight=self._in_flight,
            scheduler=scheduler,
            hang_up=calls.close,
        )

    def start(self) -> None:
        """Start the threads. The reader starts last, when every part is ready for its messages.

        Raises:
            RuntimeError: The process cannot start more threads. The started threads have ended.
        """
        dispatcher, leaser = self._in_flight.dispatcher, self._in_flight.leaser
        callbacks = self._in_flight.callbacks
        with ExitStack() as undo:
            for start, stop in (
                (dispatcher.start, partial(dispatcher.stop, FLUSH_TIMEOUT)),
                (leaser.start, leaser.stop),
                (self._heartbeater.start, self._heartbeater.stop),
                (callbacks.start, callbacks.close),
            ):
                start()
                undo.callback(stop)
            self._hooks.tell("subscribed", self.statistics)
            try:
                self._consumer.start()
            except RuntimeError as error:
                # Hooks that saw the beginning must also see the end.
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
        """Begin the shutdown and return; `future` ends with it. Idempotent, from any thread.

        Args:
            error: The reason for the shutdown; None if the user asked for it.
            mode: "drain" waits for running callbacks, "nack" does not. None: as in the settings.
            timeout: Seconds for the shutdown. None: no new limit.
        """
        if error is not None and self._lifecycle.is_stopping:
            # The shutdown itself caused this error, which must not shorten it.
            return
        self._deadline.tighten(
            mode or ("drain" if self._settings.await_callbacks else "nack"), timeout
        )
        if self._lifecycle.move(SubscriptionState.CLOSING, error):
            # On a new thread, because the shutdown waits for callbacks and for the consumer, and
            # each of them may be the caller.
            thread = threading.Thread(
                target=self._shut_down, args=(error,), name="pullstream-shutdown", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                # The interpreter is about to exit, and allows no more threads.
                self._shut_down(error)

    def runs_here(self) -> bool:
        """Return whether the shutdown may have to wait for the calling thread."""
        return self._scheduler.runs_here() or self._in_flight.dispatcher.runs_here()

    def statistics(self) -> Statistics:
        """Return a snapshot. Its parts are read one after the other while the subscription runs."""
        return self._in_flight.statistics(reopened=max(self._streams_opened - 1, 0))

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        """Take over the leases of another client; see `InFlight.adopt_leases`."""
        return self._in_flight.adopt_leases(ack_ids, size)

    # ---- flow control (consumer's and dispatcher's threads, under the gauge's lock) -------------

    def _pause_reader(self) -> None:
        self._consumer.pause()
        self._heartbeater.paused()

    def _resume_reader(self) -> None:
        self._heartbeater.resumed()
        self._consumer.resume()

    # ---- the stream (consumer's thread) --------------------------------------------------------

    def _first_request(self) -> pubsub.StreamingPullRequest:
        limits = self._settings.limits
        limit_server = self._settings.limit_server
        return pubsub.StreamingPullRequest(
            subscription=self._subscription,
            client_id=self._client_id,
            stream_ack_deadline_seconds=self._in_flight.leaser.stream_deadline,
            max_outstanding_messages=limits.max_messages if limit_server else 0,
            max_outstanding_bytes=limits.max_bytes if limit_server else 0,
            protocol_version=1,
        )

    def stream_opened(self) -> None:
        """Count the stream, and begin heartbeats on it."""
        self._streams_opened += 1
        self._heartbeater.opened()

    def stream_received(self) -> None:
        """Enter the state STREAMING, because the server answers on this stream."""
        self._lifecycle.move(SubscriptionState.STREAMING)

    def stream_broken(self, cause: RpcError | None) -> None:
        """Suspend heartbeats, and enter the state RECONNECTING because of `cause`."""
        self._heartbeater.closed()
        self._lifecycle.move(SubscriptionState.RECONNECTING, cause)

    def _on_response(self, arrival: ReceivedResponse) -> None:
        self._heartbeater.received(is_pong=not arrival.response.received_messages)
        self._in_flight.receive_response(arrival)

    def _on_stream_end(self, error: Exception) -> None:
        if isinstance(error, StreamEnded):
            return
        if isinstance(error, RpcError):
            self._calls.name_resource(error)
        self.stop(error)

    def _state_changed(self, change: StateChange) -> None:
        self._hooks.tell("state_changed", change)

    # ---- silence (heartbeater's thread) --------------------------------------------------------

    def _server_is_silent(self) -> None:
        # A new stream on the old connection would be silent, too.
        self._stream.reset("the server stopped answering heartbeats", self._calls.reconnect)

    # ---- shutdown (a separate thread) ----------------------------------------------------------

    def _shut_down(self, error: Exception | None) -> None:
        self._shutdown.run()
        self._in_flight.callbacks.report_errors()
        counted_returns = self._in_flight.counters.counted_returns
        if counted_returns:
            _log.warning(
                "the shutdown returned %d messages that no callback had settled. Their "
                "subscription has a dead-letter policy. Google Cloud counts each return as a "
                "delivery attempt. The broker of pullstream counts only the messages whose "
                "callback had begun",
                counted_returns,
            )
        self._lifecycle.move(SubscriptionState.CLOSED, error)
        self._hooks.report_errors()
        if error is None:
            self.future.set_result(True)
        else:
            self.future.set_exception(error)
