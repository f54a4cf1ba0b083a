"""All unfinished messages of one subscription, waiting or leased, and their age."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer
from pullstream_emulator.engine.record import Record, RecordSpan
from pullstream_emulator.engine.seq_set import SeqSet, SeqTable, masks_of

from .backlog import MAX_RESPONSE_BYTES, Backlog, fitting_in
from .delivery_state import Delivery, KeyQueue, LeaseRun
from .lease_runs import DeliverySpan
from .leases import Leases

# A container of a backlog or of leases that is not used any more.
Remains: TypeAlias = dict[Any, Any] | deque[Any] | list[Any]

# Fewer messages are not leased as a run, which takes more time than their objects.
MIN_RUN = 16

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
    one step. A take leases messages of the stock as a run, or moves them into the backlog, in the
    order of publishing. The subscription holds all of them in the log.

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
        # A message that was leased as a part of a run has its run.
        self._deliveries: SeqTable[Delivery | LeaseRun] = SeqTable()
        # Failed deliveries of unfinished messages, for messages with at least one.
        self._attempts: dict[int, int] = {}
        # The messages of the stock that were finished before the seek. The filter must see them.
        self._unfiltered = SeqSet()
        # The messages of the stock with a failed delivery, after a restart or a seek.
        self._tried = SeqSet()
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
        found = self._deliveries.get(seq)
        if type(found) is LeaseRun:
            return self._leases.single(found, seq)
        record = self._log.record(seq) if seq in self.stock else None
        if record is not None:
            found = Delivery(record, self._backlog.key_queues.get(record.ordering_key))
            found.attempts = self._attempts.get(seq, 0)
        return found

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
        return None if first is None else self._log.publish_ms(first)

    @property
    def floor(self) -> int:
        """The highest sequence number up to which every message is finished."""
        first = self.seqs.first
        return self._log.head_seq if first is None else first - 1

    # ---- in ------------------------------------------------------------------------------------

    def add(self, masks: Mapping[int, int], count: int) -> None:
        """Add new messages. They are the newest ones, and are held in the log.

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
        masks = masks_of([record.seq for record in records])
        self._log.hold(masks)
        self._attempts.update(attempts)
        self._tried = SeqSet(list(attempts))
        self.add(masks, len(records))

    def unstock(self, accepts: Callable[[Mapping[str, str]], bool] | None, *, ordered: bool) -> int:
        """Move one slice of the stock into the backlog. Return the number of its messages.

        Args:
            accepts: The filter, for messages that it has not seen; None lets every message pass.
            ordered: Whether messages with an ordering key are delivered in order.
        """
        seqs = self.stock.pop_first(self._log.work.size)
        self.stocked -= len(seqs)
        records = self._log.records(seqs)
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
        self._tried.discard(masks_of(seqs))
        self._deliveries.put_all([record.seq for record in records], deliveries)
        self._finish([record.seq for record in rejected])
        return len(seqs)

    def next_run(
        self, limit: int, most_bytes: float, *, filtered: bool, ordered: bool
    ) -> tuple[RecordSpan, range, int] | None:
        """Return the messages of the stock that can be leased next as a run, and their size.

        None: there are few of them, or something is known about some of them, so that they need an
        object each.

        Args:
            limit: Maximum number of messages.
            most_bytes: See `Consumer.room_bytes`.
            filtered: Whether the subscription has a filter.
            ordered: Whether messages with an ordering key are delivered in order.
        """
        if self._tried or (filtered and self._unfiltered):
            return None
        seqs = self.stock.first_run(limit)
        if not MIN_RUN <= len(seqs) == min(limit, self.stocked):
            # The numbers have gaps. Many small responses would cost more than the objects.
            return None
        records = self._log.span(seqs)
        if ordered and records.has_keys:
            return None
        size = records.size
        if size > MAX_RESPONSE_BYTES or size > most_bytes:
            sizes = records.sizes()
            fitting = fitting_in(sizes, most_bytes)
            if fitting < MIN_RUN:
                return None
            seqs, size = seqs[:fitting], sum(sizes[:fitting])
            records = self._log.span(seqs)
        return records, seqs, size

    def take_run(self, run: LeaseRun) -> None:
        """Take messages out of the stock that were leased as a run."""
        masks = masks_of(run.seqs)
        self.stock.discard(masks)
        self.stocked -= len(run.seqs)
        self._unfiltered.discard(masks)
        self._deliveries.put_all(run.seqs, [run] * len(run.seqs))

    # ---- out -----------------------------------------------------------------------------------

    def mark_failed(self, delivery: Delivery) -> None:
        """Count a failed delivery."""
        delivery.attempts += 1
        self._attempts[delivery.record.seq] = delivery.attempts

    def finish(self, deliveries: Sequence[Delivery]) -> None:
        """Release messages that are finished, and inform the observer."""
        if type(deliveries) is DeliverySpan:
            self._finish(deliveries.seqs)
        else:
            self._finish([delivery.record.seq for delivery in deliveries])

    def _finish(self, seqs: Sequence[int]) -> None:
        if not seqs:
            return
        masks = masks_of(seqs)
        self._deliveries.remove(masks)
        self.seqs.discard(masks)
        self._count -= len(seqs)
        if self._attempts:
            for seq in seqs:
                self._attempts.pop(seq, None)
        self._observer.finished(self._subscription, seqs)
        self._log.release(masks)

    def drop_older(self, than_ms: float) -> float:
        """Finish waiting messages that were published at `than_ms` or before, at most one slice.

        Leased messages stay.

        Returns:
            The publish time of the oldest message that the sweep has not passed; infinity if it has
            passed all.
        """
        dropped: list[Delivery] = []
        unstocked: list[int] = []
        oldest_ms = math.inf
        for passed, seq in enumerate(self.seqs.after(self._swept)):
            publish_ms = self._log.publish_ms(seq)
            assert publish_ms is not None
            if publish_ms > than_ms or passed == self._log.work.size:
                oldest_ms = publish_ms
                break
            self._swept = seq
            found = self._deliveries.get(seq)
            if type(found) is LeaseRun:
                found = None if found.has_leased(seq) else found.singles[seq]
            elif found is None:
                unstocked.append(seq)
            if found is not None and found.holder is None and not found.acked:
                dropped.append(found)
        if unstocked:
            masks = masks_of(unstocked)
            self.stock.discard(masks)
            self._tried.discard(masks)
            self.stocked -= len(unstocked)
            self._finish(unstocked)
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
        self._log.hold(back.masks())
        self.seqs = wanted
        self._count = len(wanted)
        self.stock = wanted.copy()
        self.stocked = self._count
        self._deliveries = SeqTable()
        self._unfiltered = self._unfiltered & wanted | back
        self._attempts = {seq: n for seq, n in self._attempts.items() if seq in wanted}
        self._tried = SeqSet(list(self._attempts))
        self._swept = 0
        if report and back:
            self._observer.unfinished(self._subscription, back)
        if report and done:
            self._observer.finished(self._subscription, done)
        remains = [*self._backlog.take_apart(), *self._leases.take_apart()]
        self._log.release_later(done.copy(), now)
        self._log.work.add(self._tear_down(before, remains), now.monotonic)
        return back

    def _tear_down(
        self, before: SeqTable[Delivery | LeaseRun], remains: Sequence[Remains]
    ) -> Iterator[None]:
        """Free the memory of earlier deliveries."""
        while before.pop_chunk():
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
