"""A session with prefetch: the next batch is ready early, and the rest behaves the same."""

from __future__ import annotations

from functools import partial

import pytest

from pullstream.spark.session.prefetch import PrefetchMode
from tests.subscriber.spark.session.world import (
    LEASE,
    FillingStore,
    World,
    acked,
    has_delivered,
    publish,
    threads,
)
from tests.subscriber.streaming.fakes import eventually

BACKGROUND, AT_ONCE = PrefetchMode.IN_BACKGROUND, PrefetchMode.AT_ONCE


def files(world: World) -> list[str]:
    """Return the ends of the names of the segments."""
    return [name[-7:] for name in world.files("seg")]


def test_the_next_batch_is_written_to_the_spool_while_spark_processes_the_current_one(
    world: World,
) -> None:
    """The segment is written as soon as there are enough messages.

    Committed messages are acknowledged at the same time.
    """
    session = world.session(work_ahead=BACKGROUND, max_messages_per_trigger=2, linger=60)
    published = publish(world.broker, 3)
    assert session.latest(0) == 1
    published += publish(world.broker, 1)
    eventually(lambda: files(world) == ["1.arrow", "2.arrow"])
    assert session.report()["plan"] == 1
    assert session.ids(0, 1) == published[:2]
    assert session.latest(1) == 2
    assert session.ids(1, 2) == published[2:]
    eventually(lambda: acked(world.broker) == set(published[:2]))
    eventually(lambda: world.files("mark") == ["000000000001.json"])


def test_the_prefetcher_of_an_ingest_session_writes_no_incomplete_batch(world: World) -> None:
    """A batch may grow until it is requested. Its thread ends at once on close."""
    before = threads()
    session = world.session(work_ahead=BACKGROUND, max_messages_per_trigger=2, linger=1)
    published = publish(world.broker, 3)
    assert session.latest(0) == 1
    eventually(lambda: "pullstream-prefetch" in threads())
    assert session.latest(1) == 2
    assert session.ids(1, 2) == published[2:]
    session.close()
    assert threads() <= before


def test_a_prefetched_batch_is_the_next_one_after_a_restart(world: World) -> None:
    """Its plan is durable. Its messages are not returned, because segments have them."""
    session = world.session(work_ahead=BACKGROUND, max_messages_per_trigger=2, linger=60)
    published = publish(world.broker, 4)
    session.latest(0)
    eventually(lambda: len(world.files("plan")) == 2)
    session.close()
    assert world.broker.history.returns() == world.broker.history.nacks() == []
    again = world.session(idle_wait=0)
    assert again.latest(1) == 2
    assert again.ids(1, 2) == published[2:]


def test_an_ingest_session_asked_twice_gives_the_same_offset_despite_a_prefetched_batch(
    world: World,
) -> None:
    """The next segment was written before the second question."""
    session = world.session(work_ahead=AT_ONCE, max_messages_per_trigger=2, linger=1)
    published = publish(world.broker, 4)
    assert session.latest(0) == session.latest(0) == 1
    assert session.ids(0, 1) == published[:2]
    assert session.latest(1) == 2
    assert session.ids(1, 2) == published[2:]


def test_a_redelivery_of_a_message_prefetched_for_spark_makes_no_second_row(world: World) -> None:
    """The redelivery is handled as for any other segment."""
    session = world.session(work_ahead=BACKGROUND, max_messages_per_trigger=2, idle_wait=1)
    published = publish(world.broker, 4)
    session.latest(0)
    eventually(lambda: len(files(world)) == 2)
    world.broker.clock.advance(LEASE)
    world.broker.history.wait_until(partial(has_delivered, world.broker, 8))
    fence = publish(world.broker, 1)
    eventually(lambda: session.report()["buffered"] == 1)
    assert session.latest(1) == 2
    assert session.ids(1, 2) == published[2:]
    assert session.latest(2) == 3
    assert session.ids(2, 3) == fence
    session.latest_until(lambda: acked(world.broker) == {*published, *fence}, 3)


@pytest.mark.parametrize("work_ahead", [BACKGROUND, AT_ONCE])
def test_an_ingest_session_without_disk_space_to_prefetch_still_delivers_every_batch(
    world: World, work_ahead: PrefetchMode
) -> None:
    """Every batch comes in the end without an error."""
    session = world.session(
        work_ahead=work_ahead, max_messages_per_trigger=2, max_spool_bytes=3000, linger=1
    )
    published = publish(world.broker, 6)
    for number in range(3):
        assert session.latest(number) == number + 1
        assert session.report()["spoolBytes"] <= 6000
        assert session.ids(number, number + 1) == published[2 * number : 2 * number + 2]


def test_no_message_is_lost_if_the_disk_fills_up_while_a_spark_batch_is_prefetched(
    world: World,
) -> None:
    """Committed messages wait for the record of the commit, and the next ones for their segment."""
    storage = FillingStore(world.spool)
    session = world.session(
        work_ahead=BACKGROUND, storage=storage, max_messages_per_trigger=2, linger=60
    )
    published = publish(world.broker, 3)
    assert session.latest(0) == 1
    storage.full = True
    published += publish(world.broker, 1)
    eventually(lambda: "pullstream-prefetch" not in threads())
    assert session.report()["buffered"] == 2
    storage.full = False
    assert session.latest(1) == 2
    session.commit(2)
    eventually(lambda: acked(world.broker) == set(published))


def test_a_spark_batch_is_read_although_its_predecessor_could_not_be_marked(world: World) -> None:
    """The disk was full for a moment. The mark and the acknowledgement are repeated."""
    storage = FillingStore(world.spool)
    session = world.session(
        work_ahead=AT_ONCE, storage=storage, max_messages_per_trigger=2, idle_wait=0.5, linger=1
    )
    published = publish(world.broker, 4)
    eventually(lambda: session.latest(0) == 1 and len(world.files("plan")) == 2)
    storage.full = True
    assert session.latest(1) == 2
    assert world.files("mark") == []
    storage.full = False
    assert session.ids(1, 2) == published[2:]
    assert session.latest(2) == 2
    eventually(lambda: acked(world.broker) == set(published))


def test_prefetching_for_spark_is_retried_some_batches_after_a_failure_for_lack_of_space(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed attempt is expensive, but there may be room again after a while."""
    monkeypatch.setattr("pullstream.spark.session.source_session._PAUSE_AFTER_FAILURE", 2)
    storage = FillingStore(world.spool)
    session = world.session(
        work_ahead=BACKGROUND, storage=storage, max_messages_per_trigger=2, linger=60
    )
    publish(world.broker, 2)
    assert session.latest(0) == 1
    storage.full = True
    publish(world.broker, 2)
    eventually(lambda: "pullstream-prefetch" not in threads())
    storage.full = False
    assert session.latest(1) == 2
    publish(world.broker, 2)
    eventually(lambda: "pullstream-prefetch" not in threads())
    before = len(world.files("plan"))
    assert session.latest(2) == 3
    publish(world.broker, 2)
    eventually(lambda: "pullstream-prefetch" not in threads())
    assert session.latest(3) == 4
    assert before == 2


def test_a_spark_available_now_run_with_prefetching_ends_with_all_messages_acknowledged(
    world: World,
) -> None:
    """All messages are acknowledged, in no more batches than necessary."""
    published = publish(world.broker, 25)
    session = world.session(work_ahead=BACKGROUND, max_messages_per_trigger=10)
    session.prepare_available_now()
    rows, at = [], 0
    while (end := session.latest(at)) != at:
        rows += session.ids(at, end)
        at = end
    assert at == 3
    assert sorted(rows, key=int) == published
    assert acked(world.broker) == set(published)
