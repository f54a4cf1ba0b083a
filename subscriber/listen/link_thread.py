"""The thread that owns a listener's calls."""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from protocol.clock import Clock
from protocol.errors import Cancelled, RpcError
from protocol.messages import channels_pb2 as channels
from subscriber.exceptions import SubscriberClosed
from subscriber.refused_threads import start_or_undo
from subscriber.rpc import Rpcs, to_error
from subscriber.streaming.inbox import Inbox

from .callbacks import CallbackThread
from .commands import Batch
from .interest import Interest
from .link import Link
from .notices import ListenEvent, Notice
from .settings import ListenSettings

_log = logging.getLogger("pullstream.listen")

# Seconds that an answer to commands may take before they are sent again.
_COMMANDS_TIMEOUT = 20.0

# Seconds that the farewell at the end may take.
_UNREGISTER_TIMEOUT = 2.0

# How often it is looked, at the end, whether the time for it is over, in seconds.
_LOOK_SECONDS = 0.05


class LinkThread:
    """Sends what the link has to send, and hands on what the answers bring.

    Owns the Link, which is called under a lock: by any thread for what its user wants, by this one
    for all else. Answers come from gRPC's threads into an inbox. What the user is to be told goes
    to the thread of the callbacks, from here only, so that it keeps its order.

    Args:
        on_event: see CallbackThread.
        on_end: called last, with a fault of ours if that was the end.
    """

    def __init__(
        self,
        rpcs: Rpcs,
        settings: ListenSettings,
        clock: Clock,
        *,
        on_event: Callable[[ListenEvent], object] | None,
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._rpcs = rpcs
        self._settings = settings
        self._clock = clock
        self._on_end = on_end
        self._lock = threading.Lock()
        self._link = Link(settings, new_id=lambda: str(uuid.uuid4()))
        self._closing = False
        self._deadline = math.inf
        # What is under way. grpcio cancels a call whose future is collected.
        self._poll: tuple[object, Any] | None = None
        self._batch: tuple[Batch, Any] | None = None
        self._inbox: Inbox[Callable[[], list[Notice]]] = Inbox(clock)
        self._callbacks = CallbackThread(on_event, on_room=self._inbox.wake)
        # Daemon, as the client stops it when the program ends.
        self._thread = threading.Thread(target=self._run, name="pullstream-listen", daemon=True)
        start_or_undo(self._thread, self._callbacks.stop)

    # ---- for any thread ------------------------------------------------------------------------

    def subscribe(self, interest: Interest) -> bool:
        with self._lock:
            if self._closing:
                raise SubscriberClosed("this listener is closed; make a new one to subscribe")
            is_new = self._link.subscribe(interest)
        if is_new:
            self._inbox.wake()
        return is_new

    def unsubscribe(self, channel: str, key: str | None) -> bool:
        with self._lock:
            was_there = self._link.unsubscribe(channel, key)
        if was_there:
            self._inbox.wake()
        return was_there

    def is_subscribed(self, channel: str, key: str | None) -> bool:
        with self._lock:
            return (channel, key) in self._link

    def stop(self, timeout: float | None) -> None:
        """Begin to end; `on_end` comes when no callback runs any more, or after so many seconds.

        A later call can only hurry an earlier one.
        """
        with self._lock:
            if timeout is not None:
                self._deadline = min(self._deadline, self._clock.monotonic() + timeout)
            self._closing = True
        self._inbox.wake()

    def runs_here(self) -> bool:
        """Whether it is this thread that asks, or that of the callbacks."""
        return self._callbacks.runs_here() or threading.current_thread() is self._thread

    # ---- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        fault = None
        try:
            while not self._closing:
                self._send()
                self._take_answers()
        except Exception as error:
            # Whoever waits for the end is to learn of it.
            _log.exception("a listener has failed")
            fault = error
        try:
            self._end()
        finally:
            self._on_end(fault)

    def _take_answers(self) -> None:
        """Wait for an answer, for something to send, or for the time to try again."""
        with self._lock:
            due = self._link.next_due(may_poll=self._callbacks.has_room())
        for event in self._inbox.take(due):
            with self._lock:
                notices = event()
            self._callbacks.put(notices)

    def _send(self) -> None:
        """Send what there is to send, and withdraw what is of no use any more."""
        now = self._clock.monotonic()
        has_room = self._callbacks.has_room()
        with self._lock:
            if not has_room:
                self._link.give_sign(now)
            batch = self._link.next_batch(now)
            poll = self._link.next_poll(now) if has_room else None
            polling = self._poll is not None and self._link.is_polling(self._poll[0])
            sending = self._batch is not None and self._link.is_sending(self._batch[0])
        if not polling:
            _withdraw(self._poll)
        if not sending:
            _withdraw(self._batch)
        if batch is not None:
            self._send_batch(*batch)
        if poll is not None:
            self._send_poll(*poll)

    def _send_batch(self, batch: Batch, request: channels.CommandsRequest) -> None:
        def answered(call: Any) -> list[Notice]:
            error = _error_of(call)
            if error is not None:
                return self._link.batch_failed(batch, error, self._clock.monotonic())
            return self._link.batch_answered(batch, request.incarnation, call.result())

        self._batch = (batch, self._call("Commands", request, _COMMANDS_TIMEOUT, answered))

    def _send_poll(self, token: object, request: channels.PollRequest) -> None:
        def answered(call: Any) -> list[Notice]:
            error = _error_of(call)
            if error is not None:
                return self._link.poll_failed(token, error, self._clock.monotonic())
            return self._link.poll_answered(token, request.incarnation, call.result())

        self._poll = (token, self._call("Poll", request, self._settings.poll_timeout, answered))

    def _call(
        self,
        method: str,
        request: Any,
        timeout: float | None,
        answered: Callable[[Any], list[Notice]],
    ) -> Any:
        try:
            call = self._rpcs.begin(method, request, timeout=timeout)
        except ValueError:
            # The channel, which may be the user's own, has been closed.
            self._inbox.put(lambda: answered(None))
            return None
        call.add_done_callback(lambda done: self._inbox.put(partial(answered, done)))
        return call

    def _end(self) -> None:
        with self._lock:
            self._closing = True
            notices = self._link.close()
            is_known, subscriber_id = self._link.is_known, self._link.subscriber_id
        _withdraw(self._poll)
        _withdraw(self._batch)
        self._inbox.close()
        self._callbacks.put(notices)
        self._callbacks.stop()
        if is_known:
            self._say_goodbye(subscriber_id)
        while not self._callbacks.has_ended(_LOOK_SECONDS):
            if self._clock.monotonic() >= self._deadline:
                return

    def _say_goodbye(self, subscriber_id: str) -> None:
        request = channels.UnregisterRequest(subscriber_id=subscriber_id)
        try:
            self._rpcs.stub("Unregister")(request, timeout=_UNREGISTER_TIMEOUT)
        except (grpc.RpcError, ValueError):
            # The publisher finds out by itself, later.
            return


def _withdraw(under_way: tuple[Any, Any] | None) -> None:
    """Cancel a call; one that is over takes no notice."""
    if under_way is not None and under_way[1] is not None:
        under_way[1].cancel()


def _error_of(call: Any) -> RpcError | None:
    """What a call has ended with; None if with an answer."""
    if call is None:
        return Cancelled("the channel is closed")
    if call.cancelled():
        return Cancelled("the call was cancelled")
    error = call.exception()
    return None if error is None else to_error(error)
