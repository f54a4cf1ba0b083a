"""One subscription: delivers its messages, and settles or redelivers them.

A message moves  waiting -> leased -> finished  by an acknowledgement. It moves back to waiting by a
nack, by the end of its lease, or because its consumer left. docs/engine.md has the details.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import LeaseEnd, Observer
from pullstream_emulator.engine.record import Record, RecordRun
from pullstream_emulator.engine.seq_set import SeqSet, masks_of
from pullstream_emulator.engine.timetable import SLICE, Timed
from pullstream_protocol import dead_letters
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .ack_ids import INVALID, AckNumbers
from .acked_ids import AckedIds
from .backlog import Backlog
from .consumers import Consumers
from .delivery_state import Consumer, Delivery, KeyQueue
from .lease_runs import DeliverySpan
from .leases import Leases
from .policy import SubscriptionPolicy
from .unacked import Retention, Unacked

# Most messages in one response, the same as in the real service.
MAX_PER_RESPONSE = 1000

# Called with the refused ack IDs of a request and their failure codes. Returns whether the other
# ack IDs take effect.
Decide: TypeAlias = Callable[[Mapping[str, str]], bool]

# Most messages that one take moves from the stock into the backlog, in search of a message that its
# consumer may receive.
MAX_UNSTOCKED = 10_000


class Subscription:
    """Backlog and leases of one subscription. Not thread-safe: it belongs to the engine's owner.

    Guarantees:
    - A message has at most one lease at a time.
    - A message leaves only by an acknowledgement of its newest lease, by its age, by a seek, or
      to the dead-letter topic.
    - Messages of one ordering key are never delivered out of order (see KeyQueue).
    - A waiting consumer with room is woken when a message becomes ready.

    Args:
        config: Its settings.
        log: The log of its topic.
        numbers: The numbers of ack IDs.
        now: The present time.
        announce: Called with the subscription and a due time on the monotonic clock after a call
            that adds timed work. After new settings and after a seek, the caller asks `next_due`.
        topic_exists: Returns whether there is a topic of this name.
        observer: Is informed of every change of a message.

    Attributes:
        name: Its full name.
        config: Its settings.
        log: The log of its topic.
        since: The topic's newest sequence number when the subscription was created.
        leases: Its leases.
        messages: All messages that are not finished.
        acked_ids: The recently acknowledged IDs, for exactly-once delivery.
        consumers: The consumers that have joined.
    """

    def __init__(
        self,
        config: pubsub.Subscription,
        log: Log,
        numbers: AckNumbers,
        now: Now,
        *,
        announce: Callable[[Timed, float], None],
        topic_exists: Callable[[str], bool],
        observer: Observer,
    ) -> None:
        self.name = config.name
        self.log = log
        self.since = log.head_seq
        self._backlog = Backlog()
        self.leases = Leases(config.name, numbers, log)
        self.messages = Unacked(config.name, self._backlog, self.leases, log, observer)
        self.acked_ids = AckedIds(config.name, observer)
        # Messages that failed too often and wait for `forward_dead_letters`.
        self._dead: list[Delivery] = []
        self._announce = announce
        self._topic_exists = topic_exists
        self._observer = observer
        self.consumers = Consumers()
        self._retention = Retention()
        self._last_active = now.monotonic
        self.configure(config)

    def configure(self, config: pubsub.Subscription) -> None:
        """Apply new settings. They also apply to existing messages."""
        self.config = config
        self.policy = SubscriptionPolicy.from_config(config)
        retention = self.policy.retention if self.policy.retains_acked else None
        if self.log.keep_for(self.name, retention):
            self.log.remember(self.messages.seqs)

    # ---- messages in ---------------------------------------------------------------------------

    def offer(
        self, run: RecordRun, messages: Iterable[pubsub.PubsubMessage], now: Now
    ) -> Sequence[int]:
        """Add new records. Return the numbers of the records that the filter rejects.

        If there are none, the caller holds all records in the log for the subscription.

        Args:
            run: The records.
            messages: The same messages, decoded.
            now: The present time.
        """
        rejected: Sequence[int] = ()
        masks: Mapping[int, int] = run.masks
        if self.policy.accepts is not None:
            verdicts = [self.policy.accepts(message.attributes) for message in messages]
            pairs = list(zip(run.seqs, verdicts, strict=True))
            rejected = [seq for seq, passes in pairs if not passes]
            if len(rejected) == len(run):
                return rejected
            if rejected:
                masks = masks_of([seq for seq, passes in pairs if passes])
                self.log.hold(masks)
        self.messages.add(masks, len(run) - len(rejected))
        self._add_publish_time(run.publish_ms, now)
        self._wake_next()
        return rejected

    def restore(self, records: Sequence[Record], attempts: Mapping[int, int]) -> None:
        """Restore the messages that were unfinished in an earlier run; see `Unacked.restore`."""
        for record in records[:1]:
            self._retention.add_publish_time(record.publish_ms)
        self.messages.restore(records, attempts)

    def _add_publish_time(self, publish_ms: int, now: Now) -> None:
        """Note the publish time of an unfinished message, for its retention."""
        if self._retention.add_publish_time(publish_ms):
            self._announce_due(self._retention.next_due(self.policy.retention, now))

    # ---- messages out --------------------------------------------------------------------------

    def take(
        self, consumer: Consumer, now: float, limit: int = MAX_PER_RESPONSE
    ) -> list[tuple[str, Delivery]]:
        """Do the work of `lease`, and return pairs of ack ID and delivery."""
        return [(each.ack_id, each) for each in self.lease(consumer, now, limit)]

    def lease(
        self, consumer: Consumer, now: float, limit: int = MAX_PER_RESPONSE
    ) -> Sequence[Delivery]:
        """Lease messages to `consumer`, and return them with their ack IDs.

        If several consumers wait, each gets an equal share of the messages.

        Args:
            consumer: The consumer.
            now: The present time, on the monotonic clock.
            limit: Maximum number of messages.

        Returns:
            A DeliverySpan if the messages need no objects. An empty list if there is no message
            for the consumer, or if it has no room. The consumer is woken later.
        """
        consumer.asleep = False
        deliveries: Sequence[Delivery] | None = self._lease_run(consumer, now, limit)
        if deliveries is None:
            deliveries = self._next_deliveries(consumer, limit)
            if not deliveries:
                # Wake other consumers but not this one. It may have been the only one that was
                # woken, for messages that only others may take or that are gone.
                self._wake_next()
                self.consumers.mark_waiting(consumer)
                if self.messages.stock and consumer.has_room:
                    # The first slices run here. They wake this consumer if they find a message for
                    # it.
                    self.log.work.add(self._unstock_all(), now)
                return []
            self.leases.grant(deliveries, consumer, now)
        self._announce(self, now + consumer.ack_deadline)
        self.consumers.mark_served(consumer)
        self._observer.delivered(self.name, deliveries)
        self._wake_next()
        return deliveries

    def _lease_run(self, consumer: Consumer, now: float, limit: int) -> DeliverySpan | None:
        """Lease the next messages as one run; None if they need an object each."""
        if not self._backlog.is_idle or self.policy.exactly_once or not consumer.has_room:
            return None
        share = self.consumers.share_of(self.messages.stocked, consumer)
        found = self.messages.next_run(
            min(limit, consumer.room, share),
            consumer.room_bytes,
            filtered=self.policy.accepts is not None,
            ordered=self.policy.ordered,
        )
        if found is None:
            return None
        run, span = self.leases.grant_run(*found, consumer, now)
        self.messages.take_run(run)
        return span

    def _next_deliveries(self, consumer: Consumer, limit: int) -> Sequence[Delivery]:
        """Take the next messages out of the backlog, and fill it before if it has few."""
        if not consumer.has_room:
            # The stock stays: the backlog has an object for each message.
            return []
        moved = 0
        while self.messages.stock and self._backlog.fresh < limit and moved < MAX_UNSTOCKED:
            moved += self._unstock()
        share = self.consumers.share_of(self._backlog.shared + self.messages.stocked, consumer)
        return self._backlog.take_next(consumer, limit, share)

    # ---- outcomes ------------------------------------------------------------------------------

    def check_ack_ids(self, ack_ids: Iterable[str]) -> None:
        """Raise InvalidArgument if an ack ID cannot be from this subscription."""
        self.leases.check_ack_ids(ack_ids)

    def _refusals(self, ack_ids: Iterable[str], *, acknowledging: bool) -> dict[str, str]:
        """Return the failure codes of the ack IDs that cannot be acknowledged, or extended, now."""
        in_order = acknowledging and self.policy.exactly_once
        refused = self.leases.refusals(ack_ids, in_order=in_order)
        if refused and in_order:
            # The client repeats an acknowledgement, because it lost the answer to the first one.
            for ack_id in [ack_id for ack_id in refused if ack_id in self.acked_ids]:
                del refused[ack_id]
        return refused

    def acknowledge(
        self, ack_ids: Sequence[str], now: Now, decide: Decide | None = None
    ) -> dict[str, str]:
        """Acknowledge leased messages. Return the refused ack IDs with their failure codes.

        With exactly-once delivery, an ID that was acknowledged within the last eleven minutes is
        not refused.

        Args:
            ack_ids: The ack IDs of the leases.
            now: The present time.
            decide: With exactly-once delivery, called before any effect if some ack IDs are
                refused. None: the others take effect.

        Raises:
            InvalidArgument: An ID does not belong to this subscription. Nothing is acknowledged.
        """
        leases, exactly_once = self.leases, self.policy.exactly_once
        refused: dict[str, str] = {}
        spans: Sequence[DeliverySpan] = ()
        if exactly_once:
            leases.check_ack_ids(ack_ids)
            refused = self._refusals(ack_ids, acknowledging=True)
            if refused and decide is not None and not decide(refused):
                return refused
        else:
            spans, ack_ids = leases.pop_spans(ack_ids)
        for span in spans:
            self._observer.acknowledged(self.name, span)
            self.messages.finish(span)
        acked: list[Delivery] = []
        finished: list[Delivery] = []
        # An ID that occurs twice in one request is not stale the second time.
        for ack_id in dict.fromkeys(ack_ids):
            if ack_id in refused:
                continue
            delivery = leases.pop(ack_id)
            if delivery is None and exactly_once:
                # A repeated acknowledgement, see `_refusals`.
                continue
            if delivery is None:
                # The late acknowledgement avoids a duplicate. Messages with a key are never found
                # here.
                delivery = leases.pop_returned(ack_id)
                if delivery is None:
                    refused[ack_id] = INVALID
                    continue
                self._backlog.settle(delivery)
            acked.append(delivery)
            holder, key_queue = leases.release_holder(delivery), delivery.key_queue
            if key_queue is None:
                finished.append(delivery)
            else:
                finished += key_queue.end_acknowledged(delivery)
                self._backlog.requeue_key(key_queue, holder, failed=False, now=now.monotonic)
        if acked and exactly_once:
            self.acked_ids.add_acked([delivery.ack_id for delivery in acked], now)
            self._announce_due(self.acked_ids.next_due())
        if acked:
            self._observer.acknowledged(self.name, acked)
        self.messages.finish(finished)
        self._wake_next()
        return refused

    def modify_ack_deadline(
        self,
        ack_ids: Sequence[str],
        seconds: int,
        now: Now,
        decide: Decide | None = None,
        *,
        unseen: bool = False,
    ) -> dict[str, str]:
        """Set the ack deadline of leases. A deadline of 0 returns the messages (a nack).

        Args:
            ack_ids: The ack IDs of the leases.
            seconds: The new ack deadline, from now.
            now: The present time.
            decide: See `acknowledge`.
            unseen: Whether no callback has seen the messages. With 0 seconds, such a return counts
                no delivery attempt.

        Returns:
            The ack IDs that are no longer valid, with their failure codes.

        Raises:
            InvalidArgument: An ID does not belong to this subscription. Nothing is changed.
        """
        if seconds and not self.policy.exactly_once:
            spans, ack_ids = self.leases.extend_runs(ack_ids, seconds, now.monotonic)
            for span in spans:
                self._announce(self, now.monotonic + seconds)
                self._observer.extended(self.name, span, seconds)
        else:
            self.leases.check_ack_ids(ack_ids)
        refused = self._refusals(ack_ids, acknowledging=False)
        if refused and self.policy.exactly_once and decide is not None and not decide(refused):
            return refused
        live = [ack_id for ack_id in dict.fromkeys(ack_ids) if ack_id not in refused]
        if seconds == 0:
            self._end(live, LeaseEnd.GIVEN_BACK if unseen else LeaseEnd.NACK, now)
        elif live:
            extended = [(i, delivery) for i in live if (delivery := self.leases.get(i))]
            self.leases.set_all(extended, seconds, now.monotonic)
            self._announce(self, now.monotonic + seconds)
            self._observer.extended(self.name, [d for _, d in extended], seconds)
        self._wake_next()
        return refused

    def expire(self, ack_ids: Iterable[str] | None, now: Now) -> int:
        """End leases before their deadline; None means all leases. Return their number."""
        known = [delivery.ack_id for delivery in self.leases.values()]
        ended = known if ack_ids is None else [i for i in set(ack_ids) if i in self.leases]
        self._end(ended, LeaseEnd.EXPIRED, now)
        self._wake_next()
        return len(ended)

    def _end(self, ack_ids: Iterable[str], why: LeaseEnd, now: Now) -> None:
        popped = [self.leases.pop(ack_id) for ack_id in ack_ids]
        self._give_back([delivery for delivery in popped if delivery is not None], why, now)

    def _give_back(self, deliveries: Sequence[Delivery], why: LeaseEnd, now: Now) -> None:
        """Return messages whose leases have ended without an acknowledgement.

        Of each ordering key, only the earliest of these messages counts as failed. Every later
        message of the key returns with it and gains no delivery attempt.
        """
        if not deliveries:
            return
        for delivery in deliveries:
            self.leases.release_holder(delivery)
        failed = _earliest_of_each_key(deliveries)
        later: list[Delivery] = []
        finished: list[Delivery] = []
        restarted: list[tuple[KeyQueue, Consumer | None]] = []
        for delivery in failed:
            key_queue, due, is_dead = delivery.key_queue, now.monotonic, False
            if why is not LeaseEnd.GIVEN_BACK:
                self.messages.mark_failed(delivery)
                due += self.policy.retry.delay(delivery.attempts)
                is_dead = self._is_dead(delivery)
            if is_dead:
                self._dead.append(delivery)
            if key_queue is not None:
                restarted.append((key_queue, key_queue.holder))
                if is_dead:
                    behind, final = key_queue.drop_failed(
                        delivery, keep_holder=why is LeaseEnd.NACK
                    )
                    finished += final
                else:
                    behind = key_queue.restart(delivery, due, keep_holder=why is LeaseEnd.NACK)
                later += behind
                finished += self._drop_too_old(key_queue, now)
            elif not is_dead:
                if self._retention.is_too_old(delivery.record):
                    finished.append(delivery)
                else:
                    self.leases.mark_returned(delivery)
                    self._backlog.requeue(delivery, due, now.monotonic)
        self.leases.end_leases(later)
        self.messages.mark_returned([*failed, *later])
        for key_queue, holder in restarted:
            self._backlog.requeue_key(key_queue, holder, failed=True, now=now.monotonic)
        self._announce_due(self._backlog.next_due())
        self._observer.returned(self.name, failed, why)
        if later:
            self._observer.returned(self.name, later, LeaseEnd.GIVEN_BACK)
        self.messages.finish(finished)

    def _drop_too_old(self, key_queue: KeyQueue, now: Now) -> list[Delivery]:
        """Remove from a key the messages that became too old while they were leased."""
        dropped: list[Delivery] = []
        while key_queue.waiting and self._retention.is_too_old(key_queue.waiting[0].record):
            dropped.append(key_queue.waiting.popleft())
        if key_queue.waiting:
            self._add_publish_time(key_queue.waiting[0].record.publish_ms, now)
        return dropped

    def _is_dead(self, delivery: Delivery) -> bool:
        most, topic = self.policy.max_attempts, self.policy.dead_letter_topic
        return 0 < most <= delivery.attempts and self._topic_exists(topic)

    def forward_dead_letters(
        self, publish: Callable[[str, list[pubsub.PubsubMessage]], None]
    ) -> None:
        """Publish the messages that failed too often, and finish them.

        Args:
            publish: Called with the name of the dead-letter topic and the messages, which have
                attributes that name their source.
        """
        dead, self._dead = self._dead, []
        if dead:
            topic = self.policy.dead_letter_topic
            publish(topic, [_dead_letter(d, self.name) for d in dead])
            self._observer.dead_lettered(self.name, dead, topic)
            self.messages.finish(dead)

    def restart(self, wanted: SeqSet, now: Now) -> None:
        """Make exactly these messages unfinished, and all of them ready. All leases end.

        Ack IDs from before are stale, because an acknowledgement that is still in transit belongs
        to the time before the seek.

        Args:
            wanted: The messages. The log must have their records.
            now: The present time.
        """
        back = self.messages.replace(wanted, now)
        self.consumers.forget_leases()
        oldest_ms = self.messages.oldest_ms
        if back and oldest_ms is not None:
            self._retention.add_publish_time(oldest_ms)
        if self.policy.accepts is not None and self.messages.needs_filter:
            self.log.work.add(self._unstock_all(), now.monotonic)
        self._wake_next()

    def _unstock_all(self) -> Iterator[None]:
        """Move the stock into the backlog, in slices."""
        stock = self.messages.stock
        while stock and stock is self.messages.stock:
            self._unstock()
            self._wake_next()
            yield

    def _unstock(self) -> int:
        return self.messages.unstock(self.policy.accepts, ordered=self.policy.ordered)

    def resumes_at(self, delivery: Delivery) -> float | None:
        """Return the monotonic time before which a waiting message is not redelivered, if any."""
        return self._backlog.resumes_at(delivery)

    def drop_all(self, now: Now, *, report: bool) -> None:
        """Remove every message and every lease. With `report`, inform the observer."""
        self.messages.replace(SeqSet(), now, report=report)
        self.consumers.forget_leases()
        self.log.keep_for(self.name, None)
        self.acked_ids.clear()

    # ---- time ----------------------------------------------------------------------------------

    def touch(self, now: Now) -> None:
        """Record that the subscription is in use, which postpones its expiry."""
        self._last_active = now.monotonic

    def is_expired(self, now: Now) -> bool:
        """Return whether it has no consumer and was unused for the TTL of its expiration policy."""
        due = self._expires_at()
        return not self.consumers and due is not None and due <= now.monotonic

    def _expires_at(self) -> float | None:
        return None if self.policy.ttl is None else self._last_active + self.policy.ttl

    def _announce_due(self, due: float | None) -> None:
        if due is not None:
            self._announce(self, due)

    def next_due(self, now: Now) -> float | None:
        """Return the monotonic time of the next end of a lease or wait, sweep, or expiry."""
        dues = (
            self.leases.next_due(),
            self._backlog.next_due(),
            self._retention.next_due(self.policy.retention, now),
            self._expires_at(),
            self.acked_ids.next_due(),
        )
        return min((due for due in dues if due is not None), default=None)

    def advance(self, now: Now) -> None:
        """End the leases and waits that are due, and drop the messages that are too old."""
        ended = [delivery for _, delivery in self.leases.pop_due(now.monotonic, SLICE)]
        self._give_back(ended, LeaseEnd.EXPIRED, now)
        self._backlog.advance(now.monotonic)
        self.acked_ids.drop_expired(now.monotonic)
        cutoff_ms = self._retention.cutoff_ms(self.policy.retention, now)
        if cutoff_ms is not None:
            self._retention.mark_swept(cutoff_ms, self.messages.drop_older(cutoff_ms), now)
        if self.consumers:
            self.touch(now)
        self._wake_next()

    # ---- consumers -----------------------------------------------------------------------------

    def leave(
        self, consumer: Consumer, now: Now, *, give_back: Iterable[str] | None = None
    ) -> None:
        """Remove a consumer. Its other leases continue until their deadlines, and keep their keys.

        Args:
            consumer: The consumer.
            now: The present time.
            give_back: Ack IDs of the messages that other consumers get immediately, without a
                counted attempt. None: all messages that it holds.
        """
        self.consumers.remove_consumer(consumer)
        if give_back is None and consumer.outstanding_messages:
            give_back = [delivery.ack_id for delivery in self.leases.held_by(consumer)]
        self._end(give_back or (), LeaseEnd.GIVEN_BACK, now)
        self._backlog.release_reserved(consumer)
        self.touch(now)
        self._wake_next()

    def _wake_next(self) -> None:
        shared = self._backlog.shared + bool(self.messages.stock)
        self.consumers.wake_next(shared)


def _earliest_of_each_key(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the messages without an ordering key, and the earliest message of each key."""
    earliest: dict[KeyQueue | Delivery, Delivery] = {}
    for delivery in deliveries:
        first = earliest.setdefault(delivery.key_queue or delivery, delivery)
        if delivery.record.seq < first.record.seq and delivery.key_queue is not None:
            earliest[delivery.key_queue] = delivery
    return list(earliest.values())


def _dead_letter(delivery: Delivery, subscription: str) -> pubsub.PubsubMessage:
    """Return the message for the dead-letter topic, with attributes that name its source."""
    message = delivery.record.message()
    published = datetime.datetime.fromtimestamp(
        delivery.record.publish_ms / 1000, tz=datetime.timezone.utc
    )
    message.attributes.update(
        dead_letters.source_attributes(subscription, delivery.attempts, published)
    )
    return message
