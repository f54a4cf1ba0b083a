"""What waits in one subscription, and who gets what of it next.

Three kinds of queues are served in turn: new messages, messages to deliver again, and a consumer's
own keys. So a poison message starves nobody, and nobody starves a redelivery.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from .backoff import Backoff
from .consumer import Consumer
from .ordering import KeyLane, LaneQueue
from .record import Delivery, Record

# Most bytes of messages in one response. Official clients keep grpc's default limit of 4 MiB when
# they talk to an emulator; ack ids and framing need the rest.
MAX_RESPONSE_BYTES = 3_500_000

Item: TypeAlias = Delivery | KeyLane
Queue: TypeAlias = deque[Item] | LaneQueue


class Backlog:
    """The queues of one subscription: single messages, and keys with something to deliver.

    lanes: every key with an unfinished message, also those that stand in no queue.
    """

    def __init__(self) -> None:
        self.lanes: dict[str, KeyLane] = {}
        self._ready: deque[Item] = deque()
        self._again: deque[Item] = deque()
        self._backoff = Backoff()
        self._turn = 0

    # ---- in ------------------------------------------------------------------------------------

    def add(self, records: Iterable[Record], *, ordered: bool) -> None:
        """New messages, in the order of publishing."""
        if not ordered:
            self._ready.extend([Delivery(record, None) for record in records])
            return
        for record in records:
            if record.ordering_key:
                lane = self.lane(record.ordering_key)
                lane.waiting.append(Delivery(record, lane))
                self._queue(lane, self._ready)
            else:
                self._ready.append(Delivery(record, None))

    def lane(self, key: str) -> KeyLane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = KeyLane(key)
        return lane

    def put_back(self, delivery: Delivery, due: float, now: float) -> None:
        """A message without a key, to be delivered again at `due`."""
        if due > now:
            self._backoff.add(delivery, due)
        else:
            self._again.append(delivery)

    def settled(self, lane: KeyLane, holder: Consumer | None, *, failed: bool, now: float) -> None:
        """A lease of a key, held by `holder`, has ended: put the lane where it belongs."""
        if lane.finished:
            del self.lanes[lane.key]
            return
        if lane.queued and holder is not None and not (lane.deliverable and lane.holder is holder):
            # It stood among its holder's own keys, and is no longer the holder's to take from.
            holder.lanes.remove(lane)
            lane.queued = False
        if lane.holder is None and lane.deliverable and lane.resume_at > now:
            lane.delayed = True
            self._backoff.add(lane, lane.resume_at)
        else:
            self._queue(lane, self._again if failed else self._ready)

    def _queue(self, lane: KeyLane, queue: deque[Item]) -> None:
        """Make sure that a lane with something to deliver stands in exactly one queue."""
        if lane.queued or not lane.deliverable:
            return
        lane.queued = True
        (queue if lane.holder is None else lane.holder.lanes).append(lane)

    def advance(self, now: float) -> None:
        """What has waited long enough may be delivered again."""
        for item in self._backoff.pop_due(now):
            if isinstance(item, KeyLane):
                item.delayed = False
                self._queue(item, self._again)
            else:
                self._again.append(item)

    def next_due(self) -> float | None:
        return self._backoff.next_due()

    # ---- out -----------------------------------------------------------------------------------

    @property
    def shared(self) -> int:
        """Messages and keys that any consumer may take."""
        return len(self._ready) + len(self._again)

    def take(self, consumer: Consumer, limit: int, share: int) -> list[Delivery]:
        """The next messages for one consumer, as far as it has room, at most `limit`.

        `share` is its part of the shared queues. Keys of its own do not count towards it.
        """
        limit, most_bytes = min(limit, consumer.room), consumer.room_bytes
        if not self._again and not self.lanes:
            return self._take_new(min(limit, share), most_bytes)
        taken: list[Delivery] = []
        size = 0
        while len(taken) < limit and size < most_bytes:
            queue = self._next_queue(consumer)
            if queue is None:
                break
            shared = queue is not consumer.lanes
            if shared and share <= 0:
                # The others' part; only the consumer's own keys are left to take from.
                if not consumer.lanes:
                    break
                continue
            head = queue[0]
            if isinstance(head, KeyLane):
                delivery = head.waiting[0]
            elif head.acked:
                # Acknowledged late, while it lay here to be delivered again.
                queue.popleft()
                continue
            else:
                delivery = head
            if taken and size + delivery.record.size > MAX_RESPONSE_BYTES:
                break
            queue.popleft()
            if isinstance(head, KeyLane):
                _take_from(head, consumer)
            size += delivery.record.size
            share -= shared
            taken.append(delivery)
        return taken

    def _take_new(self, limit: int, most_bytes: float) -> list[Delivery]:
        """As `take`, where nothing is to come again and nothing has a key: mostly so, and fast."""
        taken: list[Delivery] = []
        size, ready = 0, self._ready
        for _ in range(min(limit, len(ready))):
            delivery = ready[0]
            assert isinstance(delivery, Delivery)
            grown = size + delivery.record.size
            if size >= most_bytes or (taken and grown > MAX_RESPONSE_BYTES):
                break
            size = grown
            taken.append(delivery)
            ready.popleft()
        return taken

    def _next_queue(self, consumer: Consumer) -> Queue | None:
        """The next queue with something in it; None if there is nothing for `consumer`.

        They are served in turn, also from one take to the next: many a take is of one message only.
        """
        queues = (consumer.lanes, self._again, self._ready)
        if self._ready and not self._again and not consumer.lanes:
            # All messages have keys, and nobody holds one.
            self._turn = len(queues) - 1
            return self._ready
        for _ in queues:
            self._turn = (self._turn + 1) % len(queues)
            if queues[self._turn]:
                return queues[self._turn]
        return None

    # ---- all of it -----------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Messages without a key that wait, and all those of keys, leased ones too."""
        if not self.lanes:
            # What is new is not acknowledged: only what comes again has to be looked at.
            return len(self._ready) + len(self._waiting_again())
        single = sum(1 for _ in self.waiting())
        return single + sum(lane.size for lane in self.lanes.values())

    def waiting(self) -> Iterator[Delivery]:
        """Every message without a key that waits."""
        return (i for i in self._items() if isinstance(i, Delivery) and not i.acked)

    def _items(self) -> Iterator[Item]:
        return chain(self._ready, self._again, self._backoff.items())

    def _unqueue(self, gone: set[Item]) -> None:
        if not gone:
            return
        for item in gone:
            if isinstance(item, KeyLane):
                if item.queued and item.holder is not None:
                    item.holder.lanes.remove(item)
                item.queued = item.delayed = False
        self._ready = deque(i for i in self._ready if i not in gone)
        self._again = deque(i for i in self._again if i not in gone)
        self._backoff.remove(gone)

    def fill(self, deliveries: Iterable[Delivery]) -> None:
        """Let these wait, in the order of publishing; there is nothing yet, nor are their lanes."""
        for delivery in sorted(deliveries, key=lambda delivery: delivery.record.seq):
            if delivery.lane is None:
                self._ready.append(delivery)
            else:
                delivery.lane.waiting.append(delivery)
                self.lanes[delivery.lane.key] = delivery.lane
                self._queue(delivery.lane, self._ready)

    def drop_older(self, than_ms: float) -> list[Delivery]:
        """Take out everything that waits and was published at this time or before."""
        gone: set[Item] = set()
        dropped: list[Delivery] = []
        if not self.lanes:
            # In the order of publishing: the old ones are at the head, or in the other queues.
            while (first := self._first_ready()) and first.record.publish_ms <= than_ms:
                self._ready.popleft()
                dropped.append(first)
        for delivery in list(self.waiting()) if self.lanes else self._waiting_again():
            if delivery.record.publish_ms <= than_ms:
                gone.add(delivery)
                dropped.append(delivery)
        for lane in self.lanes.values():
            while lane.waiting and lane.waiting[0].record.publish_ms <= than_ms:
                dropped.append(lane.waiting.popleft())
            if not lane.waiting:
                gone.add(lane)
        self._unqueue(gone)
        self.lanes = {key: lane for key, lane in self.lanes.items() if not lane.finished}
        return dropped

    def _first_ready(self) -> Delivery | None:
        return next((i for i in self._ready if isinstance(i, Delivery)), None)

    def _waiting_again(self) -> list[Delivery]:
        again = (*self._again, *self._backoff.items())
        return [i for i in again if isinstance(i, Delivery) and not i.acked]

    def oldest_ms(self) -> float:
        """Publish time of the oldest that waits, or is unfinished in a key; infinite for none."""
        return min((delivery.record.publish_ms for delivery in self._oldest()), default=math.inf)

    def oldest_seqs(self) -> Iterator[int]:
        """Sequence numbers, the lowest of which is that of the oldest; see `oldest_ms`."""
        return (delivery.record.seq for delivery in self._oldest())

    def _oldest(self) -> Iterator[Delivery]:
        """Among these is the oldest that waits, or is unfinished in a key."""
        first = self._first_ready()
        keyed = ((lane.delivered or lane.waiting)[0] for lane in self.lanes.values())
        return chain([first] if first else [], self._waiting_again(), keyed)


def _take_from(lane: KeyLane, consumer: Consumer) -> None:
    lane.queued = False
    lane.take(consumer)
    # More of this key: it is the consumer's own from now on.
    if lane.deliverable:
        lane.queued = True
        consumer.lanes.append(lane)
