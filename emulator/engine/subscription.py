"""One subscription: its backlog, its leases, and who gets what.

A message moves  ready -> leased -> gone  by an acknowledgement, or back to ready by a nack, by the
end of its lease, or because its consumer went away. docs/architecture.md draws it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from protocol import errors
from protocol.deadlines import DeadlineTable
from protocol.messages import pubsub_pb2 as pubsub

from .consumer import Consumer
from .ordering import KeyLane, LaneQueue
from .record import Delivery, Record

# Most messages in one response, as the real service has it.
MAX_PER_RESPONSE = 1000

# Most bytes of messages in one response. Official clients keep grpc's default limit of 4 MiB when
# they talk to an emulator; ack ids and framing need the rest.
MAX_RESPONSE_BYTES = 3_500_000

# Pull calls that may wait on one subscription at a time.
MAX_WAITING = 512

# Hexadecimal digits of the number in an ack id.
MAX_NUMBER_LENGTH = 16

_HEX_DIGITS = frozenset("0123456789abcdef")

Queue: TypeAlias = deque[Delivery | KeyLane] | LaneQueue


class Subscription:
    """Backlog and leases of one subscription. Not thread-safe: it belongs to the engine's owner.

    Guarantees: a message is under at most one lease at a time; a message leaves only by an
    acknowledgement of its newest lease; messages of one ordering key are never delivered out of
    order (see KeyLane); a waiting consumer with room is woken when something becomes ready.
    """

    def __init__(self, config: pubsub.Subscription, numbers: Iterator[int] | None = None) -> None:
        self.config = config
        self._numbers = numbers or itertools.count(1)
        # Ack ids end in a mark of the subscription, so that one can tell its own stale ids
        # (harmless) from another subscription's (an error).
        self._mark = "-" + hashlib.blake2s(config.name.encode(), digest_size=6).hexdigest()
        self._ready: deque[Delivery | KeyLane] = deque()
        # Messages to deliver again stand in a queue of their own, which is served in turn with the
        # backlog: a poison message starves nobody, and nobody starves a redelivery.
        self._again: deque[Delivery | KeyLane] = deque()
        self._lanes: dict[str, KeyLane] = {}
        self._leases: DeadlineTable[str, Delivery] = DeadlineTable()
        # Back in a queue, not delivered since: a late acknowledgement still finds them here.
        self._returned: dict[str, Delivery] = {}
        self._consumers: list[Consumer] = []
        # Consumers whose last take came back empty, the longest waiting first. One that was woken
        # stays until it takes something, so that it keeps its place and its part.
        self._hungry: list[Consumer] = []
        self._turn = 0
        # The engine's note: the due moment that it has announced for this subscription.
        self.announced_due: float | None = None

    # ---- messages in ---------------------------------------------------------------------------

    def offer(self, records: Iterable[Record]) -> None:
        """Add newly published records to the backlog."""
        ordered = self.config.enable_message_ordering
        for record in records:
            if ordered and record.ordering_key:
                lane = self._lanes.get(record.ordering_key)
                if lane is None:
                    lane = self._lanes[record.ordering_key] = KeyLane()
                lane.waiting.append(Delivery(record, lane))
                self._queue_lane(lane, self._ready)
            else:
                self._ready.append(Delivery(record, None))
        self._wake_next()

    def _queue_lane(self, lane: KeyLane, queue: deque[Delivery | KeyLane]) -> None:
        """Make sure that a lane with something to deliver stands in exactly one queue."""
        if lane.queued or not lane.deliverable:
            return
        lane.queued = True
        (queue if lane.holder is None else lane.holder.lanes).append(lane)

    # ---- messages out --------------------------------------------------------------------------

    def take(
        self, consumer: Consumer, now: float, limit: int = MAX_PER_RESPONSE
    ) -> list[tuple[str, Delivery]]:
        """Lease up to `limit` messages to `consumer`; pairs of ack id and delivery.

        An empty list means that there is nothing for it (or it has no room): it will be woken.
        Several hungry consumers share what is there in equal parts.
        """
        taken: list[tuple[str, Delivery]] = []
        consumer.asleep = False
        hungry = 1 + sum(other.has_room for other in self._hungry if other is not consumer)
        ready = len(self._ready) + len(self._again)
        from_shared = -(-ready // hungry)
        size = 0
        while len(taken) < limit and consumer.has_room:
            queue = self._next_queue(consumer)
            if queue is None:
                break
            shared = queue is not consumer.lanes
            if shared and from_shared <= 0:
                # The others' part; only the consumer's own keys are left to take from.
                if not consumer.lanes:
                    break
                continue
            delivery = self._peek(queue)
            if delivery is None:
                continue
            if taken and size + delivery.record.size > MAX_RESPONSE_BYTES:
                break
            self._remove_peeked(queue, consumer)
            size += delivery.record.size
            from_shared -= shared
            taken.append((self._lease(delivery, consumer, now), delivery))
        waited = consumer in self._hungry
        if taken and waited:
            self._hungry.remove(consumer)
        if not taken:
            consumer.asleep = True
            if not waited:
                self._hungry.append(consumer)
        # Also when nothing was taken: it may have been woken, alone, for what turned out to be
        # acknowledged already.
        self._wake_next()
        return taken

    def _next_queue(self, consumer: Consumer) -> Queue | None:
        """The next queue with something in it; None if there is nothing for `consumer`.

        They are served in turn, also from one take to the next: many a take is of one message only.
        """
        queues = (consumer.lanes, self._again, self._ready)
        for _ in queues:
            self._turn = (self._turn + 1) % len(queues)
            if queues[self._turn]:
                return queues[self._turn]
        return None

    def _peek(self, queue: Queue) -> Delivery | None:
        """The delivery at the head of `queue`; None if the head had nothing and was removed."""
        head = queue[0]
        if isinstance(head, KeyLane):
            return head.waiting[0]
        if head.acked:
            # Acknowledged late, while it lay here to be delivered again.
            queue.popleft()
            return None
        return head

    def _remove_peeked(self, queue: Queue, consumer: Consumer) -> None:
        head = queue.popleft()
        if isinstance(head, KeyLane):
            head.queued = False
            head.take(consumer)
            # More of this key: it is the consumer's own from now on.
            if head.deliverable:
                head.queued = True
                consumer.lanes.append(head)

    def _lease(self, delivery: Delivery, consumer: Consumer, now: float) -> str:
        if delivery.ack_id:
            self._returned.pop(delivery.ack_id, None)
        ack_id = f"{next(self._numbers):x}{self._mark}"
        delivery.ack_id = ack_id
        delivery.holder = consumer
        consumer.outstanding_messages += 1
        consumer.outstanding_bytes += delivery.record.size
        self._leases.set(ack_id, delivery, consumer.ack_deadline, now)
        return ack_id

    # ---- outcomes ------------------------------------------------------------------------------

    def acknowledge(self, ack_ids: Sequence[str]) -> list[str]:
        """Acknowledge leased messages; returns the ids that are no longer valid.

        Raises:
            InvalidArgument: an id is not one of this subscription's. Then nothing is applied.
        """
        self.check_ack_ids(ack_ids)
        stale: list[str] = []
        # An id named twice in one request is not stale the second time.
        for ack_id in dict.fromkeys(ack_ids):
            delivery = self._leases.pop(ack_id)
            if delivery is not None:
                self._settle(delivery, acked=True)
            elif not self._acknowledge_late(ack_id):
                stale.append(ack_id)
        self._wake_next()
        return stale

    def stale(self, ack_ids: Iterable[str]) -> list[str]:
        """Those of some ack ids that stand for no lease (any more)."""
        return [ack_id for ack_id in ack_ids if ack_id not in self._leases]

    def _acknowledge_late(self, ack_id: str) -> bool:
        """Accept an acknowledgement whose lease ended, if the message was not delivered since.

        It spares a duplicate. Exactly-once promises that such an id is refused, and a key may have
        to be delivered again from an earlier message on, so neither is helped.
        """
        if self.config.enable_exactly_once_delivery:
            return False
        delivery = self._returned.get(ack_id)
        if delivery is None or delivery.lane is not None:
            return False
        del self._returned[ack_id]
        delivery.acked = True
        return True

    def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: int, now: float) -> list[str]:
        """Let leases end `seconds` from now; 0 gives the messages up at once (a nack).

        Returns the ids that are no longer valid; raises as `acknowledge`.
        """
        self.check_ack_ids(ack_ids)
        stale: list[str] = []
        for ack_id in dict.fromkeys(ack_ids):
            delivery = self._leases.get(ack_id)
            if delivery is None:
                stale.append(ack_id)
            elif seconds > 0:
                self._leases.set(ack_id, delivery, seconds, now)
            else:
                self._leases.pop(ack_id)
                delivery.attempts += 1
                self._settle(delivery, acked=False)
        self._wake_next()
        return stale

    def check_ack_ids(self, ack_ids: Iterable[str]) -> None:
        """Raise InvalidArgument if one of them cannot have come from this subscription."""
        for ack_id in ack_ids:
            if ack_id in self._leases:
                continue
            number, _, mark = ack_id.partition("-")
            # Lower-case hex without sign or underscore, as `_lease` writes it.
            well_formed = 0 < len(number) <= MAX_NUMBER_LENGTH and set(number) <= _HEX_DIGITS
            if not well_formed or "-" + mark != self._mark:
                raise errors.InvalidArgument(
                    f"You have passed an invalid ack ID to the service (ack_id={ack_id})."
                )

    def _settle(self, delivery: Delivery, *, acked: bool) -> None:
        """A lease ended: free its consumer's room and, unless acknowledged, queue it again."""
        holder = delivery.holder
        if holder is not None:
            delivery.holder = None
            holder.outstanding_messages -= 1
            holder.outstanding_bytes -= delivery.record.size
        lane = delivery.lane
        if lane is None:
            if not acked:
                self._returned[delivery.ack_id] = delivery
                self._again.append(delivery)
            return
        exactly_once = self.config.enable_exactly_once_delivery
        lane.settle(delivery, acked=acked, exactly_once=exactly_once)
        if lane.finished:
            del self._lanes[delivery.record.ordering_key]
            return
        if lane.queued and holder is not None and not (lane.deliverable and lane.holder is holder):
            # It stood among its holder's own keys, and is no longer the holder's to take from.
            holder.lanes.remove(lane)
            lane.queued = False
        self._queue_lane(lane, self._ready if acked else self._again)

    # ---- time and consumers --------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """End every lease that is due."""
        for _, delivery in self._leases.pop_due(now):
            delivery.attempts += 1
            self._settle(delivery, acked=False)
        self._wake_next()

    def next_due(self) -> float | None:
        return self._leases.next_due()

    def join(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)

    def leave(self, consumer: Consumer, *, give_back: bool = True) -> None:
        """Forget `consumer`; what it holds is ready for others at once, no attempt counted.

        With `give_back=False` (an answered Pull) its leases go on until their deadlines.
        """
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        if consumer in self._hungry:
            self._hungry.remove(consumer)
        consumer.asleep = False
        if give_back and consumer.outstanding_messages:
            held = [d for d in self._leases.values() if d.holder is consumer]
            for delivery in sorted(held, key=lambda d: d.record.seq):
                self._leases.pop(delivery.ack_id)
                self._settle(delivery, acked=False)
        self._wake_next()

    def close(self, reason: errors.RpcError) -> None:
        """Tell every consumer that the subscription is gone."""
        for consumer in self._consumers:
            consumer.closed = reason
            consumer.wake()

    @property
    def waiting_pulls(self) -> int:
        """Pull calls that wait for messages now."""
        return sum(consumer.is_pull for consumer in self._hungry)

    @property
    def backlog(self) -> int:
        """Messages not acknowledged for good: waiting, leased, or behind one of their key."""
        unordered = sum(
            isinstance(item, Delivery) and not item.acked for item in (*self._ready, *self._again)
        )
        leased = sum(1 for d in self._leases.values() if d.lane is None)
        return unordered + leased + sum(lane.size for lane in self._lanes.values())

    def _wake_next(self) -> None:
        """Wake the longest waiting consumer with room, if there is something for it.

        Only one: when it has taken its part and something is left, its take wakes the next.
        """
        if not self._ready and not self._again:
            # Room may have come back for a consumer's own keys.
            for consumer in self._hungry:
                if consumer.lanes:
                    self._wake(consumer)
            return
        for consumer in self._hungry:
            if self._wake(consumer):
                return

    def _wake(self, consumer: Consumer) -> bool:
        """Wake a consumer that sleeps and has room; tells whether it is one."""
        if not consumer.asleep or not consumer.has_room:
            return False
        consumer.asleep = False
        consumer.wake()
        return True
