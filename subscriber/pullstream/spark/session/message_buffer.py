"""Buffer of received messages, on which the session waits for batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pullstream.hooks import Hooks, LeaseLoss, RequestKind
from pullstream.message import Message, MessageBatch, clear_begun
from pullstream.runtime.lifecycle import StateChange, SubscriptionState
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError

from .lease_ledger import Done, LeaseLedger
from .message_group import MessageGroup

_ENDING = (SubscriptionState.CLOSING, SubscriptionState.CLOSED)

# A new stream without any response, not even to a heartbeat, counts as working after this many
# seconds. Some servers do not answer heartbeats, and an unreachable server is detected sooner.
_SILENCE = 30.0


class MessageBuffer(Hooks):
    """Owner of the lease ledger, behind one lock.

    The subscription's worker adds arriving messages, the dispatcher's thread reports lost leases,
    and any thread may report a state change of the stream. The session's threads wait for batches,
    cut segments and commit them. Methods that do not wait return quickly. No message is
    acknowledged before it is committed.

    Args:
        done: The index of committed messages.
        clock: Source of time.
        subscription: Value of the column `subscription`. None: there is no such column.
    """

    def __init__(self, done: Done, clock: Clock, subscription: str | None) -> None:
        self._clock = clock
        self._subscription = subscription
        self._changed = threading.Condition()
        self._precedence = threading.Lock()
        self._ledger = LeaseLedger(done)
        # Monotonic times: the start of the next batch in the buffer, and the last arrival of a
        # message or state change of the stream.
        self._filling_since = 0.0
        self._last_news = 0.0
        self._state = SubscriptionState.CONNECTING
        clock.add_waker(self.check_again)

    def close(self) -> None:
        """Unregister from the clock. The ledger keeps its content."""
        self._clock.remove_waker(self.check_again)

    # ---- called by the subscription --------------------------------------------------------------

    def __call__(self, messages: MessageBatch) -> None:
        """Add arriving messages to the buffer. This is the subscription's callback.

        The messages are not settled here, so their leases are extended.
        """
        with self._precedence:
            group = MessageGroup.of_arrived(messages, self._subscription)
        with self._changed:
            was_empty = not self._ledger.buffered
            arrival = self._ledger.arrived(group)
            if arrival.fresh:
                self._last_news = self._clock.monotonic()
                if was_empty:
                    self._filling_since = self._last_news
                self._changed.notify_all()
        # A buffered message is not handled: returning it at the end is not a delivery attempt.
        clear_begun(messages)
        forget(arrival.outdated)
        for message in arrival.done:
            message.ack()

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        """Remove the messages from the buffer; messages in segments stay."""
        with self._changed:
            self._ledger.lost(messages)

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """Do nothing.

        An implemented hook makes the SDK read answers as soon as they arrive, so the number of
        unanswered acknowledgements is exact.
        """

    def state_changed(self, subscription: str, change: StateChange) -> None:
        """Record the state of the stream, and wake the threads that wait for a batch."""
        with self._changed:
            self._state = change.state
            self._last_news = self._clock.monotonic()
            self._changed.notify_all()

    # ---- called by the session -------------------------------------------------------------------

    @contextmanager
    def ledger(self) -> Iterator[LeaseLedger]:
        """Provide the ledger; no other thread changes it during the block."""
        with self._changed:
            yield self._ledger

    @contextmanager
    def precedence(self) -> Iterator[None]:
        """Postpone the preparation of arriving messages until the end of the block.

        The engine waits for the session's thread and never for the worker. If both threads compute,
        Python makes each wait for the other for milliseconds after each file write or Arrow call.
        """
        with self._precedence:
            yield

    def wait(
        self, max_messages: int, max_bytes: int, *, linger: float, idle: float, drain: bool
    ) -> bool:
        """Wait for a batch, which may be a single message; return whether there is one.

        A batch is complete when one of its limits is reached, or `linger` seconds after its first
        message. There is no batch if no message has arrived for `idle` seconds, or the subscription
        has ended. With `drain`, `idle` seconds without another message also complete a batch, and
        only a working stream can prove that there are no more messages: while the stream is broken,
        the wait continues.

        Args:
            max_messages: Maximum number of messages.
            max_bytes: Maximum size in bytes.
            linger: Seconds after the first message.
            idle: Seconds without a message.
            drain: Whether the caller wants all messages up to the end of the subscription.
        """
        with self._changed:
            begun = self._clock.monotonic()
            while self._state not in _ENDING and not self._ledger.has(max_messages, max_bytes):
                due = self._drained_at(begun, idle) if drain else begun + idle
                if self._ledger.buffered:
                    filled = self._filling_since + linger
                    due = filled if due is None or not drain else min(filled, due)
                timeout = self._clock.timeout(due)
                if timeout == 0.0:
                    break
                self._changed.wait(timeout)
            return self._ledger.buffered > 0

    def cut(self, seq: int, max_messages: int, max_bytes: int) -> tuple[list[MessageGroup], bool]:
        """Move the first messages of the buffer to a segment.

        Args:
            seq: Number of the segment.
            max_messages: Maximum number of messages.
            max_bytes: Maximum size in bytes.

        Returns:
            The messages, and whether the buffer is empty now.
        """
        with self._changed:
            groups = self._ledger.cut(seq, max_messages, max_bytes)
            # The remaining messages begin another batch.
            self._filling_since = self._clock.monotonic()
            return groups, not self._ledger.buffered

    def wait_until_full(
        self, max_messages: int, max_bytes: int, is_over: Callable[[], bool]
    ) -> bool:
        """Wait for a complete batch; return whether there is one.

        Args:
            max_messages: Number of messages that completes a batch.
            max_bytes: Size in bytes that completes a batch.
            is_over: Ends the wait when it returns True. It is called when messages arrive, when the
                stream changes its state, and after `check_again`.
        """
        with self._changed:
            while not self._ledger.has(max_messages, max_bytes):
                if is_over() or self._state in _ENDING:
                    return False
                self._changed.wait()
            return True

    def is_quiet(self, seconds: float) -> bool:
        """Return whether no message has arrived for this time."""
        with self._changed:
            return self._clock.monotonic() >= self._last_news + seconds

    def release(self) -> None:
        """Stop extending the leases of messages in segments.

        The messages are not returned to the server, because they are not lost: the spool has them.
        """
        with self._changed:
            leased = self._ledger.leased()
        forget(leased)

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


def forget(messages: Iterable[Message]) -> None:
    """Drop leases without a request to the server; they expire.

    This is not a failure of their ordering keys: the later messages of these keys are not returned
    to the server.
    """
    for message in messages:
        message.failure_noted = True
        message.drop()
