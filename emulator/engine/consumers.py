"""The consumers of a subscription, and which of them is woken for what comes."""

from __future__ import annotations

from itertools import islice

from protocol.errors import RpcError

from .consumer import Consumer
from .ordering import LaneQueue

# Pull calls that may wait on one subscription at a time, unless it is set to another number.
MAX_WAITING = 512


class Consumers:
    """Who takes messages, and who of them found nothing to take.

    max_waiting: pulls that may wait at a time.
    waiting_pulls: those that do. One that was answered, cancelled or cut off does not count.
    """

    def __init__(self) -> None:
        self.max_waiting = MAX_WAITING
        self.waiting_pulls = 0
        # Dicts for their order: there may be thousands, and any of them may leave.
        self._all: dict[Consumer, None] = {}
        # Their last take came back empty, the longest waiting first. One that was woken stays
        # until it takes something, so that it keeps its place and its part.
        self._hungry: dict[Consumer, None] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def join(self, consumer: Consumer) -> None:
        self._all[consumer] = None

    def leave(self, consumer: Consumer) -> None:
        self._all.pop(consumer, None)
        self.fed(consumer)

    def close(self, reason: RpcError) -> None:
        """Tell every one to go."""
        for consumer in self._all:
            consumer.closed = reason
            consumer.wake()

    def forget_keys(self) -> None:
        """The keys that they held are no more."""
        for consumer in self._all:
            consumer.lanes = LaneQueue()

    # ---- the hungry ----------------------------------------------------------------------------

    def hungry(self, consumer: Consumer) -> None:
        """Its take came back empty."""
        consumer.asleep = True
        if consumer not in self._hungry:
            self._hungry[consumer] = None
            self.waiting_pulls += consumer.is_pull

    def fed(self, consumer: Consumer) -> None:
        """It took something, or is gone."""
        consumer.asleep = False
        if consumer in self._hungry:
            del self._hungry[consumer]
            self.waiting_pulls -= consumer.is_pull

    def share(self, shared: int, consumer: Consumer) -> int:
        """Its part of so many messages: the hungry ones with room get as much.

        One that has not waited leaves a message for each pull that does: they are told of it, but
        it may come in before they take it.
        """
        with_room = (other for other in self._hungry if other is not consumer and other.has_room)
        # With as many others there is one for each.
        others = sum(1 for _ in islice(with_room, shared))
        share = -(-shared // (1 + others))
        return share if consumer in self._hungry else min(share, shared - self.waiting_pulls)

    @property
    def streams(self) -> int:
        """Open streaming pulls."""
        return sum(not (consumer.is_pull or consumer.is_push) for consumer in self._all)

    def wake_next(self, shared: int, *, keyed: bool) -> None:
        """Wake the longest waiting consumer with room, if there is something for it.

        There is if messages are shared by all; with `keyed` some may be a consumer's own. Only one
        is woken: when it has taken its part and something is left, its take wakes the next.
        """
        if shared:
            for consumer in self._hungry:
                if _wake(consumer):
                    return
        elif keyed:
            # Room may have come back for their own keys.
            for consumer in self._hungry:
                if consumer.lanes:
                    _wake(consumer)


def _wake(consumer: Consumer) -> bool:
    """Wake a consumer that sleeps and has room; tells whether it is one."""
    if not consumer.asleep or not consumer.has_room:
        return False
    consumer.asleep = False
    consumer.wake()
    return True
