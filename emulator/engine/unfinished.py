"""All messages of one subscription that are not finished: waiting, or under lease."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from .backlog import Backlog
from .leases import Leases
from .log import Log
from .observer import Observer
from .record import Delivery


class Unfinished:
    """What a subscription holds of its topic's log."""

    def __init__(
        self, subscription: str, log: Log, numbers: Iterator[int], observer: Observer | None
    ) -> None:
        self.backlog = Backlog()
        self.leases = Leases(subscription, numbers)
        self._subscription = subscription
        self._log = log
        self._observer = observer

    def __iter__(self) -> Iterator[Delivery]:
        leased = (d for d in self.leases.values() if d.lane is None)
        lanes = self.backlog.lanes.values()
        keyed = chain.from_iterable((*lane.delivered, *lane.waiting) for lane in lanes)
        return chain(self.backlog.waiting(), leased, keyed)

    def __len__(self) -> int:
        return self.backlog.size + sum(d.lane is None for d in self.leases.values())

    @property
    def pending(self) -> int:
        """Neither under lease nor acknowledged."""
        lanes = self.backlog.lanes.values()
        acked = sum(delivery.acked for lane in lanes for delivery in lane.delivered)
        return len(self) - len(self.leases) - acked

    @property
    def floor(self) -> int:
        """The highest sequence number up to which everything is finished."""
        leased = (delivery.record.seq for delivery in self.leases.values())
        oldest = min(chain(leased, self.backlog.oldest_seqs()), default=self._log.head_seq + 1)
        return oldest - 1

    def finish(self, deliveries: Sequence[Delivery]) -> None:
        """These have left for good."""
        if not deliveries:
            return
        if self._observer is not None:
            self._observer.finished(self._subscription, [d.record.seq for d in deliveries])
        self._log.release([d.record for d in deliveries])

    def drop_older(self, than_ms: float) -> float:
        """Finish what waits and was published at this time or before.

        Returns the publish time of the oldest that is left, but for what is leased and as old.
        """
        dropped = self.backlog.drop_older(than_ms)
        self.leases.take_away(dropped)
        self.finish(dropped)
        ages = (delivery.record.publish_ms for delivery in self.leases.values())
        leased = min((age for age in ages if age > than_ms), default=math.inf)
        return min(leased, self.backlog.oldest_ms())

    def start_over(self, deliveries: Iterable[Delivery]) -> None:
        """From now on only these wait, and nothing is under lease."""
        self.backlog = Backlog()
        self.backlog.fill(deliveries)

    def clear(self, *, tell: bool) -> None:
        """Forget everything; the observer is told of it if so asked."""
        unfinished = list(self)
        self.leases.take_away(unfinished)
        self.start_over(())
        if tell:
            self.finish(unfinished)
        else:
            self._log.release([delivery.record for delivery in unfinished])
