"""All unfinished messages of one subscription, waiting or leased, and their age."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer
from pullstream_emulator.engine.record import Record
from pullstream_emulator.engine.seq_set import SeqSet, SeqTable, masks_of

from .backlog import Backlog
from .delivery_state import Delivery, KeyQueue
from .leases import Leases

# A container of a backlog or of leases that is not used any more.
Remains: TypeAlias = dict[Any, Any] | deque[Any] | list[Any]

# Least time between two sweeps, in seconds.
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
        """Record that a sweep has dropped messages that were too old.

        Args:
            cutoff_ms: The publish time up to which messages were dropped.
            oldest_ms: The publish time of the oldest message that the sweep has not passed. If it
                is too old, the next sweep follows at once.
            now: The time of the sweep.
        """
        self._cutoff_ms = cutoff_ms
        self._oldest_ms = oldest_ms
        is_done = oldest_ms > cutoff_ms
        self._next_sweep = now.monotonic + (SWEEP_INTERVAL if is_done else 0)


class Unacked:
    """The unfinished messages of a subscription: which ones they are, and their deliveries.

    `seqs` has all of them. A message is in the backlog, in a lease, or in the stock. New messages
    go into the stock, which needs no object for them. A seek puts all messages into the stock in
    one step. A take moves messages from the stock into the backlog, in the order of publishing. The
    log pins the records of messages that a seek has put into the stock, and the subscription has
    references to the records of the other messages.

    Args:
        subscription: The full name of the subscription.
        backlog: Its undelivered messages, and all messages of ordering keys.
        leases: Its leases.
        log: The log of its topic.
        observer: Is informed of finished messages.

    Attributes:
        seqs: The sequence numbers of all unfinished messages.
        stock: The numbers of the messages that are neither in the backlog nor leased. They are
            younger than all others.
        stocked: The number of messages in the stock.
    """

    def __init__(
        self,
        subscription: str,
        backlog: Backlog,
        leases: Leases,
        log: Log,
        observer: Observer,
    ) -> None:
        self._subscription = subscription
        self._backlog = backlog
        self._leases = leases
        self._log = log
        self._observer = observer
        self.seqs = SeqSet()
        self._count = 0
        self.stock = SeqSet()
        self.stocked = 0
        self._deliveries: SeqTable[Delivery] = SeqTable()
        # Failed deliveries of unfinished messages, for messages with at least one.
        self._attempts: dict[int, int] = {}
        # The messages of the stock that were finished before the seek. The filter must see them.
        self._unfiltered = SeqSet()
        # The number up to which the last sweep has dropped old messages.
        self._swept = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Delivery]:
        """Yield all messages in the order of publishing. They may change meanwhile."""
        for seq in self.seqs.copy():
            delivery = self.find(seq)
            if delivery is not None:
                yield delivery

    def find(self, seq: int) -> Delivery | None:
        """Return an unfinished message; None if there is none with this number.

        For a message of the stock it is a new object, which shows the state of the message.
        """
        delivery = self._deliveries.get(seq)
        record = self._log.record(seq)
        if delivery is None and record is not None and seq in self.stock:
            delivery = Delivery(record, self._backlog.key_queues.get(record.ordering_key))
            delivery.attempts = self._attempts.get(seq, 0)
        return delivery

    @property
    def needs_filter(self) -> bool:
        """Whether the filter must see some messages of the stock."""
        return bool(self._unfiltered)

    @property
    def pending(self) -> int:
        """Number of messages that are neither leased nor acknowledged."""
        return self._count - len(self._leases) - self._backlog.acked

    @property
    def delayed(self) -> int:
        """Number of messages and ordering keys that wait for a retry delay."""
        return self._backlog.delayed

    @property
    def oldest_ms(self) -> int | None:
        """Publish time of the oldest message, in milliseconds since the epoch. None: no message."""
        first = self.seqs.first
        record = None if first is None else self._log.record(first)
        return None if record is None else record.publish_ms

    @property
    def floor(self) -> int:
        """The highest sequence number up to which every message is finished."""
        first = self.seqs.first
        return self._log.head_seq if first is None else first - 1

    # ---- in ------------------------------------------------------------------------------------

    def add(self, masks: Mapping[int, int], count: int) -> None:
        """Add new messages. They are the newest ones, and their records have a reference.

        Args:
            masks: The bits of their numbers, by chunk.
            count: Their number.
        """
        self.seqs.add(masks)
        self._count += count
        self.stock.add(masks)
        self.stocked += count

    def restore(self, records: Sequence[Record], attempts: Mapping[int, int]) -> None:
        """Add the messages that were unfinished in an earlier run, in the order of publishing.

        Args:
            records: The messages.
            attempts: The failed deliveries of those with at least one.
        """
        for record in records:
            record.references += 1
        self._attempts.update(attempts)
        self.add(masks_of([record.seq for record in records]), len(records))

    def unstock(self, accepts: Callable[[Mapping[str, str]], bool] | None, *, ordered: bool) -> int:
        """Move one slice of the stock into the backlog. Return the number of its messages.

        Args:
            accepts: The filter, for messages that it has not seen; None lets every message pass.
            ordered: Whether messages with an ordering key are delivered in order.
        """
        seqs = self.stock.pop_first(self._log.work.size)
        self.stocked -= len(seqs)
        records = self._log.records(seqs)
        self._log.hold_pinned(self._subscription, records)
        rejected: list[Record] = []
        if accepts is not None and self._unfiltered:
            rejected = [
                record
                for record in records
                if record.seq in self._unfiltered and not accepts(record.message().attributes)
            ]
            self._unfiltered.discard(masks_of(seqs))
            gone = {record.seq for record in rejected}
            records = [record for record in records if record.seq not in gone]
        deliveries = self._backlog.add_new(records, ordered=ordered)
        if self._attempts:
            for delivery in deliveries:
                delivery.attempts = self._attempts.get(delivery.record.seq, 0)
        self._deliveries.put_all([record.seq for record in records], deliveries)
        self._finish(rejected, [record.seq for record in rejected])
        return len(seqs)

    # ---- out -----------------------------------------------------------------------------------

    def mark_failed(self, delivery: Delivery) -> None:
        """Count a failed delivery."""
        delivery.attempts += 1
        self._attempts[delivery.record.seq] = delivery.attempts

    def finish(self, deliveries: Sequence[Delivery]) -> None:
        """Release messages that are finished, and inform the observer."""
        records = [delivery.record for delivery in deliveries]
        seqs = [record.seq for record in records]
        self._deliveries.remove(seqs)
        self._finish(records, seqs)

    def _finish(self, records: Sequence[Record], seqs: Sequence[int]) -> None:
        if not records:
            return
        self.seqs.discard(masks_of(seqs))
        self._count -= len(seqs)
        if self._attempts:
            for seq in seqs:
                self._attempts.pop(seq, None)
        self._observer.finished(self._subscription, seqs)
        self._log.release(records)

    def drop_older(self, than_ms: float) -> float:
        """Finish waiting messages that were published at `than_ms` or before, at most one slice.

        Leased messages stay.

        Returns:
            The publish time of the oldest message that the sweep has not passed; infinity if it has
            passed all.
        """
        dropped: list[Delivery] = []
        unstocked: list[Record] = []
        oldest_ms = math.inf
        for passed, seq in enumerate(self.seqs.after(self._swept)):
            delivery = self._deliveries.get(seq)
            record = self._log.record(seq) if delivery is None else delivery.record
            assert record is not None
            if record.publish_ms > than_ms or passed == self._log.work.size:
                oldest_ms = record.publish_ms
                break
            self._swept = seq
            if delivery is None:
                unstocked.append(record)
            elif delivery.holder is None and not delivery.acked:
                dropped.append(delivery)
        if unstocked:
            seqs = [record.seq for record in unstocked]
            self.stock.discard(masks_of(seqs))
            self.stocked -= len(seqs)
            self._log.hold_pinned(self._subscription, unstocked)
            self._finish(unstocked, seqs)
        self._backlog.drop(dropped)
        self._leases.forget_returned(dropped)
        self.finish(dropped)
        return oldest_ms

    def mark_returned(self, deliveries: Sequence[Delivery]) -> None:
        """Let the next sweep see messages that it passed while they were leased."""
        oldest = min((delivery.record.seq for delivery in deliveries), default=self._swept + 1)
        self._swept = min(self._swept, oldest - 1)

    def replace(self, wanted: SeqSet, now: Now, *, report: bool = True) -> SeqSet:
        """Make exactly the wanted messages unfinished. All leases end.

        Args:
            wanted: The messages. The log must have their records.
            now: The present time.
            report: Whether to inform the observer.

        Returns:
            The messages that were finished before.
        """
        back, done = wanted - self.seqs, self.seqs - wanted
        before = self._deliveries
        referenced = self.stock - self._log.pinned(self._subscription)
        # Pin the records before their references are removed.
        self._log.pin(self._subscription, wanted, now)
        self.seqs = wanted
        self._count = len(wanted)
        self.stock = wanted.copy()
        self.stocked = self._count
        self._deliveries = SeqTable()
        self._unfiltered = self._unfiltered & wanted | back
        self._attempts = {seq: n for seq, n in self._attempts.items() if seq in wanted}
        self._swept = 0
        if report and back:
            self._observer.unfinished(self._subscription, back)
        if report and done:
            self._observer.finished(self._subscription, done)
        remains = [*self._backlog.take_apart(), *self._leases.take_apart()]
        self._log.work.add(self._tear_down(before, referenced, remains), now.monotonic)
        return back

    def _tear_down(
        self, before: SeqTable[Delivery], referenced: SeqSet, remains: Sequence[Remains]
    ) -> Iterator[None]:
        """Release the records of earlier deliveries and of the earlier stock, and free memory."""
        while referenced:
            seqs = referenced.pop_first(self._log.work.size)
            self._log.release(self._log.records(seqs))
            yield
        while deliveries := before.pop_chunk():
            self._log.release([delivery.record for delivery in deliveries])
            yield
        for each in remains:
            while each:
                for _ in range(min(self._log.work.size, len(each))):
                    last = each.popitem()[1] if isinstance(each, dict) else each.pop()
                    if isinstance(last, KeyQueue):
                        # The messages of a key refer to it.
                        last.waiting.clear()
                        last.delivered.clear()
                yield
