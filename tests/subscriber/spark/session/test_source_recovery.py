"""A new process continues the work of an earlier one and returns unplanned messages."""

from __future__ import annotations

import shutil

import pytest

from pullstream.spark.errors import MissingSegment, SpoolError
from pullstream.spark.session.committed_batches import mark_committed
from tests.subscriber.ended_subscribers import noticed_end, wait_until_unread
from tests.subscriber.spark.session.world import (
    LEASE,
    SUBSCRIPTION,
    FillingStore,
    World,
    acked,
    publish,
    settings_of,
)
from tests.subscriber.streaming.fakes import eventually


def test_a_batch_planned_by_a_killed_ingest_process_is_unchanged_in_the_next_process(
    world: World,
) -> None:
    """Its messages come again when their leases end. They are acknowledged, and are no rows."""
    published = publish(world.broker, 3)
    first = world.session()
    first.latest(0)
    before = first.rows(0, 1)
    with noticed_end(world.broker, SUBSCRIPTION):
        first.close()
    assert world.broker.history.nacks() == []
    second = world.session(idle_wait=0.02)
    assert second.rows(0, 1) == before
    assert second.latest(1) == 1
    world.broker.clock.advance(LEASE)
    while (at := second.latest(1)) == 1:
        pass
    assert second.ids(1, at) == []
    second.latest(at)
    eventually(lambda: acked(world.broker) == set(published))
    assert second.report()["leftOut"] == 3


def test_a_restarted_ingest_process_begins_with_the_batch_that_was_never_written_down(
    world: World,
) -> None:
    """A plan is durable before its offset, so there is no second plan for the same messages."""
    published = publish(world.broker, 3)
    first = world.session()
    assert first.latest(0) == 1
    first.close()
    second = world.session()
    assert second.latest(0) == 1
    assert sorted(second.ids(0, 1)) == published


def test_a_restarted_ingest_process_finishes_a_commit_interrupted_by_a_crash(world: World) -> None:
    """The mark is missing. The messages come again, are left out, and are acknowledged."""
    published = publish(world.broker, 3)
    storage = FillingStore(world.spool)
    first = world.session(storage=storage)
    first.latest(0)
    storage.full = True
    first.commit(1)
    with noticed_end(world.broker, SUBSCRIPTION):
        first.close()
    second = world.session(idle_wait=0.02)
    assert second.latest(1) == 1
    assert world.files("mark") == ["000000000001.json"]
    world.broker.clock.advance(LEASE)
    while (at := second.latest(1)) == 1:
        pass
    second.latest(at)
    eventually(lambda: acked(world.broker) == set(published))


def test_a_source_refuses_the_folder_of_an_earlier_format(world: World) -> None:
    """It changes nothing there."""
    world.spool.mkdir()
    for name in ("meta.json", "seg-00000000000000000007.arrow"):
        path = world.spool / name
        path.touch()
        with pytest.raises(SpoolError, match=r"earlier version.*never released"):
            world.session().latest(0)
        assert list(world.spool.iterdir()) == [path]
        path.unlink()


def test_a_second_ingest_session_on_the_same_spool_is_refused_and_takes_no_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one takes no messages."""
    monkeypatch.setattr("pullstream.spark.session.folder_lock.LOCK_WAIT", 0.0)
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


def committed(world: World, batches: int) -> None:
    """Leave a checkpoint that has committed this many batches of three messages."""
    with world.session(max_messages_per_trigger=3, linger=60) as session:
        for number in range(batches):
            publish(world.broker, 3)
            assert session.latest(number) == number + 1
        session.commit(batches)


def test_a_spark_checkpoint_whose_spool_is_lost_continues_with_a_new_spool(world: World) -> None:
    """Its next plan follows the offset."""
    committed(world, 2)
    shutil.rmtree(world.spool)
    published = publish(world.broker, 3)
    with world.session() as session:
        assert session.latest(2) == 3
        assert session.ids(2, 3) == published


def test_a_spark_batch_that_was_planned_in_a_lost_spool_is_refused(world: World) -> None:
    """Its messages come again in another batch, when the lost one is marked as committed."""
    committed(world, 2)
    shutil.rmtree(world.spool)
    published = publish(world.broker, 3)
    for _ in range(2):
        with (
            world.session() as session,
            pytest.raises(MissingSegment, match=r"plan/000000000003.json does not exist"),
        ):
            session.plan(2, 3)
    with world.session() as session:
        assert session.latest(3) == 4
        assert session.ids(3, 4) == published


def test_a_spool_whose_spark_checkpoint_is_lost_continues_with_a_new_checkpoint(
    world: World,
) -> None:
    """Plans that are not marked come first, and committed messages stay known."""
    committed(world, 2)
    done = acked(world.broker)
    published = publish(world.broker, 3)
    with world.session() as one:
        assert one.latest(2) == 3
    with world.session() as new:
        assert new.latest(0) == 3
        assert sorted(new.ids(0, 3)) == published
    assert acked(world.broker) == done


def test_a_source_refuses_a_spark_checkpoint_after_another_one_has_begun(world: World) -> None:
    """It would replay plans of the other one."""
    committed(world, 1)
    old = dict(world.chains)
    with world.session() as new:
        publish(world.broker, 1)
        assert new.latest(0) == 2
    world.chains.update(old)
    with world.session() as one, pytest.raises(SpoolError, match="another query has taken it over"):
        one.latest(1)


@pytest.mark.parametrize("offset", [1, 100])
def test_a_source_refuses_a_spark_offset_that_is_behind_or_beyond_its_spool(
    world: World, offset: int
) -> None:
    """The rows after an old offset are in the sink. Nothing is acknowledged."""
    committed(world, 3)
    publish(world.broker, 1)
    before = acked(world.broker)
    text = {1: "the checkpoint is an old copy", 100: "the last plan of the spool is 3"}[offset]
    with world.session() as session, pytest.raises(SpoolError, match=text):
        session.latest(offset)
    assert acked(world.broker) == before


def test_batches_that_a_table_proves_are_committed_for_a_lost_spark_checkpoint(
    world: World,
) -> None:
    """The mark of the last one is missing. Its messages come again and are left out."""
    published = publish(world.broker, 3)
    with world.session() as session:
        assert session.latest(0) == 1
    mark_committed(settings_of(world.broker, world.spool), 1)
    wait_until_unread(world.broker, SUBSCRIPTION)
    world.broker.clock.advance(LEASE)
    late = publish(world.broker, 1)
    rows, at = list[str](), 0
    with world.session(linger=0.5, idle_wait=0.02) as new:
        while acked(world.broker) != {*published, *late}:
            end = new.latest(at)
            rows += new.ids(at, end) if end > at else []
            at = end
    assert rows == late
