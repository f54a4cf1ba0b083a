"""Dedupe: calls a callback once for each key, although Pub/Sub may deliver more than once."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar, cast

from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .message import Disposition, Message
from .runtime.callback_kinds import (
    is_coroutine_function,
    refuse_awaitable,
    require_plain,
)
from .runtime.validation import require_number, require_positive

KeyFunction = Callable[[Message], "Hashable | None"]
Handler = TypeVar("Handler", bound=Callable[[Message], Any])

# A delayed delivery returns after the time that the first delivery has been running, in seconds,
# within these bounds. Each return counts towards the dead-letter limit, so there must not be many.
_SHORTEST_RETURN = 10
_LONGEST_RETURN = 600


class _Decision(Enum):
    """The decision about a delivery."""

    HANDLE = "handle"
    ACK = "ack"
    HOLD_BACK = "hold back"


_FAILED = (Disposition.NACK, Disposition.DROP, Disposition.LOST)


class _FirstDelivery:
    """The delivery of a key that the callback handles."""

    __slots__ = ("begun", "message", "running")

    def __init__(self, message: Message, begun: float) -> None:
        self.message = message
        self.begun = begun
        self.running = True

    @property
    def is_done(self) -> bool:
        return self.message.settled is Disposition.ACK

    @property
    def has_failed(self) -> bool:
        return not self.running and self.message.settled in _FAILED


class Dedupe:
    """Prevents a callback from handling the same thing twice.

    Wrap the callback: `client.subscribe(name, dedupe(callback))`.

    A key is *in progress* while its callback runs, and after that until its message is settled. A
    key is *done* when the message was acked. A key is forgotten when its message was nacked,
    dropped or given up, or when the callback raised. Another delivery with the same key (a
    redelivery or a second message) is

    - acked without a call of the callback, if the key is done;
    - delayed, if the key is in progress: it is nacked with a delay of 10 s, or of the time for
      which the first delivery has been running, up to 600 s. If it were acked, it would be lost
      when the first delivery fails. If it were nacked without a delay, it would return at once,
      again and again. If it waited, it would block a worker. On a subscription with a dead-letter
      policy, each return counts as a delivery attempt.

    Limits: a Dedupe does not know about other processes, and a restart clears it. In these cases it
    only lowers the number of duplicates; use exactly-once delivery or your own store for the rest.
    A callback that fails or is killed halfway is called again.

    Message IDs are unique within a topic. With message IDs as keys, use one Dedupe for each topic.
    Thread-safe.
    """

    def __init__(
        self,
        by: str | KeyFunction | None = None,
        *,
        max_keys: int = 100_000,
        seconds: float = 600.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a Dedupe without any keys.

        Args:
            by: The key of a message. None (default): its message ID. A str: the value of the
                attribute with this name. If the attribute is missing or empty, the key is the
                message ID, because two such messages have nothing in common. A function: its result
                for the message, which must be hashable, or None for the message ID. If the function
                raises, the message is nacked.
            max_keys: Number of done keys to remember. Above it, the oldest are forgotten. Default:
                100,000.
            seconds: Seconds for which a done key is remembered. Choose the longest time that may
                pass between duplicates. Default: 600.
            clock: Source of the time.

        Raises:
            TypeError, ValueError: An argument has the wrong type or is out of range.
        """
        if not (by is None or isinstance(by, str) or callable(by)):
            raise TypeError(f"by is {by!r}; it must be an attribute's name, a function or None")
        require_plain("by", by)
        if by == "":
            raise ValueError("by is empty; it must be an attribute's name, a function or None")
        if require_number("seconds", seconds) <= 0:
            raise ValueError(f"seconds is {seconds}; it must be above 0")
        self._by = by
        self._max_keys = require_positive("max_keys", max_keys)
        self._seconds = seconds
        self._clock = clock
        self._lock = CallLock()
        self._in_progress: OrderedDict[Hashable, _FirstDelivery] = OrderedDict()
        # Each key with the time at which it is forgotten, the earliest first.
        self._done: OrderedDict[Hashable, float] = OrderedDict()
        self._duplicates = 0
        self._held_back = 0

    @property
    def duplicates(self) -> int:
        """Number of deliveries that were acked without a call, because their key was done."""
        return self._duplicates

    @property
    def held_back(self) -> int:
        """Number of delays because a key was in progress. One message may count several times."""
        return self._held_back

    def __call__(self, callback: Handler) -> Handler:
        """Return `callback` in a form that handles each key once.

        Args:
            callback: A function or an `async def` that takes one message.
        """
        if is_coroutine_function(callback):

            @functools.wraps(callback)
            async def once_async(message: Message) -> Any:
                key = self._key(message)
                if not self._admit(key, message):
                    return None
                with self._handling(key):
                    return await callback(message)

            return cast(Handler, once_async)

        @functools.wraps(callback)
        def once(message: Message) -> Any:
            key = self._key(message)
            if not self._admit(key, message):
                return None
            with self._handling(key):
                return callback(message)

        return cast(Handler, once)

    def _key(self, message: Message) -> Hashable:
        by = self._by
        if isinstance(by, str):
            chosen: Hashable = message.attributes.get(by) or None
        else:
            chosen = None if by is None else by(message)
            refuse_awaitable(chosen, by)
        # The prefix keeps the two apart, because the value of an attribute may look like a message
        # ID.
        return ("id", message.message_id) if chosen is None else ("key", chosen)

    def _admit(self, key: Hashable, message: Message) -> bool:
        """Decide about a delivery; return whether to call the callback, inside `_handling`."""
        now = self._clock.monotonic()
        delay = _SHORTEST_RETURN
        with self._lock.once:
            self._forget_the_old(now)
            self._check_oldest(now)
            decision = self._decide(key)
            if decision is _Decision.HANDLE:
                self._in_progress[key] = _FirstDelivery(message, now)
            elif decision is _Decision.ACK:
                self._duplicates += 1
            else:
                self._held_back += 1
                running = int(now - self._in_progress[key].begun)
                delay = min(max(running, _SHORTEST_RETURN), _LONGEST_RETURN)
        if decision is _Decision.ACK:
            message.ack()
        elif decision is _Decision.HOLD_BACK:
            message.nack(delay)
        return decision is _Decision.HANDLE

    def _decide(self, key: Hashable) -> _Decision:
        if key in self._done:
            return _Decision.ACK
        first = self._in_progress.get(key)
        if first is None or first.has_failed:
            return _Decision.HANDLE
        # The callback has acked the message and still runs. The message will not be redelivered.
        return _Decision.ACK if first.is_done else _Decision.HOLD_BACK

    @contextmanager
    def _handling(self, key: Hashable) -> Iterator[None]:
        """Record that the callback, the block, has ended, and whether it raised."""
        raised = True
        try:
            yield
            raised = False
        finally:
            self._ended(key, raised=raised)

    def _ended(self, key: Hashable, *, raised: bool) -> None:
        with self._lock.once:
            first = self._in_progress[key]
            first.running = False
            if raised and not first.is_done:
                # The message may not be settled yet: the subscription nacks it when it sees the
                # error.
                del self._in_progress[key]
            else:
                self._conclude(key, first, self._clock.monotonic())

    def _conclude(self, key: Hashable, first: _FirstDelivery, now: float) -> bool:
        """Finish a key whose callback has ended and whose message is settled.

        Returns:
            Whether it was finished.
        """
        if first.running or first.message.settled is None:
            return False
        del self._in_progress[key]
        if first.is_done:
            self._done[key] = now + self._seconds
            if len(self._done) > self._max_keys:
                self._done.popitem(last=False)
        return True

    def _check_oldest(self, now: float) -> None:
        """Check whether the two oldest keys in progress were settled after their callbacks.

        Checking two keys for each new one prevents a growing number of keys whose messages are
        settled elsewhere.
        """
        for _ in range(min(2, len(self._in_progress))):
            key, first = next(iter(self._in_progress.items()))
            if not self._conclude(key, first, now):
                self._in_progress.move_to_end(key)

    def _forget_the_old(self, now: float) -> None:
        while self._done:
            key, forgotten_at = next(iter(self._done.items()))
            if forgotten_at > now:
                return
            del self._done[key]
