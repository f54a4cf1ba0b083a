"""Leases: their duration, and the events that end them."""

from __future__ import annotations

import datetime

import freezegun

from pullstream_protocol.clock import SYSTEM_CLOCK, ManualClock
from tests.emulator.broker import SUBSCRIPTION, Broker, broker_holding, new_engine


def test_a_leased_message_is_not_delivered_to_another_consumer() -> None:
    """The lease ends exactly at its deadline."""
    broker = broker_holding("a")
    assert broker.join(deadline=10).take_data() == ["a"]
    other = broker.join()
    broker.advance(9.9)
    assert other.take_data() == []
    broker.advance(0.1)
    assert other.take_data() == ["a"]


def test_each_delivery_of_a_message_has_a_new_ack_id() -> None:
    """The ID distinguishes a late answer to an earlier delivery from an answer to the newest."""
    broker = broker_holding("a")
    consumer = broker.join()
    seen = set()
    for _ in range(3):
        (got,) = consumer.take()
        seen.add(got.ack_id)
        broker.nack(got)
    assert len(seen) == 3


def test_an_acknowledged_message_is_not_redelivered() -> None:
    """The message comes back neither after its deadline nor when its consumer leaves."""
    broker = broker_holding("a")
    consumer = broker.join()
    assert broker.acknowledge(*consumer.take()) == []
    broker.advance(1000)
    consumer.leave()
    assert (broker.join().take_data(), broker.backlog) == ([], 0)


def test_a_nacked_message_is_redelivered_at_once() -> None:
    """A deadline of 0 seconds is a nack."""
    broker = broker_holding("a")
    consumer = broker.join()
    broker.nack(*consumer.take())
    assert consumer.take_data() == ["a"]


def test_a_modified_ack_deadline_counts_from_the_time_of_the_modification() -> None:
    """The new deadline lengthens or shortens a lease, and a later one replaces it."""
    broker = broker_holding("a")
    consumer = broker.join(deadline=10)
    (got,) = consumer.take()
    broker.advance(9)
    broker.modify(600, got)
    broker.advance(599)
    assert consumer.take_data() == []
    broker.modify(20, got)
    broker.advance(19)
    assert consumer.take_data() == []
    broker.advance(1)
    assert consumer.take_data() == ["a"]


def test_a_lease_with_a_shortened_ack_deadline_ends_at_the_shorter_deadline() -> None:
    """The rule holds even if nothing else was due earlier."""
    broker = broker_holding("a")
    consumer = broker.join(deadline=600)
    broker.modify(1, *consumer.take())
    broker.advance(1)
    assert consumer.take_data() == ["a"]


def test_leases_that_were_granted_together_are_extended_together_or_one_by_one() -> None:
    """The engine makes no object for each of them while a call names all unsettled ones."""
    broker = broker_holding(*[str(number) for number in range(100)])
    consumer, other = broker.join(deadline=10), broker.join(deadline=600)
    got = consumer.take()
    leases = broker.engine.registry.subscription(SUBSCRIPTION).leases
    assert leases._in_runs == 100
    broker.acknowledge(*got[10:20])
    broker.advance(9)
    left = [*got[:10], *got[20:]]
    assert broker.modify(60, *reversed(left)) == []
    assert leases._in_runs == 90
    broker.advance(59)
    assert broker.modify(30, *got[:5]) == []
    assert (leases._in_runs, len(leases)) == (85, 90)
    assert other.take_data() == []
    broker.advance(1)
    assert sorted(map(int, other.take_data())) == [*range(5, 10), *range(20, 100)]
    broker.advance(29)
    assert sorted(map(int, other.take_data())) == list(range(5))


def test_extending_a_lease_does_not_lengthen_the_lease_of_the_next_delivery() -> None:
    """The next lease of the message has the default length again."""
    broker = broker_holding("a")
    consumer = broker.join(deadline=10)
    (got,) = consumer.take()
    broker.modify(600, got)
    broker.nack(got)
    assert consumer.take_data() == ["a"]
    broker.advance(10)
    assert consumer.take_data() == ["a"]


def test_leases_of_different_lengths_each_end_at_their_own_deadline() -> None:
    """The order in which they were granted does not matter."""
    broker = broker_holding("a", "b", "c")
    late, soon, middle = (broker.join(deadline=d) for d in (60, 10, 30))
    assert [c.take_data(1) for c in (late, soon, middle)] == [["a"], ["b"], ["c"]]
    ended = []
    for _ in range(60):
        broker.advance(1)
        observer = broker.join(deadline=600)
        ended += observer.take_data()
        observer.leave(give_back=False)
    assert ended == ["b", "c", "a"]


def test_the_engine_calls_its_due_callback_when_a_new_due_time_is_the_earliest() -> None:
    """The engine reports each time that is earlier than all reported ones."""
    told: list[float] = []
    clock = ManualClock()
    broker = Broker(clock, engine=new_engine(clock, on_due=told.append))
    # The time to live of the subscription, which is announced first.
    told.clear()
    broker.publish("a", "b")
    broker.join(deadline=60).take(1)
    (got,) = broker.join(deadline=10).take(1)
    broker.modify(600, got)
    assert (told, broker.engine.next_due()) == ([7 * 86400, 60, 10], 10)
    broker.advance(10)
    assert broker.engine.next_due() == 60


def test_an_engine_with_many_lease_changes_keeps_few_due_times_in_memory() -> None:
    """An announced time that an earlier one has replaced is forgotten when it is over."""
    broker = broker_holding("long", "short")
    (long,) = broker.join(deadline=600).take(1)
    consumer = broker.join(deadline=10)
    for turn in range(1000):
        assert consumer.take_data() == ["short"]
        broker.advance(10)
        if turn % 30 == 0:
            broker.modify(600, long)
    assert len(broker.engine._timetable) < 100


def test_one_published_message_wakes_only_one_waiting_consumer() -> None:
    """Of the consumers with room it is the one that has waited longest."""
    broker = broker_holding("a")
    full, first, second = broker.join(max_messages=1), broker.join(), broker.join()
    full.take()
    assert full.take() == first.take() == second.take() == []
    broker.publish("b")
    assert [full.wakes, first.wakes, second.wakes] == [0, 1, 0]
    # A further message goes to the second one, before the first has taken its own.
    broker.publish("c")
    assert [full.wakes, first.wakes, second.wakes] == [0, 1, 1]
    assert [first.take_data(), second.take_data()] == [["b"], ["c"]]


def test_a_consumer_just_below_its_byte_limit_receives_another_message() -> None:
    """As with messages, a consumer has room while it has less than its limit."""
    broker = broker_holding("a", "b")
    (a,) = broker.join().take(1)
    broker.nack(a)
    consumer = broker.join(max_bytes=a.size)
    assert len(consumer.take()) == 1
    assert consumer.take() == []


def test_redelivered_messages_and_new_messages_do_not_starve_each_other() -> None:
    """A poison message does not starve new messages, and they do not starve a redelivery."""
    broker = broker_holding("bad", "1", "2", "3")
    consumer = broker.join(max_messages=1)
    order = []
    for _ in range(6):
        (got,) = consumer.take()
        order.append(got.data)
        if got.data == "bad":
            broker.nack(got)
        else:
            broker.acknowledge(got)
    assert order.count("bad") >= 3
    assert order.index("1") < order.index("2")


def test_messages_of_a_leaving_consumer_are_redelivered_with_the_same_delivery_attempt() -> None:
    """The messages of a leaving consumer are ready at once, in order, and no attempt is counted."""
    broker = broker_holding("a", "b", "c")
    leaving = broker.join(deadline=600)
    held = leaving.take()
    broker.acknowledge(held[1])
    leaving.leave()
    assert [(g.data, g.failed_before) for g in broker.join().take()] == [("a", 0), ("c", 0)]


def test_nacks_and_expired_leases_increase_the_delivery_attempt_of_a_message() -> None:
    """A nack and an expiry count one attempt each."""
    broker = broker_holding("a")
    consumer = broker.join(deadline=10)
    broker.nack(*consumer.take())
    assert [g.failed_before for g in consumer.take()] == [1]
    broker.advance(10)
    assert [g.failed_before for g in consumer.take()] == [2]


def test_messages_returned_by_a_completed_pull_stay_leased_and_can_be_acknowledged() -> None:
    """The call ends with its answer. The caller keeps the leases."""
    broker = broker_holding("a")
    call = broker.join(deadline=10)
    held = call.take()
    call.leave(give_back=False)
    assert broker.join().take_data() == []
    assert broker.acknowledge(*held) == []
    assert broker.backlog == 0


def test_leases_expire_when_freezegun_moves_the_time_past_their_deadline() -> None:
    """The engine uses the real clock, which a user's test may have frozen."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    with freezegun.freeze_time(start) as frozen:
        broker = Broker(SYSTEM_CLOCK)
        broker.publish("a")
        (got,) = broker.join(deadline=10).take()
        frozen.tick(9)
        broker.modify(30, got)
        frozen.tick(29)
        broker.engine.advance()
        assert broker.join().take_data() == []
        frozen.tick(1)
        broker.engine.advance()
        assert broker.join().take_data() == ["a"]
