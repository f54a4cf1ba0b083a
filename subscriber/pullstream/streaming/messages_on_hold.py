"""Ordering keys: runs one message of a key at a time, and holds the others in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pullstream.flow_control import FlowControl
from pullstream.message import Disposition, Message
from pullstream_protocol.call_lock import CallLock

from .failed_key import Actions, FailedKey, Redeliveries
from .key_messages import MissingMessages
from .sorted_keys import SortedKeys

# Largest number of failed keys that are remembered; the latest failures are kept. Without this
# limit a key that another subscriber took over is remembered until it returns.
MAX_FAILED_KEYS = 10_000


class MessagesOnHold:
    """Holds the messages of a key while an earlier one runs or has failed.

    Owns the queues of the keys, behind one lock, and the ended turns that no thread has processed.
    The consumer's thread offers messages, once per response. The workers report each ordered
    callback that ends. The dispatcher's thread reports later nacks, and the nacks that the server
    accepted. The leaser's thread reports lost leases and the end of waits. The shutdown takes all
    messages.

    Guarantees, for each key: callbacks begin in order, and never two at once. When a message fails,
    the later messages stay leased. They do not begin before the failed message has been redelivered
    and handled, or is known to be gone. FailedKey has the rules.

    Flow control counts held messages like any others, except for *parked* ones, which are behind a
    failed message. Otherwise one key with a long backoff would stop all other keys. Parked messages
    have a second window of the same size. When it is full, the key that failed first returns its
    held messages.

    Each step takes time in proportion to the messages that it moves, however many are held and
    however many keys have failed: all other keys wait for the lock.

    Args:
        limits: The window of flow control, and how long a key waits for a failed message.
    """

    def __init__(self, limits: FlowControl) -> None:
        self._lock = CallLock()
        # The ended turns that no thread has processed: see `ended`.
        self._turns: deque[tuple[Message, Sequence[Message]]] = deque()
        self._ending = threading.Lock()
        self._limits = limits
        # A key is here while one of its messages runs. The deque contains the later messages; it is
        # None until there is one. A key with a failed message is in `_failed` instead.
        self._held: dict[str, deque[Message] | None] = {}
        self._failed: dict[str, FailedKey] = {}
        self._failures = 0
        # The failed keys that can return parked messages, and those without any message here, as
        # (number of the failure, key).
        self._parking: SortedKeys[tuple[int, str]] = SortedKeys()
        self._idle: SortedKeys[tuple[int, str]] = SortedKeys()
        self._redeliveries = Redeliveries(limits.max_redelivery_wait)
        # The keys of nacks that the server has not accepted yet, by ack id.
        self._nacks: dict[str, str] = {}
        # The ends of waits, as (due time, key).
        self._dues: SortedKeys[tuple[float, str]] = SortedKeys()
        self._parked = 0
        self._parked_bytes = 0
        self._closed = False

    def __len__(self) -> int:
        with self._lock.once:
            behind = sum(len(held) for held in self._held.values() if held)
            return behind + sum(len(failed) for failed in self._failed.values())

    def offer(self, messages: Iterable[Message], now: float) -> Actions:
        """Divide received messages, in order, into messages to run and messages to hold.

        Messages without an ordering key always run. Messages that `lost` has reported are left out.
        """
        actions = Actions()
        run, held_by_key = actions.run, self._held
        of_failed: dict[str, list[Message]] = {}
        with self._lock:
            if self._closed:
                actions.to_return += messages
                return actions
            for message in messages:
                key = message.ordering_key
                if not key:
                    run.append(message)
                elif message.failure_noted:
                    # Its lease was lost while it waited for its receipt.
                    continue
                elif self._failed and key in self._failed:
                    of_failed.setdefault(key, []).append(message)
                elif key not in held_by_key:
                    held_by_key[key] = None
                    run.append(message)
                elif (held := held_by_key[key]) is not None:
                    held.append(message)
                else:
                    held_by_key[key] = deque((message,))
            for key, of_key in of_failed.items():
                # All messages together, because one may replace the message that would run next.
                with self._changing(key, actions) as failed:
                    for message in of_key:
                        failed.receive(message, now, actions)
        return actions

    def ended(
        self, message: Message, shared: Sequence[Message] = ()
    ) -> tuple[list[Message], Actions | None]:
        """End the turn of an ordered message, and of the messages that shared it.

        This does not wait while another thread ends turns: that thread ends this one, too. Workers
        that wait for each other give up Python's lock for each message (see `WorkerPool._forget`).

        Returns:
            The next messages of this key and of the other keys whose turns this call has ended; and
            the necessary actions, if one of the keys has a failed message.
        """
        run: list[Message] = []
        actions: Actions | None = None
        # Nearly always the lock is free, and then this is all: 0.4 microseconds instead of 1.1.
        if self._lock.acquire(False):
            try:
                return run, self._end_turn(message, shared, run, actions)
            finally:
                self._lock.release()
        self._turns.append((message, shared))
        # A thread appends its turn and then tries to become the owner. The owner releases this lock
        # and then looks for turns. So one of the two sees the other.
        while self._turns and self._ending.acquire(False):
            try:
                with self._lock:
                    while self._turns:
                        actions = self._end_turn(*self._turns.popleft(), run, actions)
            finally:
                self._ending.release()
        return run, actions

    def _end_turn(
        self,
        message: Message,
        shared: Sequence[Message],
        run: list[Message],
        actions: Actions | None,
    ) -> Actions | None:
        key = message.ordering_key
        if self._failed and key in self._failed:
            actions = actions or Actions()
            with self._changing(key, actions) as failed:
                for each in (*shared, message):
                    failed.ended(each, actions)
            return actions
        held = self._held.get(key)
        if held:
            run.append(held.popleft())
        else:
            self._held.pop(key, None)
        return actions

    def waiting_behind(self, message: Message) -> int:
        """Return how many held messages may share the turn of a message."""
        key = message.ordering_key
        with self._lock:
            if key in self._failed:
                return self._failed[key].joining(message)
            return len(self._held.get(key) or ())

    def take_behind(self, message: Message, limit: int) -> list[Message]:
        """Take up to `limit` held messages, which share the turn of a message."""
        key = message.ordering_key
        with self._lock:
            if key in self._failed:
                # None of its messages is parked, because a message that did not fail runs.
                return self._failed[key].join(message, limit)
            held = self._held.get(key) or deque()
            return [held.popleft() for _ in range(min(limit, len(held)))]

    # ---- failures ------------------------------------------------------------------------------

    def failed(
        self,
        message: Message,
        *,
        handled: Sequence[Message] = (),
        unhandled: Sequence[Message] = (),
    ) -> Actions:
        """Record that an ordered message failed and will be redelivered.

        `nacks_accepted` reports when the server has accepted the nack. Two threads may report the
        same failure; it counts once. This does not end the turn of the message; `ended` does.

        A dropped message is returned. If only its lease ended, the server would send later messages
        of the key until then, and none of them can run. They would fill the server's window for
        this stream, and stop all other keys.

        Args:
            message: The failed message.
            handled: Later messages of its key that shared its turn and were acknowledged.
            unhandled: Later messages that shared its turn and have no outcome; they are held again.
        """
        actions = Actions()
        with self._lock:
            if self._closed:
                return actions
            if not message.failure_noted or handled or unhandled:
                with self._changing(message.ordering_key, actions) as failed:
                    failed.hold(unhandled, actions)
                    if not message.failure_noted:
                        message.failure_noted = True
                        failed.fail(message, actions)
                        if message.settled in (Disposition.DROP, Disposition.LOST):
                            actions.return_dropped.append(message)
                    for each in handled:
                        failed.handled(each, actions)
        return actions

    def nacks_accepted(self, ack_ids: Iterable[str], comes_at: float) -> Actions:
        """Record that the server accepted nacks and redelivers, at `comes_at` at the earliest."""
        actions = Actions()
        if self._nacks:
            with self._lock:
                for ack_id in ack_ids:
                    if ack_id in self._nacks:
                        with self._changing(self._nacks[ack_id], actions) as failed:
                            failed.nack_was_accepted(ack_id, comes_at)
        return actions

    def lost(self, messages: Iterable[Message], comes_at: float | None) -> Actions:
        """Stop holding messages whose leases are over. Their keys wait for the redeliveries.

        Args:
            messages: Messages with and without an ordering key.
            comes_at: Earliest time of the redeliveries. None: the messages are returned, and
                `nacks_accepted` reports when the server has accepted that.
        """
        actions = Actions()
        with self._lock:
            for message in messages:
                if not message.ordering_key or message.failure_noted or self._closed:
                    continue
                message.failure_noted = True
                with self._changing(message.ordering_key, actions) as failed:
                    failed.remove(message)
                    failed.fail(message, actions)
                    if comes_at is not None:
                        failed.nack_was_accepted(message.ack_id, comes_at)
        return actions

    def parked_among(self, messages: Iterable[Message]) -> set[Message]:
        """Return the messages that are held behind a failed message of their key."""
        with self._lock:
            return {
                message
                for message in messages
                if (failed := self._failed.get(message.ordering_key)) and failed.is_parked(message)
            }

    def waits_over(self, now: float) -> Actions:
        """Return messages of keys whose failed message was not redelivered in time."""
        actions = Actions()
        with self._lock:
            while (first := self._dues.first) is not None and first[0] <= now:
                with self._changing(first[1], actions) as failed:
                    failed.wait_is_over(actions)
        return actions

    def next_due(self) -> float | None:
        """Return when to call `waits_over`; None if no key waits."""
        with self._lock:
            first = self._dues.first
            return None if first is None else first[0]

    def give_up(self) -> Actions:
        """Stop holding messages. The actions return all held messages."""
        actions = Actions()
        with self._lock:
            self._closed = True
            for queue in self._held.values():
                actions.to_return += queue or ()
            for failed in self._failed.values():
                actions.to_return += failed.held
            self._count_parked(-self._parked, -self._parked_bytes, actions)
            self._held.clear()
            self._failed.clear()
            self._parking.clear()
            self._idle.clear()
            self._nacks.clear()
            self._dues.clear()
        return actions

    # ---- keys that failed ----------------------------------------------------------------------

    @contextmanager
    def _changing(self, key: str, actions: Actions) -> Iterator[FailedKey]:
        """Change the state of a failed key, and add the resulting actions."""
        failed = self._failed[key] if key in self._failed else self._new_failed(key, actions)
        due, parked, parked_bytes = failed.due, failed.parked, failed.parked_bytes
        yield failed
        following = failed.next()
        if following is not None:
            actions.run.append(following)
        if failed.due != due:
            if due is not None:
                self._dues.discard((due, key))
            if failed.due is not None:
                self._dues.add((failed.due, key))
                actions.due = min(failed.due, actions.due or failed.due)
        self._count_parked(failed.parked - parked, failed.parked_bytes - parked_bytes, actions)
        if failed.is_over:
            self._forget(key)
            if failed.is_running:
                self._held[key] = deque(failed.held) or None
            return
        _include(self._parking, (failed.number, key), failed.can_make_room)
        _include(self._idle, (failed.number, key), failed.is_idle)
        if failed.parked > parked:
            self._make_room(actions)

    def _new_failed(self, key: str, actions: Actions) -> FailedKey:
        idle = self._idle.first
        if len(self._failed) >= MAX_FAILED_KEYS and idle is not None:
            self._forget(idle[1])
        self._failures += 1
        failed = FailedKey(
            self._redeliveries,
            MissingMessages(key, self._nacks),
            number=self._failures,
            is_running=key in self._held,
        )
        failed.hold(self._held.pop(key, None) or (), actions)
        self._failed[key] = failed
        return failed

    def _forget(self, key: str) -> None:
        forgotten = self._failed.pop(key)
        forgotten.forget_nacks()
        self._parking.discard((forgotten.number, key))
        self._idle.discard((forgotten.number, key))
        if forgotten.due is not None:
            self._dues.discard((forgotten.due, key))

    def _make_room(self, actions: Actions) -> None:
        """Return the messages of the keys that failed first, while too many are parked."""
        while (
            self._parked > self._limits.max_messages or self._parked_bytes > self._limits.max_bytes
        ) and (first := self._parking.first) is not None:
            with self._changing(first[1], actions) as failed:
                failed.return_all(actions)

    def _count_parked(self, messages: int, size: int, actions: Actions) -> None:
        self._parked += messages
        self._parked_bytes += size
        actions.parked += messages
        actions.parked_bytes += size


def _include(keys: SortedKeys[tuple[int, str]], key: tuple[int, str], is_included: bool) -> None:
    if is_included:
        keys.add(key)
    else:
        keys.discard(key)
