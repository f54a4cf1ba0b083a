"""Who holds which message of a subscription until when, and what an ack id stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from protocol.deadlines import DeadlineTable

from .ack_ids import INVALID, UNORDERED, AckIds
from .consumer import Consumer
from .ordering import out_of_order
from .record import Delivery


class Leases(DeadlineTable[str, Delivery]):
    """The leases of one subscription by ack id. `numbers`: see AckIds.

    granted: how many there have been in this life of the broker.
    newest_seq: the highest sequence number of theirs; 0 before the first.
    """

    __slots__ = ("_ack_ids", "_returned", "granted", "newest_seq")

    def __init__(self, subscription: str, numbers: Iterator[int]) -> None:
        super().__init__()
        self.granted = 0
        self.newest_seq = 0
        self._ack_ids = AckIds(subscription, numbers)
        # Back in a queue, not delivered since: a late acknowledgement still finds them here.
        self._returned: dict[str, Delivery] = {}

    def grant(
        self, deliveries: Sequence[Delivery], consumer: Consumer, now: float
    ) -> list[tuple[str, Delivery]]:
        """Give messages to a consumer, each under a new ack id."""
        granted: list[tuple[str, Delivery]] = []
        numbers, mark, size = self._ack_ids.numbers, self._ack_ids.mark, 0
        newest = self.newest_seq
        for number, delivery in enumerate(deliveries, self.granted + 1):
            if delivery.ack_id:
                self._returned.pop(delivery.ack_id, None)
            delivery.ack_id = ack_id = f"{next(numbers):x}{mark}"
            delivery.holder = consumer
            delivery.number = number
            record = delivery.record
            size += record.size
            if record.seq > newest:
                newest = record.seq
            granted.append((ack_id, delivery))
        self.granted += len(granted)
        self.newest_seq = newest
        consumer.outstanding_messages += len(granted)
        consumer.outstanding_bytes += size
        self.set_all(granted, consumer.ack_deadline, now)
        return granted

    @staticmethod
    def free(delivery: Delivery) -> Consumer | None:
        """The lease has ended: its holder has room again. Returns the holder."""
        holder = delivery.holder
        if holder is not None:
            delivery.holder = None
            holder.outstanding_messages -= 1
            holder.outstanding_bytes -= delivery.record.size
        return holder

    def take_away(self, deliveries: Iterable[Delivery]) -> None:
        """End whatever leases these have; their ack ids are stale from now on."""
        for delivery in deliveries:
            self.pop(delivery.ack_id)
            self._returned.pop(delivery.ack_id, None)
            self.free(delivery)

    def held_by(self, consumer: Consumer) -> list[Delivery]:
        """What a consumer holds, in the order of publishing."""
        held = [delivery for delivery in self.values() if delivery.holder is consumer]
        return sorted(held, key=lambda delivery: delivery.record.seq)

    # ---- ack ids -------------------------------------------------------------------------------

    def check(self, ack_ids: Iterable[str]) -> None:
        """Raise InvalidArgument if one of them cannot have come from this subscription."""
        leased = self._where
        for ack_id in ack_ids:
            if ack_id not in leased:
                self._ack_ids.check(ack_id)

    def refusals(self, ack_ids: Iterable[str], *, in_order: bool) -> dict[str, str]:
        """The failure codes of those ids that stand for no lease.

        With `in_order` also of those that have an unfinished message of their key before them. If
        that has failed they will never be good, though their leases have not ended.
        """
        leased = {ack_id: self.get(ack_id) for ack_id in ack_ids}
        refused = {ack_id: INVALID for ack_id, delivery in leased.items() if delivery is None}
        if in_order:
            asked = {d for d in leased.values() if d is not None and d.lane is not None}
            too_early, in_vain = out_of_order(asked)
            refused |= {delivery.ack_id: UNORDERED for delivery in too_early}
            refused |= {delivery.ack_id: INVALID for delivery in in_vain}
        return refused

    def returned(self, delivery: Delivery) -> None:
        """Its lease has ended, and it waits in a queue again."""
        self._returned[delivery.ack_id] = delivery

    def late(self, ack_id: str) -> Delivery | None:
        """The message of an id whose lease has ended, if it waits to be delivered again."""
        return self._returned.pop(ack_id, None)
