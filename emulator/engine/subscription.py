"""One subscription: what becomes of a message when a lease ends, and as time passes.

A message moves  waiting -> leased -> finished  by an acknowledgement, or back to waiting by a nack,
by the end of its lease, or because its consumer went away. docs/engine.md tells all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from protocol.messages import pubsub_pb2 as pubsub

from .ack_ids import INVALID
from .consumer import Consumer
from .consumers import Consumers
from .log import Log
from .moment import Moment
from .observer import Observer, Return
from .record import Delivery, Record
from .retention import Retention
from .terms import Terms
from .unfinished import Unfinished

# Most messages in one response, as the real service has it.
MAX_PER_RESPONSE = 1000


class Subscription:
    """Backlog and leases of one subscription. Not thread-safe: it belongs to the engine's owner.

    Guarantees: a message is under at most one lease at a time; a message leaves only by an
    acknowledgement of its newest lease, by its age, by a seek, or for the dead-letter topic;
    messages of one ordering key are never delivered out of order (see KeyLane); a waiting consumer
    with room is woken when something becomes ready.

    since: the topic's newest sequence number when the subscription was made.
    messages: all that is not finished.
    dead: what failed too often. The owner publishes it to the dead-letter topic and finishes it.
    """

    def __init__(
        self,
        config: pubsub.Subscription,
        log: Log,
        numbers: Iterator[int],
        now: Moment,
        *,
        topic_exists: Callable[[str], bool],
        observer: Observer | None = None,
    ) -> None:
        self.name = config.name
        self.log = log
        self.since = log.head_seq
        self.messages = Unfinished(config.name, log, numbers, observer)
        self.dead: list[Delivery] = []
        self._topic_exists = topic_exists
        self._observer = observer
        self.consumers = Consumers()
        self._retention = Retention()
        self._last_active = now.monotonic
        # Set when something may be due before the moment that `next_due` told last.
        self.due_is_nearer = True
        self.configure(config)

    def configure(self, config: pubsub.Subscription) -> None:
        """Take new settings; they hold from now on, for what is there too."""
        self.config = config
        self.terms = Terms.of(config)
        self.log.keep_for(self.name, self.terms.retention if self.terms.retains_acked else None)
        if self.terms.retains_acked:
            self.log.remember(delivery.record for delivery in self.messages)

    # ---- messages in ---------------------------------------------------------------------------

    def offer(
        self, records: Sequence[Record], messages: Iterable[pubsub.PubsubMessage]
    ) -> Sequence[int]:
        """Add newly published records; returns the numbers of those that the filter keeps back."""
        kept_back: Sequence[int] = ()
        if self.terms.accepts is not None:
            verdicts = [self.terms.accepts(message.attributes) for message in messages]
            pairs = list(zip(records, verdicts, strict=True))
            kept_back = [record.seq for record, passes in pairs if not passes]
            records = [record for record, passes in pairs if passes]
            if not records:
                return kept_back
        for record in records:
            record.holders += 1
        self.messages.backlog.add(records, ordered=self.terms.ordered)
        self.due_is_nearer |= self._retention.add(records[0].publish_ms)
        self._wake_next()
        return kept_back

    def restore(self, deliveries: Sequence[Delivery]) -> None:
        """Take up what was unfinished in a former life."""
        for delivery in deliveries:
            delivery.record.holders += 1
            self._retention.add(delivery.record.publish_ms)
        self.messages.backlog.fill(deliveries)

    # ---- messages out --------------------------------------------------------------------------

    def take(
        self, consumer: Consumer, now: float, limit: int = MAX_PER_RESPONSE
    ) -> list[tuple[str, Delivery]]:
        """Lease up to `limit` messages to `consumer`; pairs of ack id and delivery.

        An empty list means that there is nothing for it (or it has no room): it will be woken.
        Several hungry consumers share what is there in equal parts.
        """
        consumer.asleep = False
        share = self.consumers.share(self.messages.backlog.shared, consumer)
        deliveries = self.messages.backlog.take(consumer, limit, share)
        if not deliveries:
            # The others, not itself: it may have been woken, alone, for what is theirs or nobody's.
            self._wake_next()
            self.consumers.hungry(consumer)
            return []
        taken = self.messages.leases.grant(deliveries, consumer, now)
        self.consumers.fed(consumer)
        if self._observer is not None:
            self._observer.delivered(self.name, deliveries)
        self._wake_next()
        return taken

    # ---- outcomes ------------------------------------------------------------------------------

    def refusals(self, ack_ids: Iterable[str], *, acknowledging: bool) -> dict[str, str]:
        """The failure codes of those ids that cannot be acknowledged, or extended, now."""
        in_order = acknowledging and self.terms.exactly_once
        return self.messages.leases.refusals(ack_ids, in_order=in_order)

    def acknowledge(self, ack_ids: Sequence[str], now: float) -> dict[str, str]:
        """Acknowledge leased messages; returns the ids that were refused, and why.

        Raises:
            InvalidArgument: an id is not one of this subscription's. Then nothing is applied.
        """
        leases, exactly_once = self.messages.leases, self.terms.exactly_once
        leases.check(ack_ids)
        refused = self.refusals(ack_ids, acknowledging=True) if exactly_once else {}
        acked: list[Delivery] = []
        finished: list[Delivery] = []
        # An id named twice in one request is not stale the second time.
        for ack_id in dict.fromkeys(ack_ids):
            if ack_id in refused:
                continue
            delivery = leases.pop(ack_id)
            if delivery is None:
                # It spares a duplicate. No lease of a key or with exactly-once comes here.
                delivery = leases.late(ack_id)
                if delivery is None:
                    refused[ack_id] = INVALID
                    continue
                delivery.acked = True
            acked.append(delivery)
            holder, lane = leases.free(delivery), delivery.lane
            if lane is None:
                finished.append(delivery)
            else:
                finished += lane.acknowledge(delivery)
                self.messages.backlog.settled(lane, holder, failed=False, now=now)
                self.due_is_nearer |= lane.delayed
        if acked and self._observer is not None:
            self._observer.acknowledged(self.name, acked)
        self.messages.finish(finished)
        # Who acknowledges in vain is done with it: its key need not wait for the lease's end.
        self._end([i for i, why in refused.items() if why == INVALID], Return.GIVEN_BACK, now)
        self._wake_next()
        return refused

    def modify_ack_deadline(
        self, ack_ids: Sequence[str], seconds: int, now: float
    ) -> dict[str, str]:
        """Let leases end `seconds` from now; 0 gives the messages up at once (a nack).

        Returns the ids that are no longer valid; raises as `acknowledge`.
        """
        self.messages.leases.check(ack_ids)
        refused = self.refusals(ack_ids, acknowledging=False)
        live = [ack_id for ack_id in dict.fromkeys(ack_ids) if ack_id not in refused]
        if seconds == 0:
            self._end(live, Return.NACK, now)
        elif live:
            extended = [(i, delivery) for i in live if (delivery := self.messages.leases.get(i))]
            self.messages.leases.set_all(extended, seconds, now)
            if self._observer is not None:
                self._observer.extended(self.name, [d for _, d in extended], seconds)
        self._wake_next()
        return refused

    def expire(self, ack_ids: Iterable[str] | None, now: float) -> int:
        """End leases before their time; all of them without `ack_ids`. Returns how many."""
        known = [delivery.ack_id for delivery in self.messages.leases.values()]
        asked = known if ack_ids is None else [i for i in set(ack_ids) if i in self.messages.leases]
        self._end(asked, Return.EXPIRED, now)
        self._wake_next()
        return len(asked)

    def _end(self, ack_ids: Iterable[str], why: Return, now: float) -> None:
        popped = [self.messages.leases.pop(ack_id) for ack_id in ack_ids]
        self._give_back([delivery for delivery in popped if delivery is not None], why, now)

    def _give_back(self, deliveries: list[Delivery], why: Return, now: float) -> None:
        """Leases have ended without an acknowledgement."""
        if not deliveries:
            return
        self.due_is_nearer = True
        finished: list[Delivery] = []
        for delivery in deliveries:
            holder, lane, due = self.messages.leases.free(delivery), delivery.lane, now
            if why is not Return.GIVEN_BACK:
                delivery.attempts += 1
                due += self.terms.retry.delay(delivery.attempts)
            is_dead = why is not Return.GIVEN_BACK and self._is_dead(delivery)
            if is_dead or self._retention.is_too_old(delivery.record):
                (self.dead if is_dead else finished).append(delivery)
                if lane is not None:
                    finished += lane.drop(delivery)
            elif lane is not None:
                lane.fail(delivery, due)
                self._retention.add(delivery.record.publish_ms)
            else:
                self.messages.leases.returned(delivery)
                self.messages.backlog.put_back(delivery, due, now)
            if lane is not None:
                self.messages.backlog.settled(lane, holder, failed=True, now=now)
        if self._observer is not None:
            self._observer.returned(self.name, deliveries, why)
        self.messages.finish(finished)

    def _is_dead(self, delivery: Delivery) -> bool:
        most, topic = self.terms.max_attempts, self.terms.dead_letter_topic
        return 0 < most <= delivery.attempts and self._topic_exists(topic)

    def moved(self, back: Sequence[Record], done: Sequence[Delivery]) -> None:
        """A seek has ended all leases, put messages into the backlog and taken others out."""
        self.consumers.forget_keys()
        if back:
            self._retention.add(min(record.publish_ms for record in back))
            if self._observer is not None:
                self._observer.unfinished(self.name, [record.seq for record in back])
        self.messages.finish(done)
        self._wake_next()

    def drop_all(self, *, tell: bool) -> None:
        """Forget every message and every lease; the observer is told of it if so asked."""
        self.messages.clear(tell=tell)
        self.consumers.forget_keys()
        self.log.keep_for(self.name, None)

    # ---- time ----------------------------------------------------------------------------------

    def touch(self, now: Moment) -> None:
        """Somebody has use for it: it does not expire for another while."""
        self._last_active = now.monotonic

    def is_expired(self, now: Moment) -> bool:
        due = self._expires_at()
        return not self.consumers and due is not None and due <= now.monotonic

    def _expires_at(self) -> float | None:
        return None if self.terms.ttl is None else self._last_active + self.terms.ttl

    def next_due(self, now: Moment) -> float | None:
        self.due_is_nearer = False
        moments = (
            self.messages.leases.next_due(),
            self.messages.backlog.next_due(),
            self._retention.next_due(self.terms.retention, now),
            self._expires_at(),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def advance(self, now: Moment) -> None:
        """End every lease that is due, and every wait; drop what is too old."""
        ended = [delivery for _, delivery in self.messages.leases.pop_due(now.monotonic)]
        self._give_back(ended, Return.EXPIRED, now.monotonic)
        self.messages.backlog.advance(now.monotonic)
        cutoff_ms = self._retention.cutoff_ms(self.terms.retention, now)
        if cutoff_ms is not None:
            self._retention.swept(cutoff_ms, self.messages.drop_older(cutoff_ms), now)
        if self.consumers:
            self.touch(now)
        self._wake_next()

    # ---- consumers -----------------------------------------------------------------------------

    def leave(self, consumer: Consumer, now: Moment, *, give_back: bool = True) -> None:
        self.consumers.leave(consumer)
        if give_back and consumer.outstanding_messages:
            held = [delivery.ack_id for delivery in self.messages.leases.held_by(consumer)]
            self._end(held, Return.GIVEN_BACK, now.monotonic)
        self.touch(now)
        self._wake_next()

    def _wake_next(self) -> None:
        backlog = self.messages.backlog
        self.consumers.wake_next(backlog.shared, keyed=bool(backlog.lanes))
