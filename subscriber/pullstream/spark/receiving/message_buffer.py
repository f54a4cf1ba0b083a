"""Buffer of received messages, on which a receiver waits for segments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pullstream.columns import MessageColumns
from pullstream.columns.portions import Portion
from pullstream.hooks import Hooks, LeaseLoss, RequestKind
from pullstream.message import Message, clear_begun, return_messages
from pullstream.runtime.lifecycle import StateChange, SubscriptionState
from pullstream.spark.protocol.elapsed import elapsed as since_boot
from pullstream.spark.protocol.layout import Segment
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError

from .message_group import MessageGroup
from .waiting_messages import WaitingMessages

_ENDING = (SubscriptionState.CLOSING, SubscriptionState.CLOSED)

# A new stream without any response, not even to a heartbeat, counts as working after this many
# seconds. Some servers do not answer heartbeats, and an unreachable server is detected sooner.
_SILENCE = 30.0


class MessageBuffer(Hooks):
    """Owner of the waiting messages, behind one lock.

    The subscription's worker adds arriving messages, the dispatcher's thread reports lost leases,
    and any thread may report a state change of the stream. The receiver's threads wait for
    messages, cut segments and settle them. Methods that do not wait return quickly.

    Args:
        clock: Source of time.
        subscription: Value of the column `subscription`. None: there is no such column.
        lease: Length of a lease, in seconds.
        elapsed: A clock that no one sets and that also runs while the machine sleeps, in seconds.
    """

    def __init__(
        self,
        clock: Clock,
        subscription: str | None,
        lease: float,
        elapsed: Callable[[], float] = since_boot,
    ) -> None:
        self._clock = clock
        self._subscription = subscription
        self._lease = lease
        self._elapsed = elapsed
        self._changed = threading.Condition()
        self._precedence = threading.Lock()
        self._waiting = WaitingMessages()
        # Monotonic times: the start of the next segment in the buffer, and the last arrival of a
        # message or state change of the stream.
        self._filling_since = 0.0
        self._last_news = 0.0
        self._state = SubscriptionState.CONNECTING
        clock.add_waker(self.check_again)

    def close(self) -> None:
        """Unregister from the clock. The messages stay."""
        self._clock.remove_waker(self.check_again)

    # ---- called by the subscription --------------------------------------------------------------

    def __call__(self, received: MessageColumns) -> None:
        """Add arriving messages to the buffer. This is the subscription's callback.

        The messages are not settled here, so their leases are extended.
        """
        with self._precedence:
            group = MessageGroup.of_arrived(received, self._subscription, self._elapsed())
            units = group.units
        with self._changed:
            was_empty = not self._waiting.buffered
            arrival = self._waiting.arrived(group)
            if arrival.fresh:
                self._last_news = self._clock.monotonic()
                if was_empty:
                    self._filling_since = self._last_news
                self._changed.notify_all()
        # A buffered message is not handled: returning it at the end is not a delivery attempt.
        for unit in units:
            if isinstance(unit, Portion):
                unit.clear_begun()
            else:
                clear_begun((unit,))
        forget(arrival.outdated)

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        """Remove the messages from the buffer; messages in segments stay."""
        with self._changed:
            self._waiting.lost(messages)

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """Record that the server has extended leases.

        An implemented hook also makes the SDK read answers as soon as they arrive, so the number of
        unanswered acknowledgements is exact.
        """
        if kind == "modify_ack_deadline" and error is None:
            with self._changed:
                self._waiting.leased(self._elapsed(), self._lease)

    def state_changed(self, subscription: str, change: StateChange) -> None:
        """Record the state of the stream, and wake the threads that wait for messages."""
        with self._changed:
            self._state = change.state
            self._last_news = self._clock.monotonic()
            self._changed.notify_all()

    # ---- called by the receiver ------------------------------------------------------------------

    @contextmanager
    def messages(self) -> Iterator[WaitingMessages]:
        """Provide the waiting messages; no other thread changes them during the block."""
        with self._changed:
            yield self._waiting

    @contextmanager
    def precedence(self) -> Iterator[None]:
        """Postpone the preparation of arriving messages until the end of the block.

        An engine waits for the receiver's thread and never for the worker. If both threads compute,
        Python makes each wait for the other for milliseconds after each file write or Arrow call.
        """
        with self._precedence:
            yield

    def wait(
        self,
        max_messages: int,
        max_bytes: int,
        *,
        linger: float,
        idle: float,
        drain: bool,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait for the messages of a segment, at least one; return whether there are any.

        A segment is complete when one of its limits is reached, or `linger` seconds after its first
        message. There is none if no message has arrived for `idle` seconds, or the subscription
        has ended. With `drain`, `idle` seconds without another message also complete a segment, and
        only a working stream can prove that there are no more messages: while the stream is broken,
        the wait continues.

        Args:
            max_messages: Maximum number of messages.
            max_bytes: Maximum size in bytes.
            linger: Seconds after the first message.
            idle: Seconds without a message.
            drain: Whether the caller wants all messages up to the end of the subscription.
            is_over: Ends the wait when it returns True, as in `wait_until_full`.
        """
        with self._changed:
            begun = self._clock.monotonic()
            while self._state not in _ENDING and not self._waiting.has(max_messages, max_bytes):
                if is_over():
                    break
                due = self._drained_at(begun, idle) if drain else begun + idle
                if self._waiting.buffered:
                    filled = self._filling_since + linger
                    due = filled if due is None or not drain else min(filled, due)
                timeout = self._clock.timeout(due)
                if timeout == 0.0:
                    break
                self._changed.wait(timeout)
            return self._waiting.buffered > 0

    def cut(self, max_messages: int, max_bytes: int) -> tuple[list[MessageGroup], bool]:
        """Move the first messages out of the buffer; see `WaitingMessages.cut`.

        Returns:
            The messages, and whether the buffer is empty now.
        """
        with self._changed:
            groups = self._waiting.cut(max_messages, max_bytes)
            # The remaining messages begin another segment.
            self._filling_since = self._clock.monotonic()
            return groups, not self._waiting.buffered

    def acknowledge(self, segments: Iterable[Segment]) -> None:
        """Acknowledge the messages that are held for segments."""
        for segment in segments:
            with self._changed:
                groups = self._waiting.take_held(segment)
            _acknowledge(groups)

    def return_held(self, segments: Iterable[Segment]) -> None:
        """Return the messages that are held for segments to the server."""
        for segment in segments:
            with self._changed:
                groups = self._waiting.take_held(segment)
            _return(groups)

    def wait_until_full(
        self, max_messages: int, max_bytes: int, is_over: Callable[[], bool]
    ) -> bool:
        """Wait for a complete segment; return whether there is one.

        Args:
            max_messages: Number of messages that completes a segment.
            max_bytes: Size in bytes that completes a segment.
            is_over: Ends the wait when it returns True. It is called when messages arrive, when the
                stream changes its state, and after `check_again`.
        """
        with self._changed:
            while not self._waiting.has(max_messages, max_bytes):
                if is_over() or self._state in _ENDING:
                    return False
                self._changed.wait()
            return True

    def is_quiet(self, seconds: float) -> bool:
        """Return whether no message has arrived for this time."""
        with self._changed:
            return self._clock.monotonic() >= self._last_news + seconds

    def release(self) -> None:
        """Stop extending the leases of messages that are held for segments.

        The messages are not returned to the server, because they are not lost: segments have them.
        """
        with self._changed:
            held = self._waiting.all_held()
        forget(held)

    def check_again(self) -> None:
        """Wake the waiting threads to check their conditions again."""
        with self._changed:
            self._changed.notify_all()

    def _drained_at(self, begun: float, idle: float) -> float | None:
        """Return when the subscription counts as empty, or None while the stream is broken.

        The time applies if no message arrives until then.
        """
        if self._state is SubscriptionState.RECONNECTING:
            return None
        quiet = max(begun, self._last_news) + idle
        if self._state is SubscriptionState.CONNECTING:
            return max(quiet, begun + _SILENCE)
        return quiet


def _acknowledge(groups: Iterable[MessageGroup]) -> None:
    for group in groups:
        group.acknowledge()


def _return(groups: Iterable[MessageGroup]) -> None:
    for group in groups:
        return_messages(group.messages)


def forget(messages: Iterable[Message]) -> None:
    """Drop leases without a request to the server; they expire.

    This is not a failure of their ordering keys: the later messages of these keys are not returned
    to the server.
    """
    for message in messages:
        message.failure_noted = True
        message.drop()
