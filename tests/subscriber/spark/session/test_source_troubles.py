"""Failures around a session lose no message and double none."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import grpc
import pytest

from pullstream.client import SubscriberClient
from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.protocol.layout import Owner
from pullstream.spark.session.prefetch import PrefetchMode
from pullstream.spark.stores import LocalFolder
from pullstream_emulator import Emulator
from pullstream_protocol.errors import Unavailable
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.spark.session.world import (
    LEASE,
    SUBSCRIPTION,
    TOPIC,
    FillingStore,
    World,
    acked,
    has_delivered,
    make_subscription,
    publish,
)
from tests.subscriber.streaming.fakes import eventually


def test_a_full_disk_raises_an_error_in_the_ingest_session_and_loses_no_message(
    world: World,
) -> None:
    """The error names the full disk, and with room again the batch is the same."""
    published = publish(world.broker, 3)
    storage = FillingStore(world.spool)
    session = world.session(storage=storage, idle_wait=0.02)
    assert session.latest(0) in (0, 1)
    session.close()
    session = world.session(storage=storage)
    storage.full = True
    with pytest.raises(SpoolError, match="No space left"):
        session.latest(0)
    storage.full = False
    assert session.latest(0) == 1
    assert sorted(session.ids(0, 1)) == published


def test_a_source_prefetches_nothing_at_the_size_limit_of_its_spool(world: World) -> None:
    """Committed messages make room. A single larger batch passes."""
    for _ in range(4):
        world.broker.publish(TOPIC, b"x" * 10_000)
    session = world.session(
        work_ahead=PrefetchMode.AT_ONCE, max_messages_per_trigger=2, max_spool_bytes=10_000
    )
    assert session.latest(0) == 1
    eventually(lambda: session.report()["buffered"] == 2)
    assert session.latest(0) == 1
    assert len(world.files("seg")) == 1
    assert session.latest(1) == 2


@pytest.mark.parametrize("work_ahead", PrefetchMode)
def test_a_source_ends_when_another_query_has_taken_its_spool_over(
    world: World, work_ahead: PrefetchMode
) -> None:
    """It acknowledges nothing from then on, also not in the background."""
    publish(world.broker, 4)
    session = world.session(work_ahead=work_ahead, max_messages_per_trigger=2, idle_wait=1)
    assert session.latest(0) == 1
    owner = Owner(2, SUBSCRIPTION, "other", 0, "nonce")
    LocalFolder(world.spool).create("owner/000000000002.json", owner.text())
    for _ in range(2):
        with pytest.raises(SpoolError, match="another query has taken it over"):
            session.latest(1)
        session.commit(1)
    assert acked(world.broker) == set()


def test_a_plan_with_a_missing_segment_names_it(world: World) -> None:
    """The batch fails, and is not empty."""
    publish(world.broker, 3)
    session = world.session()
    session.latest(0)
    (part,) = session.plan(0, 1).parts
    with pytest.raises(MissingSegment, match=f"{part.segment.path} of plan 1 is missing. 3 mess"):
        rows_of(session.plan(0, 1), [None])


def test_an_ingest_session_reopens_a_broken_stream_and_delivers_redelivered_messages_once(
    world: World,
) -> None:
    """The query does not notice, and redelivered messages are in it once."""
    published = set(publish(world.broker, 3))
    session = world.session(max_messages_per_trigger=10, linger=0)
    end = session.latest(0)
    world.broker.faults.abort_streams(Unavailable("gone"))
    published |= set(publish(world.broker, 3))
    rows = session.ids(0, end)
    while len(rows) < len(published):
        rows += session.ids(end, session.latest(end))
        end += 1
    assert sorted(rows) == sorted(published)


def test_messages_redelivered_by_a_restarted_broker_make_no_second_ingest_row(world: World) -> None:
    """The session recognises the redelivered messages."""
    published = publish(world.broker, 6)
    session = world.session(max_messages_per_trigger=3)
    session.latest(0)
    world.broker.stop()
    world.broker.start()
    assert session.latest(1) == 2
    session.commit(2)
    eventually(lambda: acked(world.broker) == set(published))
    assert world.broker.backlog(SUBSCRIPTION) == 0


def test_two_ingest_sessions_on_one_subscription_together_get_each_message_once(
    world: World,
) -> None:
    """Each message goes to one of them."""
    one = world.session(max_messages_per_trigger=10, idle_wait=0.02, linger=0)
    two = world.session(
        max_messages_per_trigger=10, idle_wait=0.02, linger=0, spool=world.spool / "two"
    )
    at = {one: one.latest(0), two: two.latest(0)}
    published = publish(world.broker, 60)
    rows: list[str] = []
    while len(rows) < 60:
        for session in (one, two):
            end = session.latest(at[session])
            rows += session.ids(at[session], end)
            at[session] = end
    assert sorted(rows, key=int) == published


def test_an_exactly_once_ingest_session_makes_one_row_of_a_redelivered_message(
    broker: Emulator, spool: Path
) -> None:
    """The session knows that a lease has ended. Its message is redelivered and counts once."""
    make_subscription(broker, enable_exactly_once_delivery=True)
    world = World(broker, spool)
    published = publish(broker, 4)
    session = world.session(max_messages_per_trigger=2, idle_wait=0.5)
    session.latest(0)
    eventually(lambda: session.report()["leased"] == 4)
    broker.clock.advance(LEASE)
    broker.history.wait_until(partial(has_delivered, broker, 8))
    eventually(lambda: session.report()["leased"] == 4)
    assert session.latest(1) == 2
    assert sorted(session.ids(1, 2)) == published[2:]
    session.latest_until(lambda: broker.backlog(SUBSCRIPTION) == 0, 2)
    session.close()


def test_an_ingest_session_whose_connection_is_closed_from_outside_does_not_hang(
    broker: Emulator, spool: Path
) -> None:
    """For example, the process is about to end."""
    make_subscription(broker)
    channel = grpc.insecure_channel(broker.endpoint)
    session = World(broker, spool).session(
        idle_wait=0.02, connect=lambda: SubscriberClient(channel=channel)
    )
    publish(broker, 2)
    while session.latest(0) == 0:
        pass
    channel.close()
    session.commit(1)
    session.close()
    assert acked(broker) == set()
