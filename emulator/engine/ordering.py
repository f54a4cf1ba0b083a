"""The messages of one ordering key: their order survives every redelivery.

Rules (pubsub-v1, "Order messages"): messages of a key are delivered in publish order; while some
are under lease, only the consumer that holds them gets more of the key; when one is nacked or its
lease ends, it and *every* later message of the key are delivered again, in order, also those that
were acknowledged meanwhile. Nothing is delivered twice while it is leased, so a key with a failure
in it waits until its last lease has ended before it starts again at the failed message.

Exactly-once delivery promises more of an acknowledgement: with it what was acknowledged stays so,
and the key starts again with what is left.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .consumer import Consumer
    from .record import Delivery


class KeyLane:
    """The unfinished messages of one key in one subscription, oldest first.

    `queued` is the subscription's mark: this lane stands in one of the ready queues.
    """

    __slots__ = ("_delivered", "_failed", "_leased", "holder", "queued", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.holder: Consumer | None = None
        self.queued = False
        # Handed out and not final: leased, or acknowledged behind one that is still leased.
        self._delivered: deque[Delivery] = deque()
        self._leased = 0
        self._failed = False

    @property
    def deliverable(self) -> bool:
        return bool(self.waiting) and not self._failed

    @property
    def size(self) -> int:
        return len(self.waiting) + len(self._delivered)

    @property
    def finished(self) -> bool:
        return not self.waiting and not self._delivered

    def take(self, consumer: Consumer) -> Delivery:
        """Hand the next message of the key to `consumer`; the lane must be deliverable."""
        delivery = self.waiting.popleft()
        self._delivered.append(delivery)
        self._leased += 1
        self.holder = consumer
        return delivery

    def settle(self, delivery: Delivery, *, acked: bool, exactly_once: bool = False) -> None:
        """A lease of this key ended, by an acknowledgement or by a failure."""
        self._leased -= 1
        delivery.acked = acked
        self._failed |= not acked
        delivered = self._delivered
        while delivered and delivered[0].acked:
            delivered.popleft()
        if self._leased:
            return
        self.holder = None
        if self._failed:
            # What is left begins with the failed message: everything before it was acknowledged.
            self._failed = False
            while delivered:
                again = delivered.pop()
                if again.acked and exactly_once:
                    continue
                again.acked = False
                self.waiting.appendleft(again)


class LaneQueue:
    """A queue of lanes, any of which can be removed at the same cost: thousands may stand in it.

    It offers what a deque does, as far as it is needed.
    """

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: OrderedDict[KeyLane, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lanes)

    def __getitem__(self, _first: Literal[0]) -> KeyLane:
        return next(iter(self._lanes))

    def append(self, lane: KeyLane) -> None:
        self._lanes[lane] = None

    def popleft(self) -> KeyLane:
        return self._lanes.popitem(last=False)[0]

    def remove(self, lane: KeyLane) -> None:
        del self._lanes[lane]
