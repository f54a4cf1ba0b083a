"""The manager: creates the parts of a subscription, connects them, and shuts them down."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from pullstream.futures import ShutdownMode, StreamingPullFuture
from pullstream.hooks import HookSet
from pullstream.lazy_messages import RawResponse
from pullstream.message import Message
from pullstream.rpc.calls import PendingCall
from pullstream.runtime.callback_kinds import is_coroutine_function
from pullstream.runtime.lifecycle import Lifecycle, StateChange, SubscriptionState
from pullstream.scheduling.scheduler import Scheduler
from pullstream.statistics import Statistics
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .ack_requests import AckRequest
from .in_flight import InFlight
from .pull_stream import PullStream, StreamCalls
from .settings import StreamingSettings
from .shutdown import FLUSH_TIMEOUT, Shutdown, ShutdownDeadline
from .stream import ReceivedResponse, Response, StreamEnded

_log = logging.getLogger("pullstream.subscriber")


class SubscriptionCalls(Protocol):
    """The calls that a subscription makes until it has ended."""

    def new_stream(self) -> StreamCalls:
        """Return the calls of another stream, which has its own connection."""

    def send(self, request: AckRequest) -> PendingCall:
        """Begin an Acknowledge or ModifyAckDeadline call, without retries."""

    def name_resource(self, error: RpcError) -> None:
        """Add what is known of a missing subscription to an error. May take a second."""


class StreamingPullManager:
    """One running subscription: its streams, its state and its shutdown. It has no thread.

    InFlight handles the messages. This class creates the other parts, connects them, and ends them.

    Owns the parts and the named state. Callers: the threads that read the streams report responses
    and the states of the streams. Any thread may stop the subscription.

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
            pause_readers=self._pause_readers,
            resume_readers=self._resume_readers,
            fail=self.stop,
        )
        parse: Callable[[bytes], Response] = pubsub.StreamingPullResponse.FromString
        if settings.batching is not None and settings.batching.columns:
            parse = RawResponse
        self._streams = [
            PullStream(
                calls.new_stream(),
                clock,
                first_request=self._first_request,
                listener=self,
                gives_up_at=self._gives_up_at,
                parse=parse,
            )
            for _ in range(settings.streams)
        ]
        # One of them: inline runs of several threads would hide each other from the stall monitor.
        scheduler.admit(self._streams[0])
        self._shutdown = Shutdown(
            self._deadline,
            streams=self._streams,
            in_flight=self._in_flight,
            scheduler=scheduler,
        )

    def start(self) -> None:
        """Start the threads. The readers start last, when every part is ready for their messages.

        Raises:
            RuntimeError: The process cannot start more threads. The started threads have ended.
        """
        dispatcher, leaser = self._in_flight.dispatcher, self._in_flight.leaser
        callbacks = self._in_flight.callbacks
        with ExitStack() as undo:
            for start, stop in (
                (dispatcher.start, partial(dispatcher.stop, FLUSH_TIMEOUT)),
                (leaser.start, leaser.stop),
                (callbacks.start, callbacks.close),
            ):
                start()
                undo.callback(stop)
            for stream in self._streams:
                stream.start_heartbeats()
                undo.callback(stream.stop_heartbeats)
            self._hooks.tell("subscribed", self.statistics)
            try:
                for stream in self._streams:
                    stream.start_reading()
                    undo.callback(stream.stop_reading)
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
        return self._in_flight.statistics([stream.statistics() for stream in self._streams])

    def adopt(self, ack_ids: Sequence[str], size: int) -> list[Message]:
        """Take over the leases of another client; see `InFlight.adopt_leases`."""
        return self._in_flight.adopt_leases(ack_ids, size)

    # ---- flow control (readers' and dispatcher's threads, under the gauge's lock) ---------------

    def _pause_readers(self) -> None:
        for stream in self._streams:
            stream.pause()

    def _resume_readers(self) -> None:
        for stream in self._streams:
            stream.resume()

    # ---- the streams (their readers' threads) --------------------------------------------------

    def _first_request(self) -> pubsub.StreamingPullRequest:
        request = pubsub.StreamingPullRequest(
            subscription=self._subscription,
            stream_ack_deadline_seconds=self._in_flight.leaser.stream_deadline,
            protocol_version=1,
        )
        if self._settings.limit_server:
            # A server counts each stream for itself.
            limits, streams = self._settings.limits, self._settings.streams
            request.max_outstanding_messages = -(-limits.max_messages // streams)
            request.max_outstanding_bytes = -(-limits.max_bytes // streams)
        return request

    def _gives_up_at(self, now: float) -> float:
        give_up_after = self._settings.give_up_after
        if give_up_after is None:
            return math.inf
        return max(stream.last_worked(now) for stream in self._streams) + give_up_after

    def stream_changed(self, cause: RpcError | None) -> None:
        """Enter the state STREAMING if a stream is, else RECONNECTING because of `cause`."""
        while True:
            state = self._streams_state()
            self._lifecycle.move(state, cause)
            # Again if another stream has changed meanwhile. Otherwise this could happen: the last
            # stream breaks, another one opens and finds the state STREAMING, and only then the
            # thread of the first one enters RECONNECTING.
            if self._streams_state() is state:
                return

    def _streams_state(self) -> SubscriptionState:
        is_streaming = any(one.state is SubscriptionState.STREAMING for one in self._streams)
        return SubscriptionState.STREAMING if is_streaming else SubscriptionState.RECONNECTING

    def response_received(self, arrival: ReceivedResponse) -> None:
        """Pass the messages of a response on."""
        self._in_flight.receive_response(arrival)

    def stream_ended(self, error: Exception) -> None:
        """End the subscription if the stream ended with an error."""
        if isinstance(error, StreamEnded):
            return
        if isinstance(error, RpcError):
            self._calls.name_resource(error)
        self.stop(error)

    def _state_changed(self, change: StateChange) -> None:
        self._hooks.tell("state_changed", change)

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
