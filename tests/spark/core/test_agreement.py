"""One spool and more than one checkpoint: nothing is acknowledged that the engine which says so has
not committed, and an error says what became of a batch."""

from __future__ import annotations

import logging

import pytest

from subscriber.spark.errors import MissingSegment, SpoolError
from tests.spark.core.world import LEASE, World, acked, ids, publish
from tests.subscriber.streaming.fakes import eventually


def committed(world: World, batches: int = 1) -> None:
    """What a checkpoint has left that has committed so many batches of three messages."""
    with world.session(max_messages_per_trigger=3, linger=60) as session:
        for number in range(batches):
            publish(world.broker, 3)
            assert session.latest(number) == number + 1
        session.commit(batches)


# ---- what is never acknowledged ----------------------------------------------------------------


def test_what_another_checkpoint_has_planned_is_given_back(world: World) -> None:
    """To the one that comes after it; its number is behind all that was acknowledged."""
    committed(world)
    before = acked(world.broker)
    published = publish(world.broker, 3)
    with world.session() as other:
        assert other.latest(0) == 2
    with world.session() as other:
        assert sorted(ids(other, 0, 2)) == published
    with world.session() as one:
        assert one.latest(1) == 2
        assert sorted(ids(one, 1, 2)) == published
    assert acked(world.broker) == before


def test_an_offset_beyond_all_that_was_planned_is_refused(world: World) -> None:
    """The spool is another checkpoint's: what that one has planned is not committed."""
    publish(world.broker, 3)
    with world.session() as one:
        assert one.latest(0) == 1
    for session in (world.session(), world.session(fail_on_missing_segment=False)):
        text = r"offset is 100, but .* has only come to 1: .*spoolDir"
        with pytest.raises(SpoolError, match=text):
            session.latest(100)
        with pytest.raises(SpoolError, match=text):
            session.segments(100, 101)
        session.close()
    assert acked(world.broker) == set()
    with world.session() as one:
        assert len(ids(one, 0, 1)) == 3


# ---- one of the two is lost --------------------------------------------------------------------


def test_without_its_spool_a_checkpoint_goes_on(world: World) -> None:
    """In an empty one, which takes the place of the lost one."""
    published = publish(world.broker, 3)
    with world.session() as session:
        assert session.latest(100) == 101
        assert sorted(ids(session, 100, 101)) == published
    with world.session() as session:
        assert sorted(ids(session, 100, 101)) == published
        session.commit(101)
        eventually(lambda: acked(world.broker) == set(published))


def test_without_its_checkpoint_a_spool_goes_on(world: World) -> None:
    """A new one begins at 0. What was planned comes again, what was committed is known, and numbers
    go on behind it."""
    committed(world, 2)
    done = acked(world.broker)
    published = publish(world.broker, 3)
    with world.session() as one:
        assert one.latest(2) == 3
    with world.session() as new:
        assert new.latest(0) == 3
        assert sorted(ids(new, 0, 3)) == published
    assert acked(world.broker) == done
    with world.session() as new:
        assert sorted(ids(new, 0, 3)) == published
        new.commit(3)
        eventually(lambda: acked(world.broker) == {*done, *published})


# ---- a checkpoint that is behind ---------------------------------------------------------------


def test_a_checkpoint_that_has_gone_back_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """New rows would come under the numbers of batches that are in the sink; unless that is right,
    as where the sink does not go by them."""
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
    assert "It goes on, as failOnMissingSegment is false" in caplog.text


@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_that_was_acknowledged_is_not_called_lost(
    world: World, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    """The checkpoint has lost that it was committed: empty, it would take rows out of the sink."""
    committed(world, 2)
    caplog.set_level(logging.WARNING)
    with pytest.raises(
        MissingSegment, match=r"committed and acknowledged before.*note the batch as committed"
    ):
        world.session().segments(batch - 1, batch)
    world.sessions[-1].close()
    with world.session(fail_on_missing_segment=False) as lenient:
        assert lenient.segments(batch - 1, batch) == []
    assert "would lose these rows for good" in caplog.text


def test_of_a_spool_that_is_lost_nothing_is_claimed(world: World) -> None:
    """What became of the batch the new one does not know; also when it is asked again."""
    for _ in range(2):
        with pytest.raises(MissingSegment, match="is not known here"):
            world.session().segments(4, 5)
        world.sessions[-1].close()
    world.broker.clock.advance(LEASE)
    published = publish(world.broker, 1)
    with world.session(fail_on_missing_segment=False) as lenient:
        assert lenient.segments(4, 5) == []
        assert lenient.latest(5) == 6
        assert ids(lenient, 5, 6) == published
