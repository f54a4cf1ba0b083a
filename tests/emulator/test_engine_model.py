"""Anything may happen in any order, and the engine keeps its promises (hypothesis).

After every step: nothing is delivered twice while leased, keys keep their order, flow control
holds, and not all are asleep while there is work for one of them. At the end nothing was lost.

PULLSTREAM_MODEL_EXAMPLES=20000 searches longer than the suite does.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.emulator.broker import SUBSCRIPTION, Broker, ConsumerDriver, Got
from tests.emulator.model import Model, Room

Limits = tuple[int, int, int]
limits = st.tuples(
    st.sampled_from([10, 60]),
    st.sampled_from([-1, 0, 0, 1, 2, 3]),
    st.sampled_from([0, 0, 0, 1, 100]),
)
picks = st.lists(st.integers(0, 1000), min_size=1, max_size=4)
pick = st.integers(0, 1000)


class EngineModel(RuleBasedStateMachine):
    """Consumers have numbers. One sleeps that got nothing when it last took and was not woken."""

    @initialize(
        ordered=st.sampled_from([True, True, False]),
        exactly_once=st.sampled_from([False, False, True]),
        limits=st.lists(limits, min_size=1, max_size=3),
    )
    def start(self, ordered: bool, exactly_once: bool, limits: list[Limits]) -> None:
        self.broker = Broker(
            enable_message_ordering=ordered, enable_exactly_once_delivery=exactly_once
        )
        self.model = Model(ordered=ordered, exactly_once=exactly_once)
        self.consumers: dict[int, ConsumerDriver] = {}
        # How often each sleeping consumer had been woken when it fell asleep.
        self.asleep: dict[int, int] = {}
        self.deadlines: dict[int, int] = {}
        self.count = 0
        for each in limits:
            self.new_consumer(*each)

    @rule(
        key=st.sampled_from(["a", "a", "b", ""]),
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
        settle=st.booleans(),
    )
    def publish(self, key: str, sizes: list[int], settle: bool) -> None:
        data = [f"{len(self.model.by_data) + i}{'.' * size}" for i, size in enumerate(sizes)]
        for each in data:
            self.model.publish(each, key)
        self.broker.publish(*data, key=key)
        self.settle_if(settle)

    def new_consumer(self, deadline: int, max_messages: int = 0, max_bytes: int = 0) -> int:
        self.count += 1
        self.consumers[self.count] = self.broker.join(
            deadline=deadline, max_messages=max_messages, max_bytes=max_bytes
        )
        self.deadlines[self.count] = deadline
        self.model.rooms[self.count] = Room(max_messages, max_bytes)
        return self.count

    def choose(self, number: int) -> int:
        return list(self.consumers)[number % len(self.consumers)]

    @rule(number=pick, limit=st.sampled_from([1, 2, 3, 1000]))
    def take(self, number: int, limit: int) -> None:
        self.take_for(self.choose(number), limit)

    def take_for(self, consumer: int, limit: int) -> list[Got]:
        now = self.broker.clock.monotonic()
        got = self.consumers[consumer].take(limit)
        assert len(got) <= limit
        for each in got:
            self.model.deliver(
                consumer,
                each.data,
                each.ack_id,
                each.size,
                each.failed_before,
                now + self.deadlines[consumer],
            )
        if got:
            self.asleep.pop(consumer, None)
        else:
            nothing = not self.model.rooms[consumer].is_left or not self.model.available(consumer)
            assert nothing, "a consumer with room got nothing although there was something"
            self.asleep[consumer] = self.consumers[consumer].wakes
        return got

    def settle_if(self, settle: bool) -> None:
        """Let whoever is awake take what there is; then nobody sleeps who could have something."""
        self.nobody_sleeps_through_work()
        while settle and (awake := [n for n in self.consumers if n not in self.asleep]):
            for number in awake:
                self.take_for(number, 1000)
            self.nobody_sleeps_through_work()

    @rule(limit=st.sampled_from([1, 3, 1000]))
    def pull(self, limit: int) -> None:
        """A call that takes and is answered; its leases go on without it."""
        consumer = self.new_consumer(10)
        self.take_for(consumer, limit)
        self.consumers.pop(consumer).leave(give_back=False)
        self.asleep.pop(consumer, None)

    @rule(number=pick, limits=limits, settle=st.booleans())
    def cut(self, number: int, limits: Limits, settle: bool) -> None:
        """A stream is cut, or a waiting pull given up; another one comes."""
        consumer = self.choose(number)
        self.consumers.pop(consumer).leave()
        self.asleep.pop(consumer, None)
        self.model.give_back(consumer)
        self.new_consumer(*limits)
        self.settle_if(settle)

    def anything_given(self) -> bool:
        return bool(self.model.given)

    def chosen_ids(self, numbers: list[int]) -> list[str]:
        """Ids of leases rather than old ones, but those too."""
        live, ever = list(self.model.leases), list(self.model.given)
        return [live[n % len(live)] if live and n % 4 else ever[n % len(ever)] for n in numbers]

    @precondition(anything_given)
    @rule(numbers=picks, settle=st.booleans())
    def acknowledge(self, numbers: list[int], settle: bool) -> None:
        ids = self.chosen_ids(numbers)
        stale = self.broker.engine.acknowledge(SUBSCRIPTION, ids)
        assert set(stale) == self.model.acknowledge(ids)
        self.settle_if(settle)

    @precondition(anything_given)
    @rule(numbers=picks, seconds=st.sampled_from([0, 0, 1, 30, 600]), settle=st.booleans())
    def modify(self, numbers: list[int], seconds: int, settle: bool) -> None:
        ids = self.chosen_ids(numbers)
        stale = self.broker.engine.modify_ack_deadline(SUBSCRIPTION, ids, seconds)
        assert set(stale) == self.model.modify(ids, seconds, self.broker.clock.monotonic())
        self.settle_if(settle)

    @rule(seconds=st.sampled_from([1, 5, 10, 50]), settle=st.booleans())
    def advance(self, seconds: int, settle: bool) -> None:
        self.broker.advance(seconds)
        self.model.expire(self.broker.clock.monotonic())
        self.settle_if(settle)

    # ---- after every step ----------------------------------------------------------------------

    @invariant()
    def outstanding_is_what_is_leased(self) -> None:
        for number, driver in self.consumers.items():
            room, consumer = self.model.rooms[number], driver.consumer
            assert consumer.outstanding_messages == room.messages
            assert consumer.outstanding_bytes == room.bytes

    @invariant()
    def backlog_is_what_is_unfinished(self) -> None:
        assert self.broker.backlog == self.model.backlog

    @invariant()
    def every_lease_has_an_announced_end(self) -> None:
        due = self.broker.engine.next_due()
        for lease in self.model.leases.values():
            assert due is not None
            assert due <= lease.due

    @invariant()
    def nobody_sleeps_through_work(self) -> None:
        for number, wakes in list(self.asleep.items()):
            if self.consumers[number].wakes > wakes:
                del self.asleep[number]
        if len(self.asleep) < len(self.consumers):
            # Somebody is awake. It will take, and what it leaves wakes the next.
            return
        for number in self.asleep:
            if self.model.rooms[number].is_left:
                assert not self.model.available(number), f"consumer {number} sleeps through work"

    def teardown(self) -> None:
        """Whoever takes and acknowledges all that comes sees every message to its end."""
        if not hasattr(self, "model"):
            return
        consumer = self.new_consumer(10)
        for _ in range(3):
            while got := self.take_for(consumer, 1000):
                ids = [each.ack_id for each in got]
                assert self.broker.engine.acknowledge(SUBSCRIPTION, ids) == []
                assert self.model.acknowledge(ids) == set()
            # What others still held comes now.
            self.advance(600, settle=False)
        assert self.model.backlog == self.broker.backlog == 0


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(
    max_examples=int(os.environ.get("PULLSTREAM_MODEL_EXAMPLES", "300")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
