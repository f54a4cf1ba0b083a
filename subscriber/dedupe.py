"""Dedupe: calls back once for a key within a window, although Pub/Sub delivers at least once."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, TypeVar, cast

from protocol.clock import SYSTEM_CLOCK, Clock

from .arguments import count, number
from .message import Message, Verdict
from .streaming.callbacks import is_coroutine_function

KeyFunction = Callable[[Message], "Hashable | None"]
Handler = TypeVar("Handler", bound=Callable[[Message], Any])

# A delivery that is held back comes again after as many seconds as the first has run, within these
# bounds: each return counts towards a dead letter, so there must not be many.
_SHORTEST_RETURN = 10
_LONGEST_RETURN = 600


class _Fate(Enum):
    """What becomes of a delivery."""

    HANDLE = "handle"
    ACK = "ack"
    HOLD_BACK = "hold back"


class _First:
    """The delivery of a key that was handed to the callback."""

    __slots__ = ("begun", "message", "running")

    def __init__(self, message: Message, begun: float) -> None:
        self.message = message
        self.begun = begun
        self.running = True

    @property
    def is_done(self) -> bool:
        return self.message.settled is Verdict.ACK

    @property
    def has_failed(self) -> bool:
        return not self.running and self.message.settled in (Verdict.NACK, Verdict.DROP)


class Dedupe:
    """Keeps a callback from doing a thing twice: `client.subscribe(name, dedupe(callback))`.

    A key is *in progress* while its callback runs, and after that until its message is settled. It
    is *done* when the message was acked, and forgotten when it was not: nacked, dropped or given
    up, or the callback raised. Another delivery of the same key, be it a redelivery or a second
    message, is

    - acked without calling the callback, if the key is done;
    - held back, if the key is in progress: nacked with a delay of 10 s, or of as long as the first
      has been running, up to 600 s. Acked, it would be lost if the first failed; nacked without a
      delay, it would come back at once, again and again; waited for, it would block a worker. On a
      subscription with a dead-letter policy each return counts as an attempt.

    What it does not do: it knows nothing of other processes, and forgets all at a restart. It
    lowers the number of duplicates there, and exactly-once delivery or a store of your own must do
    the rest. A callback that is killed, or fails, halfway is called again.

    Message ids are unique within a topic, so by message id use one Dedupe for each topic.
    Thread-safe.

    Args:
        by: what makes two deliveries the same. None: the message id. A str: the attribute of this
            name; a message in which it is missing or empty goes by its message id, as two such
            messages have nothing in common. A function: what it returns for the message, which must
            be hashable; None means the message id. If it raises, the message is nacked.
        max_keys: done keys to remember; beyond it the oldest are forgotten.
        seconds: how long a key is remembered after it was done. As long as duplicates may be apart.
        clock: what to take for time.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind, or out of its range.
    """

    def __init__(
        self,
        by: str | KeyFunction | None = None,
        *,
        max_keys: int = 100_000,
        seconds: float = 600.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not (by is None or isinstance(by, str) or callable(by)):
            raise TypeError(f"by is {by!r}; it must be an attribute's name, a function or None")
        if by == "":
            raise ValueError("by is empty; it must be an attribute's name, a function or None")
        if number("seconds", seconds) <= 0:
            raise ValueError(f"seconds is {seconds}; it must be above 0")
        self._by = by
        self._max_keys = count("max_keys", max_keys)
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._in_progress: OrderedDict[Hashable, _First] = OrderedDict()
        # Each key with the moment at which it is forgotten, the nearest first.
        self._done: OrderedDict[Hashable, float] = OrderedDict()
        self._duplicates = 0
        self._held_back = 0

    @property
    def duplicates(self) -> int:
        """Deliveries acked without a call, because their key was done."""
        return self._duplicates

    @property
    def held_back(self) -> int:
        """Deliveries put off because their key was in progress; one may be counted many times."""
        return self._held_back

    def __call__(self, callback: Handler) -> Handler:
        """`callback`, a function or an `async def` one of a single message, called once a key."""
        if is_coroutine_function(callback):

            @functools.wraps(callback)
            async def once_async(message: Message) -> Any:
                key = self._key(message)
                if not self._admit(key, message):
                    return None
                try:
                    result = await callback(message)
                except BaseException:
                    self._ended(key, raised=True)
                    raise
                self._ended(key)
                return result

            return cast(Handler, once_async)

        @functools.wraps(callback)
        def once(message: Message) -> Any:
            key = self._key(message)
            if not self._admit(key, message):
                return None
            try:
                result = callback(message)
            except BaseException:
                self._ended(key, raised=True)
                raise
            self._ended(key)
            return result

        return cast(Handler, once)

    def _key(self, message: Message) -> Hashable:
        by = self._by
        if isinstance(by, str):
            chosen: Hashable = message.attributes.get(by) or None
        else:
            chosen = None if by is None else by(message)
        # Kept apart: an attribute's value may look like a message id.
        return ("id", message.message_id) if chosen is None else ("key", chosen)

    def _admit(self, key: Hashable, message: Message) -> bool:
        """Whether to call the callback, which is then to be followed by `_ended`."""
        now = self._clock.monotonic()
        delay = _SHORTEST_RETURN
        with self._lock:
            self._forget_the_old(now)
            self._look_back(now)
            fate = self._fate(key)
            if fate is _Fate.HANDLE:
                self._in_progress[key] = _First(message, now)
            elif fate is _Fate.ACK:
                self._duplicates += 1
            else:
                self._held_back += 1
                running = int(now - self._in_progress[key].begun)
                delay = min(max(running, _SHORTEST_RETURN), _LONGEST_RETURN)
        if fate is _Fate.ACK:
            message.ack()
        elif fate is _Fate.HOLD_BACK:
            message.nack(delay)
        return fate is _Fate.HANDLE

    def _fate(self, key: Hashable) -> _Fate:
        if key in self._done:
            return _Fate.ACK
        first = self._in_progress.get(key)
        if first is None or first.has_failed:
            return _Fate.HANDLE
        # Acked early, by a callback that has more to do: the message will not come again.
        return _Fate.ACK if first.is_done else _Fate.HOLD_BACK

    def _ended(self, key: Hashable, *, raised: bool = False) -> None:
        """The callback is over."""
        with self._lock:
            first = self._in_progress[key]
            first.running = False
            if raised and not first.is_done:
                # Not settled yet, perhaps: the subscription nacks it when it sees the error.
                del self._in_progress[key]
            else:
                self._conclude(key, first, self._clock.monotonic())

    def _conclude(self, key: Hashable, first: _First, now: float) -> bool:
        """Move a key on whose message is settled and whose callback has ended; whether it was."""
        if first.running or first.message.settled is None:
            return False
        del self._in_progress[key]
        if first.is_done:
            self._done[key] = now + self._seconds
            if len(self._done) > self._max_keys:
                self._done.popitem(last=False)
        return True

    def _look_back(self, now: float) -> None:
        """See whether the two oldest in progress were settled after their callbacks returned.

        Two for each new one: so keys of messages that are settled elsewhere do not gather.
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
