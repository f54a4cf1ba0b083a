"""Session thread: makes the calls of a listener."""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from pullstream.exceptions import SubscriberClosed
from pullstream.rpc.rpcs import Rpcs, earliest, to_error
from pullstream.runtime.process import CHECK_EVERY
from pullstream.runtime.thread_start import start_or_undo
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import Cancelled, RpcError
from pullstream_protocol.inbox import Inbox
from pullstream_protocol.messages import channels_pb2 as channels

from .callbacks import CallbackThread
from .commands import CommandBatch
from .events import ListenEvent
from .session import ListenSession, ListenSettings
from .subscription import ChannelSubscription, Notice

_log = logging.getLogger("pullstream.listen")

# The timeout of a Commands call, in seconds. After it the commands are sent again.
_COMMANDS_TIMEOUT = 20.0

# The timeout of the Unregister call at the end, in seconds.
_UNREGISTER_TIMEOUT = 2.0


class SessionThread:
    """Sends the requests of a ListenSession, and passes the responses to it.

    Owns the ListenSession, which is called under a lock: by any thread for the user's requests, and
    by this thread for everything else. gRPC's threads put responses into an inbox. Only this thread
    passes events to the callback thread, so that they stay in order.

    Args:
        rpcs: Makes the calls.
        settings: The user's settings.
        clock: The source of time.
        on_event: See CallbackThread.
        on_end: Called last. Its argument is the error that ended the listener, if a callback raised
            SystemExit or the listener has a defect, else None.
    """

    def __init__(
        self,
        rpcs: Rpcs,
        settings: ListenSettings,
        clock: Clock,
        *,
        on_event: Callable[[ListenEvent], object] | None,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._rpcs = rpcs
        self._settings = settings
        self._clock = clock
        self._on_end = on_end
        self._lock = CallLock()
        self._session = ListenSession(settings, new_id=lambda: str(uuid.uuid4()))
        self._closing = False
        self._fault: BaseException | None = None
        self._deadline = math.inf
        # The running calls. They are kept because grpcio cancels a call whose future is collected.
        self._poll: tuple[object, Any] | None = None
        self._batch: tuple[CommandBatch, Any] | None = None
        self._inbox: Inbox[Callable[[], list[Notice]]] = Inbox(clock)
        self._callbacks = CallbackThread(
            on_event, on_room=self._inbox.wake, on_exit=self._end_because_of
        )
        # A daemon thread, because the client stops it when the program exits.
        self._thread = threading.Thread(target=self._run, name="pullstream-listen", daemon=True)
        start_or_undo(self._thread, self._callbacks.stop)

    # ---- for any thread ------------------------------------------------------------------------

    def subscribe(self, interest: ChannelSubscription) -> bool:
        """Add a subscription; return whether it is new. Raise SubscriberClosed after the end."""
        with self._lock.once:
            if self._closing:
                raise SubscriberClosed(
                    "this listener is closed; to subscribe, create another with `client.listen()`"
                )
            is_new = self._session.subscribe(interest)
        if is_new:
            self._inbox.wake()
        return is_new

    def unsubscribe(self, channel: str, key: str | None) -> bool:
        """Remove a subscription; return whether it existed."""
        with self._lock.once:
            was_there = self._session.unsubscribe(channel, key)
        if was_there:
            self._inbox.wake()
        return was_there

    def is_subscribed(self, channel: str, key: str | None) -> bool:
        """Return whether there is a subscription, confirmed or not."""
        with self._lock.once:
            return (channel, key) in self._session

    def stop(self, timeout: float | None) -> None:
        """Start ending: `on_end` is called when no callback runs, or after `timeout` seconds.

        A later call can only shorten the timeout of an earlier one.
        """
        with self._lock.once:
            if timeout is not None:
                self._deadline = min(self._deadline, self._clock.monotonic() + timeout)
            self._closing = True
        self._inbox.wake()

    def runs_here(self) -> bool:
        """Return whether the current thread is this thread or the callback thread."""
        return self._callbacks.runs_here() or threading.current_thread() is self._thread

    # ---- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._closing or self._fault):
                self._send()
                self._take_answers()
        except BaseException as error:
            # The future reports the error, too.
            _log.exception("a listener has failed because of an internal error")
            self._fault = error
        try:
            self._end()
        finally:
            self._on_end(self._fault)

    def _end_because_of(self, fault: BaseException) -> None:
        """End the listener with an error. The callback thread calls it."""
        self._fault = self._fault or fault
        self._inbox.wake()

    def _take_answers(self) -> None:
        """Wait until a response arrives or a request is due; process the responses."""
        with self._lock:
            due = self._session.next_due(may_poll=self._callbacks.has_room())
        events = self._inbox.take(earliest(due, self._rpcs.next_check))
        self._rpcs.check_if_due()
        for event in events:
            with self._lock:
                notices = event()
            self._callbacks.put(notices)

    def _send(self) -> None:
        """Send the requests that are due, and cancel calls whose results are not wanted."""
        now = self._clock.monotonic()
        has_room = self._callbacks.has_room()
        with self._lock:
            if not has_room:
                self._session.give_sign(now)
            batch = self._session.next_batch(now)
            poll = self._session.next_poll(now) if has_room else None
            polling = self._poll is not None and self._session.is_polling(self._poll[0])
            sending = self._batch is not None and self._session.is_sending(self._batch[0])
        if not polling:
            _withdraw(self._poll)
        if not sending:
            _withdraw(self._batch)
        if batch is not None:
            self._send_batch(*batch)
        if poll is not None:
            self._send_poll(*poll)

    def _send_batch(self, batch: CommandBatch, request: channels.CommandsRequest) -> None:
        def on_response(call: Any) -> list[Notice]:
            error = _error_of(call)
            if error is not None:
                return self._session.batch_failed(batch, error, self._clock.monotonic())
            return self._session.batch_answered(batch, request.incarnation, call.result())

        self._batch = (batch, self._call("Commands", request, _COMMANDS_TIMEOUT, on_response))

    def _send_poll(self, token: object, request: channels.PollRequest) -> None:
        def on_response(call: Any) -> list[Notice]:
            error = _error_of(call)
            if error is not None:
                return self._session.poll_failed(token, error, self._clock.monotonic())
            return self._session.poll_answered(token, request.incarnation, call.result())

        self._poll = (token, self._call("Poll", request, self._settings.poll_timeout, on_response))

    def _call(
        self,
        method: str,
        request: Any,
        timeout: float | None,
        on_response: Callable[[Any], list[Notice]],
    ) -> Any:
        try:
            call = self._rpcs.begin(method, request, timeout=timeout)
        except ValueError:
            # The gRPC channel is closed. It may belong to the user.
            self._inbox.put(lambda: on_response(None))
            return None
        call.add_done_callback(lambda done: self._inbox.put(partial(on_response, done)))
        return call

    def _end(self) -> None:
        with self._lock:
            self._closing = True
            notices = self._session.close(self._fault)
            is_known, subscriber_id = (
                self._session.is_known,
                self._session.subscriber_id,
            )
        _withdraw(self._poll)
        _withdraw(self._batch)
        self._inbox.close()
        self._callbacks.put(notices)
        self._callbacks.stop()
        if is_known:
            self._say_goodbye(subscriber_id)
        left = math.inf
        while left > 0:
            # The deadline may become earlier during the wait.
            left = max(self._deadline - self._clock.monotonic(), 0.0)
            if self._callbacks.has_ended(min(left, CHECK_EVERY)):
                return

    def _say_goodbye(self, subscriber_id: str) -> None:
        request = channels.UnregisterRequest(subscriber_id=subscriber_id)
        left = max(self._deadline - self._clock.monotonic(), 0.0)
        try:
            self._rpcs.stub("Unregister")(request, timeout=min(left, _UNREGISTER_TIMEOUT))
        except (grpc.RpcError, ValueError):
            # The publisher drops the session later, because the subscriber is silent.
            return


def _withdraw(under_way: tuple[Any, Any] | None) -> None:
    """Cancel a call. Has no effect on a call that has ended."""
    if under_way is not None and under_way[1] is not None:
        under_way[1].cancel()


def _error_of(call: Any) -> RpcError | None:
    """Return the error of a call; None if it has a response."""
    if call is None:
        return Cancelled("the channel is closed")
    if call.cancelled():
        return Cancelled("the call was cancelled")
    error = call.exception()
    return None if error is None else to_error(error)
