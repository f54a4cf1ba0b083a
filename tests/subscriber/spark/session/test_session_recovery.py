"""A new process continues the work of an earlier one and returns unplanned messages."""

from __future__ import annotations

import pytest

from pullstream.spark.errors import SpoolError
from tests.subscriber.spark.session.world import (
    SUBSCRIPTION,
    FillingDisk,
    World,
    acked,
    ids,
    publish,
)
from tests.subscriber.streaming.fakes import eventually


def test_a_batch_planned_by_a_killed_ingest_process_is_unchanged_in_the_next_process(
    world: World,
) -> None:
    """The batch is equal byte for byte. Its leases are kept until the commit acknowledges them."""
    published = publish(world.broker, 3)
    first = world.session()
    first.latest(0)
    before = first.segments(0, 1)[0].to_bytes()
    first.close()
    assert world.broker.history.nacks() == []
    second = world.session()
    (segment,) = second.segments(0, 1)
    assert segment.to_bytes() == before
    extended = world.broker.history.deadline_changes
    eventually(lambda: {event.message_id for event in extended()} >= set(published))
    assert second.report()["leased"] == 3
    second.commit(1)
    eventually(lambda: world.broker.backlog(SUBSCRIPTION) == 0)
    assert len(world.broker.history.deliveries()) == 3


def test_a_restarted_ingest_process_returns_unplanned_messages_to_the_server(world: World) -> None:
    """The messages are returned at once, and the number of the batch is not used again."""
    published = publish(world.broker, 3)
    first = world.session()
    assert first.latest(0) == 1
    first.close()
    second = world.session(linger=0.3)
    assert second.latest(0) == 2
    assert sorted(ids(second, 0, 2)) == published
    assert len(world.broker.history.returns()) == 3
    assert world.broker.history.nacks() == []


def test_a_restarted_ingest_process_finishes_a_commit_interrupted_by_a_crash(world: World) -> None:
    """The segment still exists and is known to be committed."""
    published = publish(world.broker, 3)
    disk = FillingDisk()
    first = world.session(disk=disk)
    first.latest(0)
    disk.full = True
    first.commit(1)
    first.close()
    second = world.session(idle_wait=0)
    assert second.latest(1) == 1
    eventually(lambda: acked(world.broker) == set(published))
    assert second.report()["spoolBytes"] == 0


def test_a_second_ingest_session_on_the_same_spool_is_refused_and_takes_no_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one takes no messages."""
    monkeypatch.setattr("pullstream.spark.spool.spool.LOCK_WAIT", 0.0)
    first = world.session(idle_wait=0)
    first.latest(0)
    publish(world.broker, 1)
    second = world.session()
    with pytest.raises(SpoolError, match="in use by another process"):
        second.latest(0)
    second.close()
    first.close()
    assert second.report()["leased"] == 0
    third = world.session()
    assert third.latest(0) == 1
