"""The intake: what the subscription brings is put into the ledger, and waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from protocol.clock import Clock
from protocol.errors import RpcError
from subscriber.hooks import Hooks, LeaseLoss, RequestKind
from subscriber.message import Message, MessageBatch
from subscriber.streaming.state import StateChange, SubscriptionState

from .ledger import Done, Ledger
from .prepared import PreparedRows

_ENDING = (SubscriptionState.CLOSING, SubscriptionState.CLOSED)

# A stream without any response, not even to a heartbeat, is taken to work after so many seconds:
# there are servers that do not answer those, and one that is not there is found out sooner.
_SILENCE = 30.0


class Intake(Hooks):
    """Owner of the ledger, behind one lock.

    The subscription's worker brings what arrived, its dispatcher's thread what was lost, and
    whichever thread sees the stream change tells that; the session's threads wait, cut segments
    and commit them. Nothing here takes long, or acknowledges what is not committed.

    Args:
        rows: where rows of what arrives are made, on the subscription's worker, and kept of what is
            in the buffer.
    """

    def __init__(self, done: Done, clock: Clock, rows: PreparedRows) -> None:
        self._clock = clock
        self._rows = rows
        self._changed = threading.Condition()
        self._precedence = threading.Lock()
        self._ledger = Ledger(done)
        # On the monotonic clock: since when the next batch gathers in the buffer, and when it got
        # something, or the state of the stream changed.
        self._filling_since = 0.0
        self._last_news = 0.0
        self._state = SubscriptionState.CONNECTING
        clock.add_waker(self.look_again)

    def close(self) -> None:
        """Forget the clock. What the ledger says stays."""
        self._clock.remove_waker(self.look_again)

    # ---- told by the subscription --------------------------------------------------------------

    def __call__(self, messages: MessageBatch) -> None:
        """The subscription's callback. It only takes in: not being settled, the leases go on."""
        with self._precedence:
            made = self._rows.make(messages)
        with self._changed:
            was_empty = not self._ledger.buffered
            arrival = self._ledger.arrived(messages, made.message_ids)
            # Before anybody else sees them in the buffer.
            if arrival.buffered:
                self._rows.keep(made, arrival.buffered)
            if arrival.outdated:
                self._rows.drop(arrival.outdated)
            if arrival.fresh:
                self._last_news = self._clock.monotonic()
                if was_empty:
                    self._filling_since = self._last_news
                self._changed.notify_all()
        forget(arrival.outdated)
        for message in arrival.done:
            message.ack()

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        with self._changed:
            self._ledger.lost(messages)
            self._rows.drop(messages)

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """Nothing to do; but because somebody listens, answers are read when they come, and the
        number of acknowledgements without one is true."""

    def state_changed(self, subscription: str, change: StateChange) -> None:
        with self._changed:
            self._state = change.state
            self._last_news = self._clock.monotonic()
            self._changed.notify_all()

    # ---- for the session -----------------------------------------------------------------------

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, which nobody else changes meanwhile."""
        with self._changed:
            yield self._ledger

    @contextmanager
    def precedence(self) -> Iterator[None]:
        """Nothing that arrives is prepared meanwhile.

        The engine waits for what the session's thread does, and for nothing that the worker does.
        But of two threads that both compute, Python lets each wait for the other for milliseconds
        whenever it has written to a file, or had Arrow do something.
        """
        with self._precedence:
            yield

    def wait(
        self, max_messages: int, max_bytes: int, *, linger: float, idle: float, drain: bool
    ) -> bool:
        """Wait for a batch; whether there is one, if only of one message.

        It is complete when it has so many messages or bytes, or `linger` seconds after its first.
        There is none when nothing has come for `idle` seconds, or the subscription has ended. With
        `drain`, `idle` seconds without another message complete a batch, too; and that there is
        none is proved only by a stream that works, and not while it is broken.
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

    def cut(self, seq: int, max_messages: int, max_bytes: int) -> tuple[list[Message], bool]:
        """Move the first of the buffer into a segment; its messages, and whether that was all."""
        with self._changed:
            messages = self._ledger.cut(seq, max_messages, max_bytes)
            # What is left begins another batch.
            self._filling_since = self._clock.monotonic()
            return messages, not self._ledger.buffered

    def wait_until_full(
        self, max_messages: int, max_bytes: int, is_over: Callable[[], bool]
    ) -> bool:
        """Wait for a complete batch; whether there is one. Not longer than until `is_over`, which
        is looked at when something comes and at `look_again`."""
        with self._changed:
            while not self._ledger.has(max_messages, max_bytes):
                if is_over() or self._state in _ENDING:
                    return False
                self._changed.wait()
            return True

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing has come for so long."""
        with self._changed:
            return self._clock.monotonic() >= self._last_news + seconds

    def let_go(self) -> None:
        """Leave what is in segments to its leases: it is not given back, for it is not lost."""
        with self._changed:
            leased = self._ledger.leased()
        forget(leased)

    def look_again(self) -> None:
        """Let whoever waits see what has changed besides."""
        with self._changed:
            self._changed.notify_all()

    def _drained_at(self, begun: float, idle: float) -> float | None:
        """When, if nothing comes until then, the subscription is empty; None: not to be told."""
        if self._state is SubscriptionState.RECONNECTING:
            return None
        quiet = max(begun, self._last_news) + idle
        if self._state is SubscriptionState.CONNECTING:
            return max(quiet, begun + _SILENCE)
        return quiet


def forget(messages: Iterable[Message]) -> None:
    """Let go of leases without a word to the server, which ends them by itself.

    That is no failure of their ordering keys: nothing of what is behind them is to be given back.
    """
    for message in messages:
        message.purged = True
        message.drop()
