"""A broker on real time whose clock a test moves ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.duration_pb2 import Duration

from emulator import Emulator
from protocol.clock import SYSTEM_CLOCK
from protocol.errors import NotFound
from protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire, data_of

HOUR = 3600


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """One that nobody gave a clock."""
    with Emulator() as emulator:
        yield emulator


def test_leases_end_when_the_clock_is_moved(emulator: Emulator, wire: Wire) -> None:
    """Before `advance` returns: nothing is waited for."""
    wire.create(ack_deadline_seconds=600)
    wire.publish("a")
    for _ in range(20):
        assert data_of(wire.pull(wait=False)) == ["a"]
        assert wire.pull(wait=False) == []
        emulator.clock.advance(600)


def test_streams_get_what_is_due(emulator: Emulator, wire: Wire) -> None:
    """The message whose lease they let run out."""
    wire.create()
    wire.publish("a")
    stream = wire.stream(stream_ack_deadline_seconds=600)
    assert stream.data(1) == ["a"]
    emulator.clock.advance(600)
    assert stream.data(1) == ["a"]


def test_it_runs_on_from_there(emulator: Emulator, wire: Wire) -> None:
    """Timers of the broker still go off by themselves."""
    wire.create()
    emulator.clock.advance(HOUR)
    wire.publish("a")
    stream = wire.stream()
    (a,) = stream.messages(1)
    wire.modify(1, a.ack_id)
    assert stream.data(1) == ["a"]


def test_retry_backoff_passes(emulator: Emulator, wire: Wire) -> None:
    """A nacked message is there again when its time has come, not before."""
    policy = pubsub.RetryPolicy(
        minimum_backoff=Duration(seconds=300), maximum_backoff=Duration(seconds=300)
    )
    wire.create(retry_policy=policy)
    wire.publish("a")
    (a,) = wire.pull()
    wire.modify(0, a.ack_id)
    emulator.clock.advance(200)
    assert wire.pull(wait=False) == []
    emulator.clock.advance(100)
    assert data_of(wire.pull(wait=False)) == ["a"]


def test_retention_passes(emulator: Emulator, wire: Wire) -> None:
    """What nobody has fetched in time is gone."""
    wire.create(message_retention_duration=Duration(seconds=600))
    wire.publish("old")
    emulator.clock.advance(500)
    wire.publish("new")
    emulator.clock.advance(101)
    assert data_of(wire.pull(wait=False)) == ["new"]


def test_unused_subscriptions_expire(emulator: Emulator, wire: Wire) -> None:
    """After a month in a moment."""
    wire.create()
    emulator.clock.advance(30 * 24 * HOUR)
    assert emulator.backlog(SUBSCRIPTION) == 0
    emulator.clock.advance(2 * 24 * HOUR)
    with pytest.raises(NotFound):
        emulator.backlog(SUBSCRIPTION)


def test_publish_times_are_the_brokers(emulator: Emulator, wire: Wire) -> None:
    """They go by its clock, and the clock of the machine is where it was."""
    wire.create()
    emulator.clock.advance(HOUR)
    emulator.publish(TOPIC, "a")
    (message,) = emulator.messages(TOPIC)
    assert message.publish_time.seconds - SYSTEM_CLOCK.now() == pytest.approx(HOUR, abs=60)


def test_a_clock_that_cannot_be_moved_is_made_to() -> None:
    """Whoever gives the system's own gets it with an `advance`."""
    emulator = Emulator(clock=SYSTEM_CLOCK)
    before = SYSTEM_CLOCK.monotonic()
    emulator.clock.advance(HOUR)
    assert emulator.clock.monotonic() - before >= HOUR
    assert Emulator().clock.monotonic() - before < HOUR


def test_the_clock_goes_with_the_engine(emulator: Emulator, wire: Wire) -> None:
    """A broker that is started again where another stopped is as far ahead."""
    wire.create(ack_deadline_seconds=600)
    wire.publish("a")
    wire.pull()
    emulator.clock.advance(HOUR)
    assert data_of(wire.pull()) == ["a"]
    emulator.stop()
    with Emulator(engine=emulator.engine) as again:
        assert again.clock is emulator.clock
        assert again.history is emulator.history
        wire = Wire(again.endpoint)
        assert wire.pull(wait=False) == []
        again.clock.advance(600)
        assert data_of(wire.pull(wait=False)) == ["a"]
        wire.close()
