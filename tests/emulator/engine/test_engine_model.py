"""Model test of the engine with random operations in any order (hypothesis).

After each step the test checks that no leased message is delivered again, that ordering keys keep
their order, that flow control holds, that messages with too many failures are in the dead-letter
topic, and that not all consumers sleep while there is a message for one of them. At the end no
message is lost.

PULLSTREAM_MODEL_EXAMPLES=20000 searches longer than the normal suite.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pullstream_emulator.engine import Consumer, Engine
from pullstream_emulator.engine.delivery import unacked
from pullstream_emulator.engine.resources import publish_columns
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, Broker, ConsumerDriver, Got
from tests.emulator.keeper import Keeper
from tests.emulator.model import Lease, Message, Model, Room, Terms

DEAD_TOPIC = f"{PROJECT}/topics/dead"
DEAD_SUBSCRIPTION = f"{PROJECT}/subscriptions/undertaker"

Limits = tuple[int, int, int]
limits = st.tuples(
    st.sampled_from([10, 60]),
    st.sampled_from([-1, 0, 0, 1, 2, 3]),
    st.sampled_from([0, 0, 0, 1, 100]),
)
terms = st.builds(
    Terms,
    ordered=st.sampled_from([True, True, False]),
    exactly_once=st.sampled_from([False, False, True]),
    filtered=st.sampled_from([False, False, True]),
    retains=st.booleans(),
    retry=st.sampled_from([(0, 0), (0, 0), (2, 7), (10, 600)]),
    attempts=st.sampled_from([0, 5]),
)
# Messages in a slice of long work, and slices that run at once. With small slices, other operations
# come between those of a seek.
SLICES = [(1000, 3), (1, 0), (2, 1)]
# The least messages of a request that is read by columns, and of leases that are granted as a run.
RUNS = [(unacked.MIN_RUN, publish_columns.MIN_MESSAGES), (1, 1), (1, 1000), (2, 3)]
picks = st.lists(st.integers(0, 1000), min_size=1, max_size=4)
pick = st.integers(0, 1000)


class EngineModel(RuleBasedStateMachine):
    """The model. Consumers have numbers.

    A consumer sleeps if its last take returned nothing and it has not been woken since.
    """

    @initialize(
        terms=terms,
        limits=st.lists(limits, min_size=1, max_size=3),
        slices=st.sampled_from(SLICES),
        runs=st.sampled_from(RUNS),
    )
    def start(
        self,
        terms: Terms,
        limits: list[Limits],
        slices: tuple[int, int],
        runs: tuple[int, int],
    ) -> None:
        self.slices = slices
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(unacked, "MIN_RUN", runs[0])
        self.patch.setattr(publish_columns, "MIN_MESSAGES", runs[1])
        self.clock = ManualClock()
        self.keeper = Keeper()
        self.model = Model(terms)
        engine = self.new_engine()
        engine.create_topic(pubsub.Topic(name=DEAD_TOPIC))
        engine.create_subscription(pubsub.Subscription(name=DEAD_SUBSCRIPTION, topic=DEAD_TOPIC))
        self.broker = Broker(self.clock, engine=engine, **self.settings(terms))
        self.dead: list[tuple[str, int]] = []
        self.snapshot: tuple[int, set[int]] | None = None
        self.consumers: dict[int, ConsumerDriver] = {}
        # The number of wake-ups of each sleeping consumer at the time when it fell asleep.
        self.asleep: dict[int, int] = {}
        self.deadlines: dict[int, int] = {}
        self.count = 0
        for each in limits:
            self.new_consumer(*each)

    def new_engine(self) -> Engine:
        engine = Engine(wall=self.clock.now, monotonic=self.clock.monotonic, observer=self.keeper)
        work = engine.registry.work
        work.size, work.at_once = self.slices
        return engine

    def settings(self, terms: Terms) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "enable_message_ordering": terms.ordered,
            "enable_exactly_once_delivery": terms.exactly_once,
            "retain_acked_messages": terms.retains,
            "filter": 'attributes.kind = "good"' if terms.filtered else "",
        }
        low, high = terms.retry
        if high:
            fields["retry_policy"] = pubsub.RetryPolicy(
                minimum_backoff=Duration(seconds=low), maximum_backoff=Duration(seconds=high)
            )
        if terms.attempts:
            fields["dead_letter_policy"] = pubsub.DeadLetterPolicy(
                dead_letter_topic=DEAD_TOPIC, max_delivery_attempts=terms.attempts
            )
        return fields

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    # ---- messages ------------------------------------------------------------------------------

    @rule(
        key=st.sampled_from(["a", "a", "b", ""]),
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
        good=st.booleans(),
        settle=st.booleans(),
    )
    def publish(self, key: str, sizes: list[int], good: bool, settle: bool) -> None:
        data = [f"{len(self.model.by_data) + i}{'.' * size}" for i, size in enumerate(sizes)]
        for each in data:
            self.model.publish(each, key, self.now, matches=good)
        self.broker.publish(*data, key=key, kind="good" if good else "bad")
        self.settle_if(settle)

    def new_consumer(self, deadline: int, max_messages: int = 0, max_bytes: int = 0) -> int:
        self.count += 1
        self.consumers[self.count] = self.broker.join(
            deadline=deadline, max_messages=max_messages, max_bytes=max_bytes
        )
        self.deadlines[self.count] = deadline
        self.model.rooms[self.count] = Room(max_messages, max_bytes)
        self.model.here.add(self.count)
        return self.count

    def choose(self, number: int) -> int:
        return list(self.consumers)[number % len(self.consumers)]

    @rule(number=pick, limit=st.sampled_from([1, 2, 3, 1000]))
    def take(self, number: int, limit: int) -> None:
        self.take_for(self.choose(number), limit)

    def take_for(self, consumer: int, limit: int) -> list[Got]:
        got = self.consumers[consumer].take(limit)
        assert len(got) <= limit
        for each in got:
            message = self.model.by_data[each.data]
            assert each.failed_before == message.failed
            self.model.deliver(consumer, message, each.ack_id, each.size, self.now)
            due = self.now + self.deadlines[consumer]
            self.model.leases[each.ack_id] = Lease(message, consumer, due)
        if got:
            self.asleep.pop(consumer, None)
        else:
            room = self.model.rooms[consumer]
            nothing = not room.is_left or not self.model.available(consumer, self.now)
            assert nothing, "a consumer with room got nothing although there was something"
            self.asleep[consumer] = self.consumers[consumer].wakes
        return got

    def settle_if(self, settle: bool) -> None:
        """Let the awake consumers take messages, until no sleeping one could receive any."""
        self.nobody_sleeps_through_work()
        while settle and (awake := [n for n in self.consumers if n not in self.asleep]):
            for number in awake:
                self.take_for(number, 1000)
            self.nobody_sleeps_through_work()

    @rule(limit=st.sampled_from([1, 3, 1000]))
    def pull(self, limit: int) -> None:
        """Pull in a call that is answered. Its leases outlive the call."""
        consumer = self.new_consumer(10)
        self.take_for(consumer, limit)
        self.consumers.pop(consumer).leave(give_back=False)
        self.model.leave(consumer, self.now, give_back=False)
        self.asleep.pop(consumer, None)

    @rule(number=pick, limits=limits, settle=st.booleans())
    def cut(self, number: int, limits: Limits, settle: bool) -> None:
        """Cancel a stream or a waiting pull, and open another one."""
        consumer = self.choose(number)
        self.consumers.pop(consumer).leave()
        self.asleep.pop(consumer, None)
        self.model.leave(consumer, self.now, give_back=True)
        self.new_consumer(*limits)
        self.settle_if(settle)

    # ---- outcomes ------------------------------------------------------------------------------

    def anything_given(self) -> bool:
        return bool(self.model.given)

    def chosen_ids(self, numbers: list[int]) -> list[str]:
        """Choose IDs, of leases more often than old ones."""
        live, ever = list(self.model.leases), list(self.model.given)
        return [live[n % len(live)] if live and n % 4 else ever[n % len(ever)] for n in numbers]

    @precondition(anything_given)
    @rule(numbers=picks, settle=st.booleans())
    def acknowledge(self, numbers: list[int], settle: bool) -> None:
        ids = self.chosen_ids(numbers)
        ids = [each for each in ids if not self.model.may_be_forgotten(each, self.now)]
        if ids:
            refused = self.broker.engine.acknowledge(SUBSCRIPTION, ids)
            assert refused == self.model.acknowledge(ids, self.now)
        self.settle_if(settle)

    @precondition(anything_given)
    @rule(numbers=picks, seconds=st.sampled_from([0, 0, 1, 30, 600]), settle=st.booleans())
    def modify(self, numbers: list[int], seconds: int, settle: bool) -> None:
        ids = self.chosen_ids(numbers)
        refused = self.broker.engine.modify_ack_deadline(SUBSCRIPTION, ids, seconds)
        assert refused == self.model.modify(ids, seconds, self.now)
        self.settle_if(settle)

    @rule(seconds=st.sampled_from([1, 5, 10, 50]), settle=st.booleans())
    def advance(self, seconds: int, settle: bool) -> None:
        self.broker.advance(seconds)
        self.model.advance(self.now)
        self.settle_if(settle)

    @rule(settle=st.booleans())
    def work_on(self, settle: bool) -> None:
        """Do one slice of long work."""
        self.broker.engine.advance()
        self.settle_if(settle)

    @precondition(anything_given)
    @rule(settle=st.booleans())
    def nack_all(self, settle: bool) -> None:
        """Nack as often as a message needs to become dead."""
        ids = list(self.model.leases)
        if ids:
            self.broker.engine.modify_ack_deadline(SUBSCRIPTION, ids, 0)
            self.model.modify(ids, 0, self.now)
        self.settle_if(settle)

    # ---- seeks, and a restart ------------------------------------------------------------------

    @rule(ago=st.sampled_from([-1, 0, 1, 10, 100]), settle=st.booleans())
    def seek_to_time(self, ago: int, settle: bool) -> None:
        time = Timestamp()
        time.FromMilliseconds(round((self.clock.now() - ago) * 1000))
        self.broker.engine.seek(pubsub.SeekRequest(subscription=SUBSCRIPTION, time=time))
        since = self.now - ago
        self.model.seek(lambda m: m.published >= since, lambda m: self.model.terms.retains)
        self.settle_if(settle)

    @rule()
    def take_snapshot(self) -> None:
        engine = self.broker.engine
        if self.snapshot is not None:
            engine.delete_snapshot(SNAPSHOT)
        request = pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)
        engine.create_snapshot(request)
        messages = self.model.by_data.values()
        self.snapshot = len(messages), {m.seq for m in messages if not m.done}

    @precondition(lambda self: self.snapshot is not None)
    @rule(settle=st.booleans())
    def seek_to_snapshot(self, settle: bool) -> None:
        assert self.snapshot is not None
        since, unfinished = self.snapshot

        def belongs(message: Message) -> bool:
            return message.seq > since or message.seq in unfinished

        request = pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT)
        self.broker.engine.seek(request)
        self.model.seek(belongs, belongs)
        self.settle_if(settle)

    @rule(limits=limits)
    def restart(self, limits: Limits) -> None:
        """Restart the broker from the state that an observer has recorded."""
        self.broker.engine = self.new_engine()
        self.broker.engine.restore(self.keeper.everything())
        self.broker.engine.restore_acked(self.keeper.acked)
        self.model.restart()
        self.consumers.clear()
        self.asleep.clear()
        self.new_consumer(*limits)

    # ---- after every step ----------------------------------------------------------------------

    @invariant()
    def outstanding_is_what_is_leased(self) -> None:
        for number, driver in self.consumers.items():
            room, consumer = self.model.rooms[number], driver.consumer
            assert consumer.outstanding_messages == room.messages
            assert consumer.outstanding_bytes == room.bytes

    @invariant()
    def backlog_is_what_is_unfinished(self) -> None:
        if self.model.terms.filtered and self.unsorted:
            # The filter has not seen some messages that a seek has brought back.
            assert self.broker.backlog >= self.model.backlog
        else:
            assert self.broker.backlog == self.model.backlog

    @property
    def unsorted(self) -> int:
        """Number of messages that a seek has not put into the queues yet."""
        return len(self.broker.engine.registry.subscription(SUBSCRIPTION).messages.stock)

    @invariant()
    def the_dead_are_in_their_topic(self) -> None:
        engine = self.broker.engine
        consumer = Consumer(ack_deadline=10, wake=lambda: None)
        subscription = engine.join(DEAD_SUBSCRIPTION, consumer)
        for ack_id, delivery in engine.take(subscription, consumer):
            message = delivery.record.message()
            count = message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"]
            self.dead.append((message.data.decode(), int(count)))
            engine.acknowledge(DEAD_SUBSCRIPTION, [ack_id])
        engine.leave(subscription, consumer)
        assert sorted(self.dead) == sorted(self.model.dead)

    @invariant()
    def every_lease_has_an_announced_end(self) -> None:
        due = self.broker.engine.next_due()
        for lease in self.model.leases.values():
            assert due is not None
            assert due <= lease.due

    @invariant()
    def every_wait_has_an_announced_end(self) -> None:
        """Check the announced end of every delay, of messages and of keys."""
        moments = [m.not_before for m in self.model.by_data.values() if not (m.done or m.leased)]
        moments += [key.not_before for key in self.model.keys.values() if key.delayed]
        due = self.broker.engine.next_due()
        for moment in moments:
            if moment > self.now:
                assert due is not None
                assert due <= moment

    @invariant()
    def nobody_sleeps_through_work(self) -> None:
        for number, wakes in list(self.asleep.items()):
            if self.consumers[number].wakes > wakes:
                del self.asleep[number]
        if len(self.asleep) < len(self.consumers):
            # At least one consumer is awake. It takes messages, and wakes the next one for the
            # rest.
            return
        for number in self.asleep:
            if self.model.rooms[number].is_left:
                available = self.model.available(number, self.now)
                assert not available, f"consumer {number} sleeps through work"

    def teardown(self) -> None:
        """Take and acknowledge all messages, and check that each one ends."""
        if not hasattr(self, "snapshot"):
            return
        try:
            self.finish()
        finally:
            self.patch.undo()

    def finish(self) -> None:
        consumer = self.new_consumer(10)
        for _ in range(3):
            while got := self.take_for(consumer, 1000):
                ids = [each.ack_id for each in got]
                assert self.broker.engine.acknowledge(SUBSCRIPTION, ids) == {}
                assert self.model.acknowledge(ids, self.now) == {}
            # Now the messages return that other consumers held or that waited.
            self.advance(600, settle=False)
        assert self.model.backlog == self.broker.backlog == 0


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(
    max_examples=int(os.environ.get("PULLSTREAM_MODEL_EXAMPLES", "300")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
