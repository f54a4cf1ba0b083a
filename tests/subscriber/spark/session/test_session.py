"""A session against the broker: planning, acknowledging and releasing messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pullstream.exceptions import SubscriberClosed
from pullstream.spark.session.session import IngestSession
from pullstream.spark.session.settings import MIN_DRAIN_WAIT, Limit
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, Unavailable
from tests.subscriber.spark.session.world import (
    LEASE,
    SUBSCRIPTION,
    TOPIC,
    FillingDisk,
    World,
    acked,
    has_delivered,
    ids,
    make_subscription,
    publish,
    settings_of,
    threads,
)
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

# ---- the beginning -----------------------------------------------------------------------------


def test_a_new_ingest_session_has_no_threads_files_or_connections_before_its_first_use(
    world: World,
) -> None:
    """A new session has no thread, file or connection. Its reports are empty, and it can close."""
    before = threads()
    session = world.session()
    session.prepare_available_now()
    session.commit(0)
    assert set(session.report().values()) == {0}
    assert session.segments(3, 3) == []
    assert (threads(), world.spool.exists()) == (before, False)
    session.close()
    session.close()
    with pytest.raises(SubscriberClosed):
        session.latest(0)


def test_the_first_read_of_an_ingest_session_of_a_missing_subscription_raises(
    broker: Emulator, spool: Path
) -> None:
    session = IngestSession(settings_of(broker, spool, idle_wait=TIMEOUT))
    for begin in (session.prepare_available_now, lambda: None):
        begin()
        with pytest.raises(NotFound):
            session.latest(0)
    session.close()


def test_a_spark_available_now_run_with_an_unreachable_server_raises(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An "available now" run ends with the error instead of an empty result."""
    monkeypatch.setattr("pullstream.spark.session.session._DRAIN_GIVE_UP", 0.3)
    world.broker.faults.error("StreamingPull", Unavailable("away"))
    session = world.session(drain_wait=MIN_DRAIN_WAIT)
    session.prepare_available_now()
    with pytest.raises(Unavailable, match="away"):
        session.latest(0)


# ---- batches -----------------------------------------------------------------------------------


def test_repeated_reads_of_a_planned_spark_batch_yield_the_same_rows_in_order(world: World) -> None:
    """Each read returns the same rows in the order of arrival."""
    published = publish(world.broker, 5)
    session = world.session()
    assert session.latest(0) == 1
    assert ids(session, 0, 1) == published
    (segment,) = session.segments(0, 1)
    assert segment.to_bytes() == segment.to_bytes()
    assert acked(world.broker) == set()


def test_an_ingest_batch_has_at_most_the_smaller_of_the_limits_of_spark_and_the_settings(
    world: World,
) -> None:
    """The smaller of the call's limit and the setting counts. The next batches have the rest."""
    published = publish(world.broker, 10)
    session = world.session(max_messages_per_trigger=6, linger=1)
    sizes = [2, 6, 2]
    limits = [Limit(messages=2), Limit(messages=100), Limit(bytes=1_000_000)]
    for number, (size, limit) in enumerate(zip(sizes, limits, strict=True)):
        assert session.latest(number, limit) == number + 1
        assert len(ids(session, number, number + 1)) == size
    session.commit(3)
    eventually(lambda: acked(world.broker) == set(published))


def test_an_ingest_batch_has_at_least_one_message_whatever_its_byte_limit(world: World) -> None:
    """Otherwise a large message would block everything."""
    for _ in range(3):
        world.broker.publish(TOPIC, b"x" * 10_000)
    session = world.session(max_bytes_per_trigger=1000)
    for number in range(3):
        assert session.latest(number) == number + 1
        assert len(ids(session, number, number + 1)) == 1


def test_messages_of_planned_spark_batches_count_as_outstanding_until_the_commit(
    world: World,
) -> None:
    """Messages in segments count until the commit."""
    publish(world.broker, 30)
    session = world.session(max_messages_per_trigger=5, max_outstanding_messages=10, linger=0)
    session.latest(0)
    eventually(lambda: session.report()["leased"] == 10)
    assert len(world.broker.history.deliveries()) == 10
    assert session.latest(1) == 2
    world.broker.history.wait_until(partial(has_delivered, world.broker, 15))
    assert session.report()["leased"] <= 10


def test_the_latest_offset_of_an_ingest_session_does_not_advance_without_messages(
    world: World,
) -> None:
    """The session waits for a message first."""
    session = world.session(idle_wait=0)
    assert session.latest(0) == 0
    assert session.latest(7) == 7
    assert session.report()["seq"] == 7


def test_an_ingest_session_asked_twice_for_its_offset_gives_the_same_offset(world: World) -> None:
    """A repeated question from the same start has the same answer."""
    publish(world.broker, 3)
    session = world.session()
    assert session.latest(0) == session.latest(0) == 1


def test_rows_of_an_ingest_session_have_the_subscription_name_if_configured(world: World) -> None:
    publish(world.broker, 2)
    session = world.session(include_subscription=True)
    session.latest(0)
    (rows,) = session.segments(0, 1)[0].read()
    assert rows.column("subscription").to_pylist() == [SUBSCRIPTION] * 2


# ---- acknowledgement ---------------------------------------------------------------------------


@pytest.mark.parametrize("prove", [IngestSession.commit, IngestSession.latest])
def test_an_ingest_session_acks_a_batch_when_spark_commits_it_or_plans_the_next_one(
    world: World, prove: Callable[[IngestSession, int], object]
) -> None:
    """A commit is reported by `commit` or proved by the next `latest`.

    Other messages stay, and a repetition changes nothing.
    """
    first = publish(world.broker, 3)
    session = world.session(idle_wait=0.02)
    while session.latest(0) == 0:
        pass
    second = set(publish(world.broker, 3))
    for _ in range(2):
        prove(session, 1)
        eventually(lambda: acked(world.broker) == set(first))
    eventually(lambda: session.report()["unackedCommitted"] == 0)
    while session.latest(1) == 1:
        pass
    assert set(ids(session, 1, 2)) == second
    assert acked(world.broker) == set(first)


def test_a_redelivery_makes_no_new_spark_row_and_the_commit_acks_the_newest_delivery(
    world: World,
) -> None:
    """The newest lease is acknowledged, for a message in the buffer or in a segment."""
    published = publish(world.broker, 4)
    session = world.session(max_messages_per_trigger=2, linger=1, idle_wait=0.5)
    session.latest(0)
    eventually(lambda: session.report()["leased"] == 4)
    for deliveries in (8, 12):
        world.broker.clock.advance(LEASE)
        world.broker.history.wait_until(partial(has_delivered, world.broker, deliveries))
    assert session.latest(1) == 2
    assert sorted(ids(session, 1, 2)) == published[2:]
    assert session.latest(2) == 2
    eventually(lambda: world.broker.backlog(SUBSCRIPTION) == 0)


def test_a_redelivery_does_not_hold_later_messages_of_its_ordering_key_in_spark(
    broker: Emulator, spool: Path
) -> None:
    """Later messages of the key are received normally and in order."""
    make_subscription(broker, enable_message_ordering=True)
    publish(broker, 4, keys=["k"])
    with IngestSession(settings_of(broker, spool, linger=0.2, idle_wait=TIMEOUT)) as session:
        assert session.latest(0) == 1
        broker.clock.advance(LEASE)
        broker.history.wait_until(partial(has_delivered, broker, 8))
        # This message comes after the redelivery, so the session has received both.
        fence = publish(broker, 1)
        eventually(lambda: session.report()["buffered"] == 1)
        assert session.latest(1) == 2
        assert ids(session, 1, 2) == fence
        behind = publish(broker, 4, keys=["k"])
        assert session.latest(2) == 3
        assert ids(session, 2, 3) == behind
        assert broker.history.nacks() == []


def test_a_redelivered_committed_message_is_acked_and_makes_no_spark_row(world: World) -> None:
    """The acknowledgement may have been lost, also before a restart."""
    published = publish(world.broker, 2)
    world.broker.faults.error("Acknowledge", NotFound("lost"), times=1)
    session = world.session(idle_wait=0.02, linger=0)
    while (at := session.latest(0)) == 0:
        pass
    while len(acked(world.broker)) < 1:
        at = session.latest(at)
        world.broker.clock.advance(LEASE)
    session.close()
    again = world.session(idle_wait=0.02)
    eventually(lambda: again.latest(at) == at and world.broker.backlog(SUBSCRIPTION) == 0)
    assert acked(world.broker) == set(published)


def test_an_ingest_session_acknowledges_no_message_before_the_commit_is_recorded_on_disk(
    world: World,
) -> None:
    """With a full disk the commit waits. It is repeated when there is room again."""
    published = publish(world.broker, 3)
    disk = FillingDisk()
    session = world.session(disk=disk, idle_wait=0.02)
    while session.latest(0) == 0:
        pass
    disk.full = True
    session.commit(1)
    assert session.report()["unackedCommitted"] == 3
    assert session.latest(1) == 1
    assert acked(world.broker) == set()
    disk.full = False
    session.commit(1)
    eventually(lambda: acked(world.broker) == set(published))


# ---- the end -----------------------------------------------------------------------------------


def test_closing_an_ingest_session_leaves_no_thread_and_no_lock(world: World) -> None:
    """No thread and no lock remain.

    The buffer is free at once. A segment is free when its lease ends.
    """
    before = threads()
    published = publish(world.broker, 5)
    session = world.session(max_messages_per_trigger=2, linger=1)
    session.latest(0)
    eventually(lambda: session.report()["leased"] == 5)
    session.close()
    assert threads() <= before
    returned = {event.message_id for event in world.broker.history.returns()}
    assert returned == set(published[2:])
    assert world.broker.history.nacks() == []
    world.broker.clock.advance(LEASE)
    other = world.session(spool=world.spool / "other", linger=0.5)
    assert other.latest(0) == 1
    assert sorted(ids(other, 0, 1)) == published


def test_closing_an_ingest_session_sends_its_pending_acknowledgements(world: World) -> None:
    """Closing waits for the server's answer."""
    published = publish(world.broker, 3)
    session = world.session()
    session.latest(0)
    session.commit(1)
    session.close()
    assert acked(world.broker) == set(published)


def test_a_spark_available_now_run_ends_with_all_messages_acknowledged(world: World) -> None:
    """All messages are acknowledged before the last answer. A further answer is the same."""
    published = publish(world.broker, 25)
    world.broker.faults.delay("Acknowledge", 0.2)
    session = world.session(max_messages_per_trigger=10)
    session.prepare_available_now()
    rows, at = [], 0
    while (end := session.latest(at)) != at:
        rows += ids(session, at, end)
        at = end
    assert sorted(rows, key=int) == published
    assert acked(world.broker) == set(published)
    publish(world.broker, 1)
    assert session.latest(at) == at


def test_a_spark_available_now_run_ends_despite_messages_published_after_its_start(
    world: World,
) -> None:
    """The run ends when all new messages are younger than the run."""
    publish(world.broker, 5)
    session = world.session(max_messages_per_trigger=1000, drain_wait=TIMEOUT)
    session.prepare_available_now()
    world.broker.clock.advance(5)
    publish(world.broker, 5)
    stop = threading.Event()
    publisher = threading.Thread(target=lambda: publish_until(world.broker, stop))
    publisher.start()
    try:
        at = 0
        while (end := session.latest(at)) != at:
            at = end
    finally:
        stop.set()
        publisher.join()
    assert at <= 3


def publish_until(broker: Emulator, stop: threading.Event) -> None:
    while not stop.wait(0.001):
        broker.publish(TOPIC, b"more")


def test_the_lag_of_an_ingest_session_is_the_age_of_its_oldest_uncommitted_message(
    broker: Emulator, spool: Path
) -> None:
    """Messages count in the buffer and in segments, and the lag is 0 without messages."""
    make_subscription(broker)
    settings = settings_of(broker, spool, max_messages_per_trigger=2, idle_wait=TIMEOUT)
    with IngestSession(settings, clock=broker.clock) as session:
        publish(broker, 2)
        broker.clock.advance(20)
        assert session.latest(0) == 1
        publish(broker, 1)
        broker.clock.advance(10)
        assert 30_000 <= session.report()["lagMs"] < 40_000
        eventually(lambda: session.report()["buffered"] == 1)
        session.commit(1)
        assert 10_000 <= session.report()["lagMs"] < 20_000
        assert session.latest(1) == 2
        session.commit(2)
        assert session.report()["lagMs"] == 0
