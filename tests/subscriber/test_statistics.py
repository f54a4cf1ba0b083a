"""The statistics of a subscription: each number changes with its own event."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pullstream.message import Message
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Statistics
from pullstream_protocol.errors import PermissionDenied, Unavailable
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.subscriber.streaming.managed import Gate, Managed, managed

STREAMING = Statistics(SubscriptionState.STREAMING, since=0.0)


def told(subscription: Managed, /, **numbers: Any) -> None:
    """Return when a stream is open and the statistics have only these numbers.

    Their time and latencies do not count. A state may be among the numbers.
    """
    expected = dataclasses.replace(STREAMING, **numbers)

    def as_expected() -> bool:
        now = subscription.future.statistics()
        return _without_times(now) == expected

    try:
        eventually(as_expected)
    except AssertionError:
        assert _without_times(subscription.future.statistics()) == expected


def _without_times(statistics: Statistics) -> Statistics:
    """Return the statistics without times, latencies and the numbers of each stream."""
    return dataclasses.replace(statistics, since=0.0, latency=STREAMING.latency, streams=())


def settle_by_name(message: Message) -> None:
    if message.ack_id.startswith("bad"):
        raise ValueError("bad")
    if message.ack_id.startswith("nack"):
        message.nack()
    elif message.ack_id.startswith("drop"):
        message.drop()
    else:
        message.ack()


def test_the_statistics_of_a_subscription_are_zero_before_the_first_message() -> None:
    """Only the state and its time are set."""
    with managed(Message.ack) as running:
        told(running, state=SubscriptionState.CONNECTING)
        assert running.future.statistics().since == running.clock.now()


def test_subscription_statistics_count_messages_by_disposition() -> None:
    """A dropped message has no disposition.

    A message whose callback raised counts as nacked and as an error.

    All counters of current messages are zero afterwards.
    """
    with managed(settle_by_name) as running:
        running.stream.deliver("a", "b", "c", "nack 1", "nack 2", "drop", "bad")
        told(running, received=7, acked=3, nacked=3, callback_errors=1)


def test_subscription_statistics_count_messages_held_behind_a_nacked_message_of_their_key() -> None:
    """No callback has seen the messages, so they are not nacked. The shutdown returns them."""
    with managed(Message.nack, workers=1) as running:
        running.stream.deliver("1", "2", "3", key="k")
        eventually(lambda: running.future.statistics().nacked == 1)
        size = running.future.statistics().leased_bytes
        told(running, received=3, nacked=1, leased=2, leased_bytes=size, held=2)
    told(running, state=SubscriptionState.CLOSED, received=3, nacked=1, returned=2)


def test_subscription_statistics_count_extended_and_lost_leases() -> None:
    """Each extension of each message counts."""
    gate = Gate()
    with managed(gate, max_lease_duration=60) as running:
        running.stream.deliver("a", "b")
        gate.wait_for(2)
        running.clock.advance(48)
        eventually(lambda: running.future.statistics().extended == 2)
        running.clock.advance(8)
        eventually(lambda: running.future.statistics().extended == 4)
        assert running.future.statistics().expired == 0
        running.clock.advance(4)
        told(running, received=2, extended=4, expired=2, running=2)
        gate.open(2)


def test_subscription_statistics_count_requests_that_the_server_refuses() -> None:
    """The message still counts by its disposition."""
    with managed(Message.ack) as running:
        running.calls.acknowledge_error = PermissionDenied("not yours")
        running.stream.deliver("a", "b")
        told(running, received=2, acked=2, failed=2)


def test_subscription_statistics_count_acks_as_unanswered_until_the_server_accepts_them() -> None:
    """A call that will be repeated has no answer."""
    with managed(Message.ack) as running:
        running.calls.acknowledge_error = Unavailable("busy")
        running.stream.deliver("a")
        told(running, received=1, acked=1, unanswered=1)
        running.calls.acknowledge_error = None
        running.clock.advance(1.0)
        told(running, received=1, acked=1)


def test_subscription_statistics_count_streams_opened_after_the_first_stream() -> None:
    """Streams that break at once count too."""
    with managed(Message.ack) as running:
        for reopened in range(3):
            told(
                running,
                state=SubscriptionState.RECONNECTING if reopened else SubscriptionState.CONNECTING,
                reopened=reopened,
            )
            running.stream.end(Unavailable("down"))

            def opened_again() -> bool:
                running.clock.advance(1)
                return running.calls.streams_waiting == 1

            eventually(opened_again)
            running.stream = running.calls.next_stream()


def test_subscription_statistics_contain_the_state_and_the_time_of_its_last_change() -> None:
    """The time is that of the last change, also after the end."""
    running = Managed(Message.ack)
    start = running.clock.now()
    running.clock.advance(7)
    running.stream.deliver("a")
    assert running.acknowledged(1) == ["a"]
    now = running.future.statistics()
    assert (now.state, now.since) == (SubscriptionState.STREAMING, start + 7)
    running.clock.advance(5)
    running.stop()
    now = running.future.statistics()
    assert (now.state, now.since) == (SubscriptionState.CLOSED, start + 12)
    assert running.future.state is SubscriptionState.CLOSED


def test_in_a_shutdown_subscription_statistics_count_running_callbacks_until_they_end() -> None:
    """Running callbacks count until they end, and then by their disposition."""
    gate = Gate()
    running = Managed(gate, workers=2, await_callbacks=True)
    running.stream.deliver("a", "b", "c")
    gate.wait_for(2)
    running.stream.end_when_half_closed()
    running.future.cancel()
    assert running.nacked(1) == ["c"]
    size = running.future.statistics().leased_bytes
    told(
        running,
        state=SubscriptionState.CLOSING,
        received=3,
        returned=1,
        leased=2,
        leased_bytes=size,
        running=2,
        load=0.002,
    )
    gate.open(2)
    assert running.future.result(TIMEOUT) is True
    told(running, state=SubscriptionState.CLOSED, received=3, acked=2, returned=1)


def test_latency_statistics_of_a_subscription_include_acknowledged_messages_only() -> None:
    """A latency is the time from receipt to acknowledgement. Nacks do not count."""
    gate = Gate(settle_by_name)
    with managed(gate) as running:
        running.stream.deliver("a", "nack")
        gate.wait_for(2)
        running.clock.advance(30)
        gate.open(2)
        told(running, received=2, acked=1, nacked=1)
        latency = running.future.statistics().latency
        assert latency.p50 == latency.p99 == pytest.approx(30.0, rel=0.06)
