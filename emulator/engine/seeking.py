"""Seek: some finished messages become unfinished, some unfinished ones finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .ordering import KeyLane
from .record import Delivery, Record
from .subscription import Subscription


def seek(
    subscription: Subscription, wanted: Callable[[Record], bool], history: Iterable[Record]
) -> None:
    """Everything `wanted`, of what is unfinished and of `history`, is unfinished from now on.

    Whatever was under lease or waited for its backoff is ready at once: an acknowledgement that is
    still on its way was for the time before the seek.
    """
    messages, accepts = subscription.messages, subscription.terms.accepts
    unfinished = {delivery.record.seq: delivery for delivery in messages}
    done = [delivery for delivery in unfinished.values() if not wanted(delivery.record)]
    stays = [delivery for delivery in unfinished.values() if wanted(delivery.record)]
    back = [
        Delivery(record, None)
        for record in history
        if record.seq not in unfinished
        and wanted(record)
        and (accepts is None or accepts(record.message().attributes))
    ]
    for delivery in back:
        delivery.record.holders += 1
    lanes: dict[str, KeyLane] = {}
    for delivery in (*stays, *back):
        delivery.acked = False
        key = delivery.record.ordering_key if subscription.terms.ordered else ""
        delivery.lane = lanes.setdefault(key, KeyLane(key)) if key else None
    messages.leases.take_away(unfinished.values())
    messages.start_over([*stays, *back])
    subscription.moved([delivery.record for delivery in back], done)
