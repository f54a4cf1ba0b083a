"""The messages of one ordering key: their order survives every redelivery.

Rules (pubsub-v1, "Order messages"): messages of a key are delivered in publish order; while some
are under lease, only the consumer that holds them gets more of the key; when one is nacked or its
lease ends, it and *every* later message of the key are delivered again, in order, also those that
were acknowledged meanwhile. Nothing is delivered twice while it is leased, so a key with a failure
in it waits until its last lease has ended before it starts again at the failed message. With a
retry policy it waits until the failed message's backoff is over, too.

Exactly-once delivery promises more of an acknowledgement: that what was acknowledged stays so. So
with it only the first unfinished message of a key can be acknowledged. Behind one that has failed
none can be: it will come again, whatever its holder says.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .consumer import Consumer
    from .record import Delivery


class KeyLane:
    """The unfinished messages of one key in one subscription, oldest first.

    waiting: not handed out, or to be handed out again.
    delivered: handed out and not final: leased, or acknowledged behind one that is still leased.
    resume_at: the moment before which the key must not start again after a failure.
    queued, delayed: the backlog's marks: this lane stands in a queue, or waits for `resume_at`.
    """

    __slots__ = (
        "_failed",
        "_leased",
        "delayed",
        "delivered",
        "holder",
        "key",
        "queued",
        "resume_at",
        "waiting",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: deque[Delivery] = deque()
        self.delivered: deque[Delivery] = deque()
        self.holder: Consumer | None = None
        self.queued = False
        self.delayed = False
        self.resume_at = 0.0
        self._leased = 0
        self._failed = False

    @property
    def deliverable(self) -> bool:
        return bool(self.waiting) and not self._failed and not self.delayed

    @property
    def size(self) -> int:
        return len(self.waiting) + len(self.delivered)

    @property
    def finished(self) -> bool:
        return not self.waiting and not self.delivered

    def take(self, consumer: Consumer) -> Delivery:
        """Hand the next message of the key to `consumer`; the lane must be deliverable."""
        delivery = self.waiting.popleft()
        self.delivered.append(delivery)
        self._leased += 1
        self.holder = consumer
        return delivery

    # Each way in which a lease ends returns the acknowledged messages that are final by it.

    def acknowledge(self, delivery: Delivery) -> list[Delivery]:
        delivery.acked = True
        return self._end_lease()

    def fail(self, delivery: Delivery, resume_at: float = 0.0) -> list[Delivery]:
        """It is to be delivered again, with all that is behind it, not before `resume_at`."""
        self._failed = True
        self.resume_at = max(self.resume_at, resume_at)
        return self._end_lease()

    def drop(self, delivery: Delivery) -> list[Delivery]:
        """It is gone without an acknowledgement, whatever becomes of those before it."""
        self.delivered.remove(delivery)
        return self._end_lease()

    def _end_lease(self) -> list[Delivery]:
        self._leased -= 1
        delivered = self.delivered
        finished: list[Delivery] = []
        while delivered and delivered[0].acked:
            finished.append(delivered.popleft())
        if not self._leased:
            self.holder = None
            if self._failed:
                # What is left begins with the failed message: all before it was acknowledged.
                self._failed = False
                while delivered:
                    again = delivered.pop()
                    again.acked = False
                    self.waiting.appendleft(again)
        return finished


def out_of_order(asked: set[Delivery]) -> tuple[set[Delivery], set[Delivery]]:
    """Those of some leased messages with keys that have an unfinished one before them.

    Two sets: those that can be acknowledged after it, and those that cannot, for it has failed. One
    that is asked about as well does not count.
    """
    too_early: set[Delivery] = set()
    in_vain: set[Delivery] = set()
    for lane in {delivery.lane for delivery in asked if delivery.lane is not None}:
        refused: set[Delivery] | None = None
        for delivery in lane.delivered:
            if delivery in asked:
                if refused is not None:
                    refused.add(delivery)
            elif delivery.holder is None and not delivery.acked:
                refused = in_vain
            elif not delivery.acked and refused is None:
                refused = too_early
    return too_early, in_vain


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
