"""Ordering keys: one running message a key, the others held back in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from subscriber.message import Message

# How long after a failure a message of its key is suspected of having overtaken it, in seconds.
# What was in flight when the failure was sent arrives well within this.
SUSPICION = 10.0

# Keys with a suspicion are looked through for outdated ones when there are this many.
_MANY_KEYS = 1000


@dataclass
class Offered:
    """What becomes of newly received messages: run these now, nack those."""

    run: list[Message] = field(default_factory=list)
    refuse: list[Message] = field(default_factory=list)


class _Suspicion:
    """After a failure in a key: the ids that were given back with it, and until when to look."""

    __slots__ = ("ids", "until")

    def __init__(self, until: float) -> None:
        self.ids: set[str] = set()
        self.until = until


class MessagesOnHold:
    """Holds back the messages of a key while an earlier one of it is running.

    Owns the queues of the keys, behind one lock. The consumer's thread offers (once per response),
    the workers' report each ordered callback that ends, the shutdown takes everything. How much can
    be held is bounded by flow control, which counts held messages like any others.

    Guarantees, for each key: callbacks begin in the order of delivery and never two at once; when
    one fails, everything held behind it is given back, so that the server delivers all of it again
    in order, and nothing of the key runs before that redelivery begins. The last part needs care:

        1. the server sends m1 m2 m3; m1 fails; m1 m2 m3 are nacked;
        2. before the nacks arrive, the server sends m4, which now comes in: m1..m3 are gone from
        here,
           so m4 would run next, ahead of the redelivery of m1.

    So after a failure a message is refused if it was not among those given back; being refused puts
    it among them, and the server starts the key again at its earliest unfinished message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A key is here while one of its messages runs; the deque holds those behind it.
        self._held: dict[str, deque[Message]] = {}
        self._suspicions: dict[str, _Suspicion] = {}
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return sum(len(held) for held in self._held.values())

    def offer(self, messages: Iterable[Message], now: float) -> Offered:
        """Sort received messages, in order, into those that may run and those to nack.

        The others are held. Messages without an ordering key may always run.
        """
        offered = Offered()
        with self._lock:
            for message in messages:
                key = message.ordering_key
                if self._closed or (key and self._suspect(key, message, now)):
                    offered.refuse.append(message)
                elif not key:
                    offered.run.append(message)
                elif key in self._held:
                    self._held[key].append(message)
                else:
                    self._held[key] = deque()
                    offered.run.append(message)
        return offered

    def finished(self, message: Message) -> Message | None:
        """The callback of an ordered message ended well; returns the next of its key to run."""
        with self._lock:
            held = self._held.get(message.ordering_key)
            if held:
                return held.popleft()
            self._held.pop(message.ordering_key, None)
            return None

    def failed(self, message: Message, now: float) -> list[Message]:
        """An ordered message was nacked or its callback raised; returns those to nack with it."""
        key = message.ordering_key
        with self._lock:
            if self._closed:
                return []
            given_back = list(self._held.pop(key, ()))
            suspicion = self._suspicions[key] = _Suspicion(now + SUSPICION)
            suspicion.ids.update(m.message_id for m in (message, *given_back))
            if len(self._suspicions) > _MANY_KEYS:
                self._suspicions = {k: s for k, s in self._suspicions.items() if s.until > now}
            return given_back

    def give_up(self) -> list[Message]:
        """Hold nothing any more; returns everything that was held."""
        with self._lock:
            self._closed = True
            held = [message for queue in self._held.values() for message in queue]
            self._held.clear()
            return held

    def _suspect(self, key: str, message: Message, now: float) -> bool:
        suspicion = self._suspicions.get(key)
        if suspicion is None:
            return False
        if message.message_id in suspicion.ids or now >= suspicion.until:
            # The key is being delivered again (or the failed message went elsewhere).
            del self._suspicions[key]
            return False
        suspicion.ids.add(message.message_id)
        return True
