"""All unfinished messages of one subscription, waiting or leased, and their age."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import chain

from pullstream_emulator.engine.due_queue import Now
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.observer import Observer
from pullstream_emulator.engine.record import Record

from .backlog import Backlog
from .delivery_state import Delivery, seq_of
from .leases import Leases

# Least time between two sweeps, in seconds. A sweep goes through every key.
SWEEP_INTERVAL = 1.0


class Retention:
    """The age of one subscription's unfinished messages.

    Keeps a lower bound of their publish times. A sweep drops the waiting messages that are too old
    and computes the bound again. It does not touch leased messages. If such a message comes back
    and is too old, it is dropped then.
    """

    def __init__(self) -> None:
        self._oldest_ms = math.inf
        self._cutoff_ms = -math.inf
        self._next_sweep = -math.inf

    def add_publish_time(self, publish_ms: int) -> bool:
        """Add an unfinished message. Return whether it is the first or the oldest."""
        is_oldest = publish_ms < self._oldest_ms
        if is_oldest:
            self._oldest_ms = publish_ms
        return is_oldest

    def is_too_old(self, record: Record) -> bool:
        """Return whether the newest sweep would have dropped this message."""
        return record.publish_ms <= self._cutoff_ms

    def next_due(self, seconds: float, now: Now) -> float | None:
        """Return the monotonic time of the next sweep if messages are kept for `seconds`."""
        if self._oldest_ms == math.inf:
            return None
        return max(now.due(self._oldest_ms / 1000 + seconds), self._next_sweep)

    def cutoff_ms(self, seconds: float, now: Now) -> float | None:
        """Return the publish time up to which messages must be dropped now; None: no sweep yet."""
        due = self.next_due(seconds, now)
        return None if due is None or due > now.monotonic else (now.wall - seconds) * 1000

    def mark_swept(self, cutoff_ms: float, oldest_ms: float, now: Now) -> None:
        """Record that a sweep has dropped the messages that were too old.

        Args:
            cutoff_ms: The publish time up to which messages were dropped.
            oldest_ms: The publish time of the oldest message that is left.
            now: The time of the sweep.
        """
        self._cutoff_ms = cutoff_ms
        self._oldest_ms = oldest_ms
        self._next_sweep = now.monotonic + SWEEP_INTERVAL


class Unacked:
    """The messages in the backlog and in the leases of a subscription, as one whole.

    Args:
        subscription: The full name of the subscription.
        backlog: Its undelivered messages, and all messages of ordering keys.
        leases: Its leases.
        log: The log of its topic.
        observer: Is informed of finished messages.
    """

    def __init__(
        self,
        subscription: str,
        backlog: Backlog,
        leases: Leases,
        log: Log,
        observer: Observer | None,
    ) -> None:
        self._subscription = subscription
        self._backlog = backlog
        self._leases = leases
        self._log = log
        self._observer = observer

    def __iter__(self) -> Iterator[Delivery]:
        leased = (d for d in self._leases.values() if d.lane is None)
        lanes = self._backlog.lanes.values()
        keyed = chain.from_iterable((*lane.delivered, *lane.waiting) for lane in lanes)
        return chain(self._backlog.waiting(), leased, keyed)

    def by_age(self) -> Iterator[Delivery]:
        """Yield all messages in the order of publishing.

        The first ones of a large backlog cost little. The messages must not change meanwhile.
        """
        leased = sorted((d for d in self._leases.values() if d.lane is None), key=seq_of)
        lanes = self._backlog.lanes.values()
        keyed = (chain(lane.delivered, lane.waiting) for lane in lanes)
        return heapq.merge(self._backlog.waiting_by_age(), leased, *keyed, key=seq_of)

    def __len__(self) -> int:
        return self._backlog.size + sum(d.lane is None for d in self._leases.values())

    @property
    def pending(self) -> int:
        """Number of messages that are neither leased nor acknowledged."""
        lanes = self._backlog.lanes.values()
        acked = sum(delivery.acked for lane in lanes for delivery in lane.delivered)
        return len(self) - len(self._leases) - acked

    @property
    def delayed(self) -> int:
        """Number of messages and ordering keys that wait for a retry delay."""
        return self._backlog.delayed

    @property
    def oldest_ms(self) -> float | None:
        """Publish time of the oldest message, in milliseconds since the epoch. None: no message."""
        leased = min((each.record.publish_ms for each in self._leases.values()), default=math.inf)
        oldest = min(leased, self._backlog.oldest_ms())
        return None if oldest == math.inf else oldest

    @property
    def floor(self) -> int:
        """The highest sequence number up to which every message is finished."""
        leased = (delivery.record.seq for delivery in self._leases.values())
        oldest = min(chain(leased, self._backlog.oldest_seqs()), default=self._log.head_seq + 1)
        return oldest - 1

    def finish(self, deliveries: Sequence[Delivery]) -> None:
        """Release messages that are finished, and inform the observer."""
        if not deliveries:
            return
        if self._observer is not None:
            self._observer.finished(self._subscription, [d.record.seq for d in deliveries])
        self._log.release([d.record for d in deliveries])

    def drop_older(self, than_ms: float) -> float:
        """Finish the waiting messages that were published at `than_ms` or before.

        Returns:
            The publish time of the oldest message that is left. Leased messages that were published
            at `than_ms` or before do not count.
        """
        dropped = self._backlog.drop_older(than_ms)
        self._leases.end_leases(dropped)
        self.finish(dropped)
        ages = (delivery.record.publish_ms for delivery in self._leases.values())
        leased = min((age for age in ages if age > than_ms), default=math.inf)
        return min(leased, self._backlog.oldest_ms())

    def take_all(self) -> list[Delivery]:
        """Remove and return all messages. Their leases end."""
        unfinished = list(self)
        self._leases.end_leases(unfinished)
        self._backlog.clear()
        return unfinished

    def discard_all(self, *, report: bool) -> None:
        """Release all messages. With `report`, inform the observer."""
        unfinished = self.take_all()
        if report:
            self.finish(unfinished)
        else:
            self._log.release([delivery.record for delivery in unfinished])
