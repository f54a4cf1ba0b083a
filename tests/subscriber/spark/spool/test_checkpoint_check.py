"""Checks of one spool with several checkpoints.

Messages are acknowledged only after the current engine has committed them, and errors report the
fate of a batch.
"""

from __future__ import annotations

import logging

import pytest

from pullstream.spark.errors import MissingSegment, SpoolError
from tests.subscriber.spark.session.world import LEASE, World, acked, ids, publish
from tests.subscriber.streaming.fakes import eventually


def committed(world: World, batches: int = 1) -> None:
    """Leave a checkpoint that has committed this many batches of three messages."""
    with world.session(max_messages_per_trigger=3, linger=60) as session:
        for number in range(batches):
            publish(world.broker, 3)
            assert session.latest(number) == number + 1
        session.commit(batches)


# ---- messages that are never acknowledged ------------------------------------------------------


def test_messages_planned_for_an_old_spark_checkpoint_get_a_new_batch_number(world: World) -> None:
    """Messages planned by another checkpoint go to the next one, under an unused number."""
    committed(world)
    before = acked(world.broker)
    published = publish(world.broker, 3)
    with world.session() as other:
        assert other.latest(0) == 2
    with world.session() as other:
        assert sorted(ids(other, 0, 2)) == published
    with world.session() as one:
        assert one.latest(1) == 3
        assert sorted(ids(one, 1, 3)) == published
    assert acked(world.broker) == before


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("starts", [1, 2])
def test_the_late_commit_of_a_spark_batch_discarded_for_a_new_checkpoint_acks_nothing(
    world: World, starts: int, is_planned: bool
) -> None:
    """A new checkpoint discards a batch that another one committed, and plans other messages.

    The first checkpoint has committed batch 1, but the source did not receive the commit.
    """
    first = publish(world.broker, 2)
    with world.session() as one:
        assert one.latest(0) == 1
        assert sorted(ids(one, 0, 1)) == first
    for _ in range(starts):
        publish(world.broker, 2)
        with world.session() as new:
            end = new.latest(0)
            if is_planned:
                new.segments(0, end)
    with world.session(idle_wait=0, linger=0) as one:
        one.latest(1)
        one.commit(1)
    assert acked(world.broker) == set()


def test_replaying_a_spark_batch_discarded_for_another_checkpoint_raises_an_error(
    world: World,
) -> None:
    """The batch is not replayed as an empty one."""
    publish(world.broker, 1)
    with world.session() as one:
        assert one.latest(0) == 1
        assert len(one.segments(0, 1)) == 1
    with world.session() as new:
        assert new.latest(0) == 2
    with pytest.raises(MissingSegment, match="segment 1 "):
        world.session().segments(0, 1)


def test_an_ingest_session_refuses_a_spark_offset_beyond_all_batches_of_its_spool(
    world: World,
) -> None:
    """An offset after the last planned one belongs to another checkpoint.

    Its batches are not committed.
    """
    publish(world.broker, 3)
    with world.session() as one:
        assert one.latest(0) == 1
    for session in (world.session(), world.session(fail_on_missing_segment=False)):
        text = r"offset is 100, but the last offset of .* is 1: .*spoolDir"
        with pytest.raises(SpoolError, match=text):
            session.latest(100)
        with pytest.raises(SpoolError, match=text):
            session.segments(100, 101)
        session.close()
    assert acked(world.broker) == set()
    with world.session() as one:
        assert len(ids(one, 0, 1)) == 3


# ---- a lost spool or checkpoint ----------------------------------------------------------------


def test_a_spark_checkpoint_whose_spool_is_lost_continues_with_a_new_spool(world: World) -> None:
    """A checkpoint continues with an empty spool in place of the lost one."""
    published = publish(world.broker, 3)
    with world.session() as session:
        assert session.latest(100) == 101
        assert sorted(ids(session, 100, 101)) == published
    with world.session() as session:
        assert sorted(ids(session, 100, 101)) == published
        session.commit(101)
        eventually(lambda: acked(world.broker) == set(published))


def test_a_spool_whose_spark_checkpoint_is_lost_continues_with_a_new_checkpoint(
    world: World,
) -> None:
    """A new checkpoint begins at 0 with the spool of a lost one.

    Planned messages are returned again, committed ones are known, and numbers continue after them.
    """
    committed(world, 2)
    done = acked(world.broker)
    published = publish(world.broker, 3)
    with world.session() as one:
        assert one.latest(2) == 3
    with world.session() as new:
        assert new.latest(0) == 4
        assert sorted(ids(new, 0, 4)) == published
    assert acked(world.broker) == done
    with world.session() as new:
        assert sorted(ids(new, 0, 4)) == published
        new.commit(4)
        eventually(lambda: acked(world.broker) == {*done, *published})


# ---- a checkpoint that is behind ---------------------------------------------------------------


def test_an_ingest_session_refuses_a_spark_checkpoint_restored_from_an_older_copy(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that went back is refused.

    New rows would have the numbers of batches that are already in the sink. A setting allows this
    for sinks that ignore the numbers.
    """
    committed(world, 3)
    published = publish(world.broker, 2)
    with pytest.raises(
        MissingSegment, match=r"offset is 1, but .*up to 3: the checkpoint is an old"
    ):
        world.session().latest(1)
    world.sessions[-1].close()
    with world.session(fail_on_missing_segment=False) as lenient:
        assert lenient.latest(1) == 4
        assert sorted(ids(lenient, 1, 4)) == published
    assert "The query continues, because failOnMissingSegment is false" in caplog.text


@pytest.mark.parametrize("batch", [1, 2])
def test_the_error_for_a_replayed_acked_spark_batch_says_how_to_mark_it_as_committed(
    world: World, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    """The checkpoint has lost the record of the commit.

    An empty batch would remove rows from the sink.
    """
    committed(world, 2)
    caplog.set_level(logging.WARNING)
    with pytest.raises(
        MissingSegment, match=r"committed and acknowledged before.*mark the batch as committed"
    ):
        world.session().segments(batch - 1, batch)
    world.sessions[-1].close()
    with world.session(fail_on_missing_segment=False) as lenient:
        assert lenient.segments(batch - 1, batch) == []
    assert "would lose these rows permanently" in caplog.text


def test_the_error_for_a_batch_of_a_lost_spool_says_that_its_acknowledgement_is_unknown(
    world: World,
) -> None:
    """A new spool does not know the fate of a batch of the lost spool, even if asked twice."""
    for _ in range(2):
        with pytest.raises(MissingSegment, match="does not know whether it was acknowledged"):
            world.session().segments(4, 5)
        world.sessions[-1].close()
    world.broker.clock.advance(LEASE)
    published = publish(world.broker, 1)
    with world.session(fail_on_missing_segment=False) as lenient:
        assert lenient.segments(4, 5) == []
        assert lenient.latest(5) == 6
        assert ids(lenient, 5, 6) == published
