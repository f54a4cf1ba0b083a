"""Ordering keys: one running message a key, the others held back in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from subscriber.message import Message

# Suspicions that are kept at a time, of the keys that failed last. One ends when its key comes
# back, so those beyond this number belong to keys that went to another subscriber.
MAX_SUSPICIONS = 10_000


@dataclass
class Offered:
    """What becomes of newly received messages: run these now, nack those."""

    run: list[Message] = field(default_factory=list)
    refuse: list[Message] = field(default_factory=list)


_Place = tuple[int, int, int, str]


def _place(message: Message) -> _Place:
    """Where a message stands among those of its key, whichever copy of it this is.

    In the order of publishing; the ids of messages that were published together are numbers that
    count up. To tell by the order of receipt will not do: after a reconnect there may be copies of
    one message before and behind another.
    """
    seconds, nanos = message.published
    return seconds, nanos, len(message.message_id), message.message_id


class _Suspicion:
    """After a failure in a key: with which message may it begin again?

    With the earliest that failed; or, as that may have been handled elsewhere, with one that was
    refused and comes a second time, since the server has then begun again. But not if an earlier
    one came meanwhile, and was refused: then the server is about to begin again with that.
    """

    __slots__ = ("_failed", "_places", "_refused")

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        # The earliest that failed.
        self._failed = ""
        # Ids in the order in which they were refused (a dict, to find one in a thousand).
        self._refused: dict[str, None] = {}

    def begin(self, failed: Iterable[Message]) -> None:
        """Messages failed, or are given back with one that did."""
        ids = [self._failed] if self._failed else []
        for message in failed:
            self._places[message.message_id] = _place(message)
            ids.append(message.message_id)
        self._failed = min(ids, key=self._places.__getitem__)

    def precedes(self, message: Message) -> bool:
        """Whether a message comes before all that failed, so that it may run in any case."""
        return _place(message) < self._places[self._failed]

    def refuses(self, message: Message) -> bool:
        message_id = message.message_id
        place = self._places[message_id] = _place(message)
        if message_id == self._failed:
            return False
        if message_id in self._refused:
            refused = list(self._refused)
            since = refused[refused.index(message_id) + 1 :]
            earlier = [other for other in since if self._places[other] < place]
            if not earlier:
                return False
            self._refused = dict.fromkeys(earlier)
        self._refused[message_id] = None
        return True


class MessagesOnHold:
    """Holds back the messages of a key while an earlier one of it is running.

    Owns the queues of the keys, behind one lock. The consumer's thread offers (once per response),
    the workers' report each ordered callback that ends, the dispatcher's what was nacked after
    that, the leaser's what lost its lease, the shutdown takes everything. How much can be held is
    bounded by flow control, which counts held messages like any others.

    Guarantees, for each key: callbacks begin in the order of delivery and never two at once; when
    a message fails, everything held behind it is given back, so that the server delivers all of it
    again in order, and nothing of the key begins before that redelivery does. The last part needs
    care:

        1. the server sends m1 m2 m3; m1 fails; m1 m2 m3 are nacked;
        2. before the nacks arrive the server sends m4, which now comes in: m1..m3 are gone from
           here, so m4 would run next, ahead of the redelivery of m1.

    So after a failure what comes in is refused until the key is delivered again; see _Suspicion for
    how to tell. There is no time limit, because what is in flight waits for as long as the stream
    is paused. That a message was held before says nothing: after a reconnect a second copy of it
    may be in flight, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A key is here while one of its messages runs; the deque (None: nothing yet) holds those
        # behind it.
        self._held: dict[str, deque[Message] | None] = {}
        self._suspicions: dict[str, _Suspicion] = {}
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return sum(len(held) for held in self._held.values() if held)

    def offer(self, messages: Iterable[Message]) -> Offered:
        """Sort received messages, in order, into those that may run and those to nack.

        The others are held. Messages without an ordering key may always run.
        """
        offered = Offered()
        run, held_by_key = offered.run, self._held
        with self._lock:
            if self._closed:
                offered.refuse += messages
                return offered
            for message in messages:
                key = message.ordering_key
                if not key:
                    run.append(message)
                elif self._suspicions and self._refuses(message):
                    offered.refuse.append(message)
                elif key not in held_by_key:
                    held_by_key[key] = None
                    run.append(message)
                elif (held := held_by_key[key]) is not None:
                    held.append(message)
                else:
                    held_by_key[key] = deque((message,))
        return offered

    def ended(self, message: Message) -> Message | None:
        """The turn of an ordered message is over; returns the next of its key to run."""
        key = message.ordering_key
        with self._lock:
            held = self._held.get(key)
            if held:
                return held.popleft()
            self._held.pop(key, None)
            return None

    def waiting_behind(self, message: Message) -> int:
        """How many messages are held behind one whose turn it is."""
        with self._lock:
            return len(self._held.get(message.ordering_key) or ())

    def take_behind(self, message: Message, limit: int) -> list[Message]:
        """Up to `limit` messages held behind one whose turn it is, to share that turn."""
        with self._lock:
            held = self._held.get(message.ordering_key) or deque()
            return [held.popleft() for _ in range(min(limit, len(held)))]

    def failed(self, message: Message) -> list[Message]:
        """An ordered message will be delivered again; returns those behind it, to be nacked.

        It may be told again, by another thread; then there is nothing more to do. The turn of the
        message is not over by this; `ended` tells.
        """
        with self._lock:
            if message.purged:
                return []
            message.purged = True
            behind = self._held.get(message.ordering_key) or deque()
            given_back = list(behind)
            behind.clear()
            self._suspect_after([message, *given_back])
            return given_back

    def lost(self, messages: Iterable[Message]) -> list[Message]:
        """The leases of some messages are over; returns what is held no longer, to be nacked.

        Those are the lost messages that were held, and all that were held behind them. One that
        runs is left alone: `failed` and `ended` tell its end as ever.
        """
        gone = set(messages)
        given_back: list[Message] = []
        with self._lock:
            for key in {message.ordering_key for message in gone}:
                held = self._held.get(key) or deque()
                first = next((i for i, message in enumerate(held) if message in gone), None)
                if first is not None:
                    tail = [held.pop() for _ in range(len(held) - first)][::-1]
                    self._suspect_after(tail)
                    given_back += tail
        return given_back

    def missed(self, messages: Iterable[Message]) -> None:
        """Messages were delivered and are not ours: the later ones of their keys have to wait."""
        with self._lock:
            for message in messages:
                if message.ordering_key:
                    message.purged = True
                    self._suspect_after([message])

    def give_up(self) -> list[Message]:
        """Hold nothing any more; returns everything that was held."""
        with self._lock:
            self._closed = True
            held = [message for queue in self._held.values() if queue for message in queue]
            self._held.clear()
            return held

    def _suspect_after(self, failed: list[Message]) -> None:
        key = failed[0].ordering_key
        # Taken out and put in again: the oldest stands first.
        suspicion = self._suspicions.pop(key, None) or _Suspicion()
        suspicion.begin(failed)
        self._suspicions[key] = suspicion
        if len(self._suspicions) > MAX_SUSPICIONS:
            del self._suspicions[next(iter(self._suspicions))]

    def _refuses(self, message: Message) -> bool:
        suspicion = self._suspicions.get(message.ordering_key)
        if suspicion is None or suspicion.precedes(message):
            return False
        if suspicion.refuses(message):
            return True
        del self._suspicions[message.ordering_key]
        return False
