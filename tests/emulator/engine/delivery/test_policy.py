"""Retry policies: the delay before a failed message is redelivered."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine.delivery.policy import RetryPolicy
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import Broker, ConsumerDriver, broker_holding


def with_policy(minimum: int, maximum: int, *data: str, **fields: Any) -> Broker:
    """Return a broker with a retry policy of these seconds, and these messages."""
    policy = pubsub.RetryPolicy(
        minimum_backoff=Duration(seconds=minimum), maximum_backoff=Duration(seconds=maximum)
    )
    return broker_holding(*data, retry_policy=policy, **fields)


def comes_after(broker: Broker, consumer: ConsumerDriver, seconds: float) -> None:
    """Check that a message comes at that time, and not before."""
    broker.advance(seconds - 0.1)
    assert consumer.take() == []
    wakes = consumer.wakes
    broker.advance(0.1)
    assert consumer.wakes == wakes + 1


def test_the_retry_backoff_doubles_with_each_failed_delivery_up_to_the_maximum() -> None:
    """The backoff doubles after every failed attempt of the message."""
    broker = with_policy(2, 7, "bad")
    consumer = broker.join(deadline=600)
    for wait in (2, 4, 7, 7):
        broker.nack(*consumer.take())
        comes_after(broker, consumer, wait)


def test_a_message_with_an_expired_lease_is_redelivered_after_the_retry_backoff() -> None:
    """The backoff is the same as for a nack."""
    broker = with_policy(5, 600, "slow")
    consumer = broker.join(deadline=10)
    consumer.take()
    broker.advance(10)
    comes_after(broker, consumer, 5)


def test_messages_of_a_leaving_consumer_are_redelivered_without_retry_backoff() -> None:
    """The consumer has left, which is not a failure."""
    broker = with_policy(100, 600, "a")
    leaving = broker.join()
    leaving.take()
    leaving.leave()
    assert broker.join().take_data() == ["a"]


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 600), (0, 0)])
def test_a_retry_policy_with_a_minimum_of_zero_has_no_backoff(minimum: int, maximum: int) -> None:
    """Twice zero is zero."""
    broker = with_policy(minimum, maximum, "a")
    consumer = broker.join()
    for _ in range(3):
        broker.nack(*consumer.take())
        assert consumer.wakes == 0


def test_the_retry_backoff_of_a_failed_message_does_not_delay_other_messages() -> None:
    """The delay belongs to one message."""
    broker = with_policy(10, 600, "bad", "good")
    consumer = broker.join(deadline=600)
    bad, good = consumer.take()
    broker.nack(bad)
    broker.nack(good)
    broker.publish("new")
    assert consumer.take_data() == ["new"]


def test_an_ordering_key_waits_for_the_retry_backoff_of_its_failed_message() -> None:
    """No message of the key is delivered before its end. Other keys continue."""
    broker = with_policy(10, 600, "1", "2", key="k", enable_message_ordering=True)
    broker.publish("x", key="x")
    consumer = broker.join(deadline=600)
    one, two, x = consumer.take()
    assert x.data == "x"
    broker.acknowledge(x, two)
    broker.nack(one)
    broker.publish("3", key="k")
    broker.publish("y", key="x")
    assert consumer.take_data() == ["y"]
    assert consumer.take() == []
    comes_after(broker, consumer, 10)
    assert consumer.take_data() == ["1", "2", "3"]


def test_the_retry_backoff_of_an_ordering_key_counts_from_the_failure_of_its_message() -> None:
    """The leases of the later messages end at the same time, and cause no further delay."""
    broker = with_policy(30, 600, "1", "2", key="k", enable_message_ordering=True)
    consumer = broker.join(deadline=20)
    (one, _) = consumer.take()
    broker.nack(one)
    broker.advance(20)
    assert consumer.take() == []
    comes_after(broker, consumer, 10)
    assert consumer.take_data() == ["1", "2"]


def test_a_failure_of_an_earlier_message_prolongs_the_retry_backoff_of_its_ordering_key() -> None:
    """Both messages have failed, so the key waits for the longer delay."""
    broker = with_policy(30, 600, "1", "2", key="k", enable_message_ordering=True)
    consumer = broker.join(deadline=600)
    one, two = consumer.take()
    broker.nack(two)
    broker.advance(20)
    broker.nack(one)
    broker.advance(10)
    assert consumer.take() == []
    comes_after(broker, consumer, 20)
    assert consumer.take_data() == ["1", "2"]


def test_a_late_acknowledgement_removes_a_message_that_waits_in_retry_backoff() -> None:
    """The message is not delivered again."""
    broker = with_policy(10, 600, "a")
    consumer = broker.join(deadline=10)
    (late,) = consumer.take()
    broker.advance(10)
    assert broker.acknowledge(late) == []
    broker.advance(600)
    assert (consumer.take(), broker.backlog) == ([], 0)


def test_the_next_due_time_of_the_engine_is_the_end_of_a_retry_backoff() -> None:
    """The owner wakes up in time."""
    broker = with_policy(3, 600, "a")
    consumer = broker.join(deadline=600)
    broker.nack(*consumer.take())
    assert broker.engine.next_due() == 3


def test_removing_a_retry_policy_does_not_shorten_a_running_retry_backoff() -> None:
    """A change of the policy applies to later failures."""
    broker = with_policy(50, 600, "a")
    consumer = broker.join(deadline=600)
    broker.nack(*consumer.take())
    broker.update("retry_policy")
    assert consumer.take() == []
    broker.advance(50)
    broker.nack(*consumer.take())
    assert consumer.take_data() == ["a"]


@pytest.mark.parametrize("holder", ["stays", "leaves"])
def test_the_end_of_the_retry_backoff_of_an_ordering_key_wakes_a_consumer(holder: str) -> None:
    """The holder gets the key then. If it has left, any other consumer does."""
    broker = with_policy(10, 10, "1", "2", key="k", enable_message_ordering=True)
    consumer, other = broker.join(deadline=60), broker.join(deadline=60)
    one, _ = consumer.take()
    broker.nack(one)
    if holder == "leaves":
        consumer.leave()
    due = broker.engine.next_due()
    assert due is not None
    assert due <= 10
    comes_after(broker, consumer if holder == "stays" else other, 10)


@given(minimum=st.floats(0, 600), more=st.floats(0, 600), attempts=st.integers(1, 10_000))
def test_every_retry_backoff_is_between_the_minimum_and_the_maximum(
    minimum: float, more: float, attempts: int
) -> None:
    """Each delay is at least as long as the previous one, however often the message fails."""
    policy = RetryPolicy(minimum, minimum + more)
    assert minimum <= policy.delay(attempts) <= policy.delay(attempts + 1) <= minimum + more
