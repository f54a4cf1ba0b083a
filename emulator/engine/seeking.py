"""Seek: some finished messages become unfinished, some unfinished ones finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .backlog import Item
from .ordering import KeyLane
from .record import Delivery, Record
from .subscription import Subscription


class Move:
    """What a seek changes in one subscription.

    back: finished messages that are to be delivered again.
    done: unfinished ones that are not.
    """

    def __init__(
        self,
        subscription: Subscription,
        wanted: Callable[[Record], bool],
        history: Iterable[Record],
    ) -> None:
        """Everything `wanted`, of what is unfinished and of `history`, is to be unfinished."""
        accepts = subscription.terms.accepts
        self._subscription = subscription
        unfinished = {delivery.record.seq: delivery for delivery in subscription.messages}
        self.done = {d for d in unfinished.values() if not wanted(d.record)}
        self.back = [
            record
            for record in history
            if record.seq not in unfinished
            and wanted(record)
            and (accepts is None or accepts(record.message().attributes))
        ]

    def apply(self, now: float) -> None:
        """Leases end of all that is done, and of every message of a key of which one moves."""
        messages, moved = self._subscription.messages, self._moved_keys()
        lanes = [lane for lane in messages.backlog.lanes.values() if lane.key in moved]
        members = [d for lane in lanes for d in (*lane.delivered, *lane.waiting)]
        single = [delivery for delivery in self.done if delivery.lane is None]
        messages.leases.take_away([*members, *single])
        gone: set[Item] = {*lanes, *single}
        messages.backlog.remove(gone)
        fresh: dict[str, KeyLane] = {}
        waiting = [d for d in members if d not in self.done]
        for delivery in waiting:
            delivery.acked = False
            delivery.lane = _lane(fresh, delivery.record)
        for record in self.back:
            record.holders += 1
            ordered = self._subscription.terms.ordered and record.ordering_key
            waiting.append(Delivery(record, _lane(fresh, record) if ordered else None))
        messages.backlog.insert(waiting)
        self._subscription.moved(self.back, list(self.done))

    def _moved_keys(self) -> set[str]:
        lanes = self._subscription.messages.backlog.lanes.values()
        rewound = {lane.key for lane in lanes if any(d.acked for d in lane.delivered)}
        done = {d.record.ordering_key for d in self.done if d.lane is not None}
        return rewound | done | {record.ordering_key for record in self.back}


def _lane(lanes: dict[str, KeyLane], record: Record) -> KeyLane:
    return lanes.setdefault(record.ordering_key, KeyLane(record.ordering_key))
