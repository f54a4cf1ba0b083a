"""Failures around a session lose no message and double none."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import grpc
import pytest

from pullstream.client import SubscriberClient
from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.session.session import IngestSession
from pullstream_emulator import Emulator
from pullstream_protocol.errors import Unavailable
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
from tests.subscriber.streaming.fakes import eventually


def test_a_full_disk_raises_an_error_in_the_ingest_session_and_loses_no_message(
    world: World,
) -> None:
    """The error names the full disk, and with room again the batch is the same."""
    published = publish(world.broker, 3)
    disk = FillingDisk()
    session = world.session(disk=disk, idle_wait=0.02)
    assert session.latest(0) in (0, 1)
    session.close()
    session = world.session(disk=disk)
    disk.full = True
    with pytest.raises(SpoolError, match="No space left"):
        session.latest(0)
    disk.full = False
    assert session.latest(0) == 1
    assert sorted(ids(session, 0, 1)) == published


def test_an_ingest_session_receives_no_more_messages_at_the_size_limit_of_its_spool(
    world: World,
) -> None:
    """Committed messages make room."""
    for _ in range(4):
        world.broker.publish(TOPIC, b"x" * 10_000)
    session = world.session(max_messages_per_trigger=2, max_spool_bytes=40_000)
    assert session.latest(0) == 1
    size = session.report()["spoolBytes"]
    assert 20_000 < size < 40_000
    assert session.latest(1) == 2
    eventually(lambda: session.report()["unackedCommitted"] == 0)
    session.close()
    small = world.session(max_spool_bytes=1000, spool=world.spool / "small")
    world.broker.publish(TOPIC, b"x" * 10_000)
    with pytest.raises(SpoolError, match="Raise the limit of the spool"):
        small.latest(0)


def test_an_ingest_session_fails_for_a_missing_spool_file_unless_settings_allow_it(
    world: World,
) -> None:
    """The loss is found before anything is received. If allowed, a later batch has the messages."""
    published = publish(world.broker, 3)
    session = world.session()
    session.latest(0)
    session.segments(0, 1)[0].path.unlink()
    session.close()
    before = threads()
    with pytest.raises(MissingSegment, match=r"segment 1 .*failOnMissingSegment"):
        world.session().segments(0, 1)
    assert threads() == before
    world.sessions[-1].close()
    world.broker.clock.advance(LEASE)
    lenient = world.session(fail_on_missing_segment=False)
    assert lenient.segments(0, 1) == []
    assert lenient.latest(1) == 2
    assert sorted(ids(lenient, 1, 2)) == published


def test_an_ingest_session_fails_until_the_damaged_index_of_done_messages_is_repaired(
    world: World,
) -> None:
    """Otherwise old messages could count as new. After a repair, the same session continues."""
    damaged = world.spool / "done-00000000000000000001.ids"
    world.spool.mkdir()
    damaged.write_bytes(b"nonsense\n")
    published = publish(world.broker, 1)
    session = world.session()
    for _ in range(2):
        with pytest.raises(SpoolError, match="damaged"):
            session.latest(0)
    damaged.unlink()
    assert session.latest(0) == 1
    assert ids(session, 0, 1) == published


def test_an_ingest_session_reopens_a_broken_stream_and_delivers_redelivered_messages_once(
    world: World,
) -> None:
    """The query does not notice, and redelivered messages are in it once."""
    published = set(publish(world.broker, 3))
    session = world.session(max_messages_per_trigger=10, linger=0)
    end = session.latest(0)
    world.broker.faults.abort_streams(Unavailable("gone"))
    published |= set(publish(world.broker, 3))
    rows = ids(session, 0, end)
    while len(rows) < len(published):
        rows += ids(session, end, session.latest(end))
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
            rows += ids(session, at[session], end)
            at[session] = end
    assert sorted(rows, key=int) == published


def test_an_exactly_once_ingest_session_makes_one_row_of_a_redelivered_message(
    broker: Emulator, spool: Path
) -> None:
    """The session knows that a lease has ended. Its message is redelivered and counts once."""
    make_subscription(broker, enable_exactly_once_delivery=True)
    world = World(broker, spool)
    published = publish(broker, 4)
    session = world.session(max_messages_per_trigger=2, linger=1)
    session.latest(0)
    eventually(lambda: session.report()["leased"] == 4)
    broker.clock.advance(LEASE)
    broker.history.wait_until(partial(has_delivered, broker, 8))
    eventually(lambda: session.report()["leased"] == 4)
    assert session.latest(1) == 2
    assert sorted(ids(session, 1, 2)) == published[2:]
    session.commit(2)
    eventually(lambda: broker.backlog(SUBSCRIPTION) == 0)
    session.close()


def test_an_ingest_session_whose_connection_is_closed_from_outside_does_not_hang(
    broker: Emulator, spool: Path
) -> None:
    """For example, the process is about to end."""
    make_subscription(broker)
    channel = grpc.insecure_channel(broker.endpoint)
    session = IngestSession(
        settings_of(broker, spool), connect=lambda: SubscriberClient(channel=channel)
    )
    publish(broker, 2)
    while session.latest(0) == 0:
        pass
    channel.close()
    session.commit(1)
    session.close()
    assert acked(broker) == set()
