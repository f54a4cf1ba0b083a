"""The leases of a subscription: the message, the consumer and the deadline of each ack ID."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pullstream_protocol.deadlines import DeadlineTable

from .ack_ids import INVALID, UNORDERED, AckIds
from .delivery_state import Consumer, Delivery, too_early

# The list of a consumer's ack IDs may have this many that are settled.
FEW_HELD = 64


class Leases(DeadlineTable[str, Delivery]):
    """The leases of one subscription, by ack ID.

    Args:
        subscription: The full name of the subscription.
        numbers: The numbers of ack IDs, see AckIds.

    Attributes:
        granted: Number of leases granted since the broker started.
        newest_seq: The highest sequence number among them; 0 before the first lease.
        redelivered: Number of leased messages with an earlier failed delivery.
    """

    __slots__ = ("_ack_ids", "_returned", "granted", "newest_seq", "redelivered")

    def __init__(self, subscription: str, numbers: Iterator[int]) -> None:
        super().__init__()
        self.granted = 0
        self.newest_seq = 0
        self.redelivered = 0
        self._ack_ids = AckIds(subscription, numbers)
        # Messages that are back in a queue and have not been delivered since. A late
        # acknowledgement finds its message here.
        self._returned: dict[str, Delivery] = {}

    def grant(
        self, deliveries: Sequence[Delivery], consumer: Consumer, now: float
    ) -> list[tuple[str, Delivery]]:
        """Lease messages to a consumer, each with a new ack ID.

        Args:
            deliveries: The messages.
            consumer: The consumer that gets them.
            now: The present time, on the monotonic clock.

        Returns:
            Pairs of ack ID and delivery.
        """
        granted: list[tuple[str, Delivery]] = []
        numbers, mark, size = self._ack_ids.numbers, self._ack_ids.mark, 0
        newest = self.newest_seq
        for number, delivery in enumerate(deliveries, self.granted + 1):
            if delivery.ack_id:
                self._returned.pop(delivery.ack_id, None)
            delivery.ack_id = ack_id = f"{next(numbers):x}{mark}"
            delivery.holder = consumer
            delivery.number = number
            if delivery.attempts:
                self.redelivered += 1
            record = delivery.record
            size += record.size
            if record.seq > newest:
                newest = record.seq
            granted.append((ack_id, delivery))
        self.granted += len(granted)
        self.newest_seq = newest
        held = consumer.held
        if len(held) > 2 * consumer.outstanding_messages + FEW_HELD:
            consumer.held = held = [ack_id for ack_id in held if ack_id in self._where]
        held += [ack_id for ack_id, _ in granted]
        consumer.outstanding_messages += len(granted)
        consumer.outstanding_bytes += size
        self.set_all(granted, consumer.ack_deadline, now)
        return granted

    @property
    def oldest_number(self) -> int:
        """The lowest number of a lease; the next number if there is no lease."""
        oldest = self.first()
        return self.granted + 1 if oldest is None else oldest.number

    def release_holder(self, delivery: Delivery) -> Consumer | None:
        """Give the holder of an ended lease its room back. Return the holder."""
        holder = delivery.holder
        if holder is not None:
            if delivery.attempts:
                self.redelivered -= 1
            delivery.holder = None
            holder.outstanding_messages -= 1
            holder.outstanding_bytes -= delivery.record.size
            if not holder.outstanding_messages:
                holder.held.clear()
            if holder.asleep:
                holder.changed[holder] = None
        return holder

    def end_leases(self, deliveries: Iterable[Delivery]) -> None:
        """End all leases of these messages. Their ack IDs are stale from now on."""
        for delivery in deliveries:
            self.pop(delivery.ack_id)
            self._returned.pop(delivery.ack_id, None)
            self.release_holder(delivery)

    def take_apart(self) -> Sequence[dict[Any, Any]]:
        """End all leases. The caller gives the consumers their room back.

        Returns:
            The former containers of the leases. To free them takes time for each lease.
        """
        queues = [queue.items for queue in self._queues.values()]
        remains: list[dict[Any, Any]] = [self._where, *queues, self._returned]
        self._where, self._queues, self._returned = {}, {}, {}
        self.redelivered = 0
        return remains

    def held_by(self, consumer: Consumer) -> list[Delivery]:
        """Return the messages that a consumer holds, in the order of publishing."""
        leased = (self.get(ack_id) for ack_id in consumer.held)
        held = [delivery for delivery in leased if delivery is not None]
        return sorted(held, key=lambda delivery: delivery.record.seq)

    # ---- ack IDs -------------------------------------------------------------------------------

    def check_ack_ids(self, ack_ids: Iterable[str]) -> None:
        """Raise InvalidArgument if an ack ID cannot be from this subscription."""
        leased = self._where
        for ack_id in ack_ids:
            if ack_id not in leased:
                self._ack_ids.check(ack_id)

    def refusals(self, ack_ids: Iterable[str], *, in_order: bool) -> dict[str, str]:
        """Return the failure codes of the ack IDs without a lease.

        With `in_order`, also refuse ack IDs of messages that have an unfinished message of their
        key before them.
        """
        leased = {ack_id: self.get(ack_id) for ack_id in ack_ids}
        refused = {ack_id: INVALID for ack_id, delivery in leased.items() if delivery is None}
        if in_order:
            keyed = {d for d in leased.values() if d is not None and d.key_queue is not None}
            refused |= {delivery.ack_id: UNORDERED for delivery in too_early(keyed)}
        return refused

    def mark_returned(self, delivery: Delivery) -> None:
        """Record that a lease has ended and that its message waits in a queue again."""
        self._returned[delivery.ack_id] = delivery

    def forget_returned(self, deliveries: Iterable[Delivery]) -> None:
        """Forget the ended leases of these messages, which wait no longer."""
        for delivery in deliveries:
            self._returned.pop(delivery.ack_id, None)

    def pop_returned(self, ack_id: str) -> Delivery | None:
        """Return the message of an ended lease if it waits for redelivery, and forget the lease."""
        return self._returned.pop(ack_id, None)
