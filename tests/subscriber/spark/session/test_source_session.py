"""A session against the broker: planning, acknowledging and releasing messages."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pullstream.exceptions import SubscriberClosed
from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.settings import MIN_DRAIN_WAIT, Limit, Receivers
from pullstream_emulator import Emulator
from pullstream_protocol.errors import NotFound, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.session.world import (
    LEASE,
    SUBSCRIPTION,
    TOPIC,
    Batches,
    FillingStore,
    World,
    acked,
    has_delivered,
    make_subscription,
    publish,
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
    assert session.plan(0, 0).parts == []
    assert (threads(), world.spool.exists()) == (before, False)
    session.close()
    session.close()
    with pytest.raises(SubscriberClosed):
        session.latest(0)


def test_the_first_read_of_an_ingest_session_of_a_missing_subscription_raises(
    broker: Emulator, spool: Path
) -> None:
    session = World(broker, spool).session()
    for begin in (session.prepare_available_now, lambda: None):
        begin()
        with pytest.raises(NotFound):
            session.latest(0)
    session.close()


def test_a_spark_available_now_run_with_an_unreachable_server_raises(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An "available now" run ends with the error instead of an empty result."""
    monkeypatch.setattr("pullstream.spark.session.source_session.DRAIN_GIVE_UP", 0.3)
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
    assert session.ids(0, 1) == published
    assert session.rows(0, 1) == session.rows(0, 1)
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
        assert len(session.ids(number, number + 1)) == size
    session.commit(3)
    eventually(lambda: acked(world.broker) == set(published))


def test_an_ingest_batch_has_at_least_one_message_whatever_its_byte_limit(world: World) -> None:
    """Otherwise a large message would block everything."""
    for _ in range(3):
        world.broker.publish(TOPIC, b"x" * 10_000)
    session = world.session(max_bytes_per_trigger=1000)
    for number in range(3):
        assert session.latest(number) == number + 1
        assert len(session.ids(number, number + 1)) == 1


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
    assert session.plan(0, 0).parts == []
    assert session.report()["plan"] == 0


def test_an_ingest_session_asked_twice_for_its_offset_gives_the_same_offset(world: World) -> None:
    """A repeated question from the same start has the same answer."""
    publish(world.broker, 3)
    session = world.session()
    assert session.latest(0) == session.latest(0) == 1


def test_rows_of_an_ingest_session_have_the_subscription_name_if_configured(world: World) -> None:
    publish(world.broker, 2)
    session = world.session(include_subscription=True)
    session.latest(0)
    (rows,) = session.rows(0, 1)
    assert rows.column("subscription").to_pylist() == [SUBSCRIPTION] * 2


# ---- acknowledgement ---------------------------------------------------------------------------


@pytest.mark.parametrize("prove", [Batches.commit, Batches.latest])
def test_an_ingest_session_acks_a_batch_when_spark_commits_it_or_plans_the_next_one(
    world: World, prove: Callable[[Batches, int], object]
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
    assert set(session.ids(1, 2)) == second
    assert acked(world.broker) == set(first)


def test_a_redelivery_makes_no_new_spark_row_and_the_commit_acks_the_newest_delivery(
    world: World,
) -> None:
    """The newest lease is acknowledged, for a message in the buffer or in a segment."""
    published = publish(world.broker, 4)
    session = world.session(max_messages_per_trigger=2, linger=0.1, idle_wait=0.5)
    session.latest(0)
    eventually(lambda: session.report()["leased"] == 4)
    for deliveries in (8, 12):
        world.broker.clock.advance(LEASE)
        world.broker.history.wait_until(partial(has_delivered, world.broker, deliveries))
    assert session.latest(1) == 2
    assert sorted(session.ids(1, 2)) == published[2:]
    session.latest_until(lambda: world.broker.backlog(SUBSCRIPTION) == 0, 2)


def test_a_redelivery_does_not_hold_later_messages_of_its_ordering_key_in_spark(
    broker: Emulator, spool: Path
) -> None:
    """Later messages of the key are received normally and in order."""
    make_subscription(broker, enable_message_ordering=True)
    publish(broker, 4, keys=["k"])
    with World(broker, spool).session(linger=0.2) as session:
        assert session.latest(0) == 1
        broker.clock.advance(LEASE)
        broker.history.wait_until(partial(has_delivered, broker, 8))
        # This message comes after the redelivery, so the session has received both.
        fence = publish(broker, 1)
        eventually(lambda: session.report()["buffered"] == 1)
        assert session.latest(1) == 2
        assert session.ids(1, 2) == fence
        behind = publish(broker, 4, keys=["k"])
        assert session.latest(2) == 3
        assert session.ids(2, 3) == behind
        assert broker.history.nacks() == []


def test_a_redelivered_committed_message_is_acked_and_makes_no_spark_row(world: World) -> None:
    """The acknowledgement may have been lost, also before a restart. Its plan has no rows."""
    published = publish(world.broker, 2)
    world.broker.faults.error("Acknowledge", NotFound("lost"), times=1)
    session = world.session(idle_wait=0.02, linger=0)
    at, rows = 0, []
    while len(acked(world.broker)) < 1:
        end = session.latest(at)
        rows += session.ids(at, end) if end > at else []
        at = end
        world.broker.clock.advance(LEASE)
    session.close()
    again = world.session(idle_wait=0.02)
    while world.broker.backlog(SUBSCRIPTION):
        end = again.latest(at)
        rows += again.ids(at, end) if end > at else []
        at = end
        world.broker.clock.advance(LEASE)
    assert acked(world.broker) == set(published)
    assert sorted(rows) == published


def test_an_ingest_session_acknowledges_no_message_before_the_mark_is_on_the_disk(
    world: World,
) -> None:
    """With a full disk the mark waits. It is repeated when there is room again."""
    published = publish(world.broker, 3)
    storage = FillingStore(world.spool)
    session = world.session(storage=storage, idle_wait=0.02)
    while session.latest(0) == 0:
        pass
    storage.full = True
    session.commit(1)
    assert session.report()["leased"] == 3
    with pytest.raises(SpoolError, match=r"No space left.*not acknowledged"):
        session.latest(1)
    assert acked(world.broker) == set()
    storage.full = False
    assert session.latest(1) == 1
    eventually(lambda: acked(world.broker) == set(published))


def test_a_source_reports_the_delivery_attempts_of_its_messages(
    broker: Emulator, spool: Path
) -> None:
    """A limit that is near says that kills or long batches use attempts up."""
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC, max_delivery_attempts=9)
    make_subscription(broker, dead_letter_policy=policy)
    publish(broker, 1)
    with World(broker, spool).session(idle_wait=TIMEOUT) as session:
        session.latest(0)
        assert session.report()["deliveryAttempts"] == 1


def test_messages_are_acknowledged_when_stored_if_a_source_is_told_so(world: World) -> None:
    """The folder has the only copy."""
    published = publish(world.broker, 3)
    session = world.session(acknowledge=Acknowledge.STORED)
    assert session.latest(0) == 1
    eventually(lambda: acked(world.broker) == set(published))
    assert session.report()["leased"] == 0
    session.close()
    assert world.session().ids(0, 1) == published


def test_a_source_without_a_receiver_plans_the_segments_of_receivers_outside(world: World) -> None:
    """It opens no subscription. An "available now" run ends with the segments of its start."""
    published = publish(world.broker, 3)
    outside = world.session(acknowledge=Acknowledge.STORED)
    assert outside.latest(0) == 1
    outside.close()
    before = threads()
    session = world.session(receivers=Receivers.OUTSIDE)
    session.prepare_available_now()
    at = session.latest(0)
    assert session.ids(0, at) == published
    assert session.latest(at) == at
    assert session.session.is_caught_up
    assert threads() == before


def test_a_source_removes_the_remains_of_killed_writers_once_a_minute(world: World) -> None:
    """It does so also while there are no messages."""
    remains = world.spool / "seg" / "killed" / ".000000000001.arrow.tmp"
    publish(world.broker, 1)
    session = world.session(clock=world.broker.clock, idle_wait=0)
    while session.latest(0) == 0:
        pass
    remains.parent.mkdir()
    remains.touch()
    for path in (remains, remains.parent):
        os.utime(path, (0, 0))
    assert session.latest(1) == 1
    assert remains.exists()
    world.broker.clock.advance(61)
    assert session.latest(1) == 1
    assert not remains.exists()


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
    wait_until_unread(world.broker, SUBSCRIPTION)
    world.broker.clock.advance(LEASE)
    other = world.session(spool=world.spool / "other", linger=0.5)
    assert other.latest(0) == 1
    assert sorted(other.ids(0, 1)) == published


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
        rows += session.ids(at, end)
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
    world = World(broker, spool)
    with world.session(max_messages_per_trigger=2, clock=broker.clock) as session:
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
