"""A broker on real time whose clock a test moves ahead."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire, data_of

HOUR = 3600


pytestmark = pytest.mark.emulator(clock=None)


def test_an_advance_of_the_broker_clock_past_the_ack_deadline_ends_leases(
    emulator: Emulator, wire: Wire
) -> None:
    """The leases end before `advance` returns."""
    wire.create_with("a", ack_deadline_seconds=600)
    for _ in range(20):
        assert data_of(wire.pull(wait=False)) == ["a"]
        assert wire.pull(wait=False) == []
        emulator.clock.advance(600)


def test_an_advance_of_the_broker_clock_redelivers_leased_messages_on_streaming_pulls(
    emulator: Emulator, wire: Wire
) -> None:
    """The stream receives the message whose lease has expired."""
    wire.create_with("a")
    stream = wire.stream(stream_ack_deadline_seconds=600)
    assert stream.data(1) == ["a"]
    emulator.clock.advance(600)
    assert stream.data(1) == ["a"]


def test_the_broker_clock_runs_on_in_real_time_after_an_advance(
    emulator: Emulator, wire: Wire
) -> None:
    """Timers of the broker still fire without further calls."""
    wire.create()
    emulator.clock.advance(HOUR)
    wire.publish("a")
    stream = wire.stream()
    (a,) = stream.messages(1)
    wire.modify(1, a.ack_id)
    assert stream.data(1) == ["a"]


def test_advancing_the_broker_clock_ends_a_retry_backoff(emulator: Emulator, wire: Wire) -> None:
    """A nacked message is available after its backoff, not before."""
    policy = pubsub.RetryPolicy(
        minimum_backoff=Duration(seconds=300), maximum_backoff=Duration(seconds=300)
    )
    wire.create_with("a", retry_policy=policy)
    (a,) = wire.pull()
    wire.modify(0, a.ack_id)
    emulator.clock.advance(200)
    assert wire.pull(wait=False) == []
    emulator.clock.advance(100)
    assert data_of(wire.pull(wait=False)) == ["a"]


def test_an_advance_of_the_broker_clock_drops_messages_past_their_retention(
    emulator: Emulator, wire: Wire
) -> None:
    """A message that was not fetched in time is removed."""
    wire.create_with("old", message_retention_duration=Duration(seconds=600))
    emulator.clock.advance(500)
    wire.publish("new")
    emulator.clock.advance(101)
    assert data_of(wire.pull(wait=False)) == ["new"]


def test_an_advance_of_the_broker_clock_expires_unused_subscriptions(
    emulator: Emulator, wire: Wire
) -> None:
    """The default ttl is a month."""
    wire.create()
    emulator.clock.advance(30 * 24 * HOUR)
    assert emulator.backlog(SUBSCRIPTION) == 0
    emulator.clock.advance(2 * 24 * HOUR)
    with pytest.raises(NotFound):
        emulator.backlog(SUBSCRIPTION)


def test_publish_times_follow_the_advanced_broker_clock(emulator: Emulator, wire: Wire) -> None:
    """The clock of the machine is unchanged."""
    wire.create()
    emulator.clock.advance(HOUR)
    emulator.publish(TOPIC, "a")
    (message,) = emulator.messages(TOPIC)
    assert message.publish_time.seconds - SYSTEM_CLOCK.now() == pytest.approx(HOUR, abs=60)


def test_the_clock_of_an_emulator_created_with_the_system_clock_can_be_advanced() -> None:
    """A system clock passed by the user gets an `advance` method."""
    emulator = Emulator(clock=SYSTEM_CLOCK)
    before = SYSTEM_CLOCK.monotonic()
    emulator.clock.advance(HOUR)
    assert emulator.clock.monotonic() - before >= HOUR
    assert Emulator().clock.monotonic() - before < HOUR


def test_the_clock_offset_of_a_broker_is_kept_when_another_emulator_serves_the_broker(
    emulator: Emulator, wire: Wire
) -> None:
    """A broker that continues with the engine of another has the same clock offset."""
    wire.create_with("a", ack_deadline_seconds=600)
    wire.pull()
    emulator.clock.advance(HOUR)
    assert data_of(wire.pull()) == ["a"]
    emulator.stop()
    with Emulator(broker=emulator.broker) as again:
        assert again.clock is emulator.clock
        assert again.history is emulator.history
        wire = Wire(again.endpoint)
        assert wire.pull(wait=False) == []
        again.clock.advance(600)
        assert data_of(wire.pull(wait=False)) == ["a"]
        wire.close()
