"""A receiver outside of the source's process: it writes segments, and settles its messages."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.receiver_processes.report import Activity
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.receiver_processes.world import LEASE, TOPIC, Flaky, World
from tests.subscriber.streaming.fakes import eventually

STORED = Acknowledge.STORED


def test_a_receiver_acknowledges_messages_when_their_batch_is_committed(world: World) -> None:
    """Before that, it holds their leases."""
    published = world.publish(b"1", b"2", b"3")
    receiver = world.receiver()
    eventually(lambda: world.manifests > 0 and receiver.loop.report().rows == 3)
    query = world.query()
    assert query.step()
    world.broker.clock.advance(LEASE / 2)
    assert world.acked == set()
    assert not query.step()
    world.broker.clock.advance(6)
    eventually(lambda: world.acked == set(published))
    receiver.stop()
    assert sorted(query.ids) == published
    assert world.returned == set()
    report = receiver.loop.report()
    assert (report.acknowledged, report.waiting_segments, report.waiting_bytes) == (3, 0, 0)


def test_a_receiver_with_stored_acknowledges_messages_when_their_segment_is_written(
    world: World,
) -> None:
    """No query is needed. The segments stay in its share until they are committed."""
    published = world.publish(b"1", b"2", b"3")
    receiver = world.receiver(acknowledge=STORED)
    eventually(lambda: world.acked == set(published))
    receiver.stop()
    query = world.query(STORED)
    query.step()
    assert sorted(query.ids) == published
    assert receiver.loop.report().waiting_segments > 0


def test_the_segments_of_a_receiver_have_its_part_of_the_limits_of_a_batch(world: World) -> None:
    """With two receivers, half of the rows."""
    settings = world.settings(count=2, max_messages_per_trigger=5, max_bytes_per_trigger=7)
    assert (settings.segment_rows, settings.segment_bytes) == (2, 3)
    world.publish(*[b"x"] * 5)
    receiver = world.receiver(count=2, max_messages_per_trigger=4, linger=100.0)
    eventually(lambda: receiver.loop.report().segments == 2)
    assert receiver.loop.report().rows == 4
    world.broker.clock.advance(101)
    eventually(lambda: receiver.loop.report().rows == 5)


@pytest.mark.parametrize("acknowledge", list(Acknowledge))
def test_a_receiver_without_room_in_its_share_waits_until_segments_are_committed(
    world: World, acknowledge: Acknowledge
) -> None:
    """The share is a part of maxSpoolBytes."""
    world.publish(*[b"x" * 1000] * 3)
    receiver = world.receiver(
        acknowledge=acknowledge,
        count=2,
        max_messages_per_trigger=2,
        max_bytes_per_trigger=2000,
        max_spool_bytes=8000,
    )
    eventually(lambda: receiver.loop.report().activity is Activity.FULL)
    assert receiver.loop.report().segments == 1
    query = world.query(acknowledge)

    def is_written() -> bool:
        query.step()
        # Slowly, so that leases are extended in time also on a busy machine.
        world.broker.clock.advance(0.1)
        return receiver.loop.report().segments == 3

    eventually(is_written)


def test_a_stopped_receiver_returns_the_messages_that_are_not_acknowledged(world: World) -> None:
    """Those in a segment come again to another receiver, and are left out."""
    published = world.publish(b"1", b"2", b"3")
    receiver = world.receiver(max_messages_per_trigger=2, linger=100.0)
    eventually(lambda: receiver.loop.report().leased == 3 and receiver.loop.report().rows == 2)
    receiver.stop()
    assert world.returned == {*published}
    assert receiver.loop.report().activity is Activity.ENDING
    query = world.query()
    world.receiver()

    def is_acknowledged() -> bool:
        query.step()
        # Slowly, so that leases are extended in time also on a busy machine.
        world.broker.clock.advance(0.1)
        return world.acked == {*published}

    eventually(is_acknowledged)
    assert sorted(query.ids) == published
    assert query.coordinator.counts.left_out == 2


def test_a_stopped_receiver_acknowledges_batches_that_are_just_committed(world: World) -> None:
    """It looks at the marks once more."""
    published = world.publish(b"1", b"2")
    receiver = world.receiver()
    eventually(lambda: receiver.loop.report().rows == 2)
    query = world.query()
    while query.step():
        pass
    receiver.stop()
    assert world.acked == {*published}
    assert world.returned == set()


def test_a_receiver_for_the_available_messages_ends_when_they_are_committed(world: World) -> None:
    """With `stored`, when they are stored."""
    published = world.publish(b"1", b"2", b"3")
    # On a busy machine, messages may come late.
    receiver = world.receiver(available_now=True, drain_wait=1.0)
    eventually(lambda: receiver.loop.report().activity is Activity.DRAINED)
    later = world.publish(b"4")
    query = world.query()
    while query.step():
        pass
    world.broker.clock.advance(1)
    receiver.join()
    assert world.acked == {*published} == {*query.ids}
    receiver = world.receiver(available_now=True, acknowledge=STORED, drain_wait=1.0)
    receiver.join()
    assert world.acked == {*published, *later}


def test_a_receiver_for_the_available_messages_goes_on_when_its_stream_was_paused(
    world: World,
) -> None:
    """A stream that flow control has paused is quiet, but the subscription is not empty."""
    published = world.publish(*[b"x"] * 5)
    # On a busy machine, messages may come late.
    receiver = world.receiver(
        available_now=True,
        max_messages_per_trigger=1,
        max_outstanding_messages=2,
        drain_wait=1.0,
    )
    query = world.query()

    def commit(number: int) -> None:
        eventually(lambda: receiver.loop.report().rows == number)
        while query.step():
            pass
        # Longer than the wait after which a stream counts as quiet.
        world.broker.clock.advance(1.1)
        eventually(lambda: len(world.acked) == number)

    for number in (2, 4, 5):
        commit(number)
    world.broker.clock.advance(1.1)
    receiver.join()
    assert sorted(query.ids) == published


def test_a_receiver_for_the_available_messages_ends_at_the_first_later_messages(
    world: World,
) -> None:
    """So it ends although messages arrive all the time."""
    world.publish(b"1")
    receiver = world.receiver(available_now=True, acknowledge=STORED, drain_wait=1000.0)
    eventually(lambda: receiver.loop.report().rows == 1)
    world.publish(b"2")
    receiver.join()
    assert receiver.loop.report().rows == 2


def test_a_receiver_looks_sooner_if_its_stream_is_about_to_pause(spool: Path) -> None:
    """Otherwise it would wait for up to 5 s with a paused stream."""
    with Emulator(clock=ManualClock()) as broker:
        world = World(broker, spool)
        world.publish(b"1", b"2")
        receiver = world.receiver(max_messages_per_trigger=1, max_outstanding_messages=2)

        def is_written() -> bool:
            broker.clock.advance(0.01)
            return receiver.loop.report().segments == 2

        try:
            eventually(is_written)
            query = world.query()
            while query.step():
                pass
            broker.clock.advance(1.1)
            eventually(lambda: len(world.acked) == 2)
        finally:
            receiver.end()


def test_a_put_whose_answer_is_lost_is_repeated_under_the_same_name(world: World) -> None:
    """There is one segment, and each row is there once."""
    published = world.publish(b"1", b"2")
    storage = Flaky(world.folder)
    storage.lost = 2
    receiver = world.receiver(storage=storage)

    def is_written() -> bool:
        world.broker.clock.advance(0.2)
        return receiver.loop.report().rows == 2

    eventually(is_written)
    receiver.stop()
    written = [path for path in storage.calls if path.startswith(("seg/", "man/"))]
    assert len(written) == 4
    assert len(set(written)) == 2
    assert receiver.loop.report().repeated == 2
    query = world.query()
    query.step()
    assert sorted(query.ids) == published


def test_a_full_disk_ends_a_receiver_and_its_messages_are_returned(world: World) -> None:
    """The error is clear, and comes without a repetition."""
    published = world.publish(b"1", b"2")
    storage = Flaky(world.folder)
    storage.error = OSError(errno.ENOSPC, "No space left on device")
    receiver = world.receiver(storage=storage)
    with pytest.raises(SpoolError, match=r"No space left on device.*Nothing is lost"):
        receiver.join()
    assert world.returned == set(published)
    assert world.acked == set()
    assert len([path for path in storage.calls if path.startswith("seg/")]) == 1


def test_a_storage_that_fails_for_a_lease_ends_a_receiver(world: World) -> None:
    """Until then, the report has the error. The messages are returned."""
    published = world.publish(b"1", b"2")
    storage = Flaky(world.folder)
    storage.error = OSError(errno.EIO, "Input/output error")
    receiver = world.receiver(storage=storage)
    eventually(lambda: receiver.loop.report().activity is Activity.STORAGE)
    assert "Input/output error" in receiver.loop.report().problem

    def has_ended() -> bool:
        world.broker.clock.advance(4)
        return receiver.error is not None

    eventually(has_ended)
    with pytest.raises(SpoolError, match=r"Input/output error.*Nothing is lost"):
        receiver.join()
    assert world.returned == set(published)
    assert world.acked == set()


def test_a_receiver_can_be_stopped_while_its_storage_fails(world: World) -> None:
    """It ends without an error, and its messages are returned."""
    published = world.publish(b"1", b"2")
    storage = Flaky(world.folder)
    storage.error = OSError(errno.EIO, "Input/output error")
    receiver = world.receiver(storage=storage)
    eventually(lambda: receiver.loop.report().activity is Activity.STORAGE)
    receiver.stop()
    assert world.returned == set(published)


def test_a_receiver_that_sleeps_past_a_lease_while_it_writes_returns_its_messages(
    world: World,
) -> None:
    """The segment has no manifest, and the receiver goes on under a new name."""
    world.publish(b"1", b"2")
    slept = [0.0]
    storage = Flaky(world.folder)

    def sleep(path: str) -> None:
        if path.startswith("seg/") and not slept[0]:
            slept[0] = LEASE + 1.0

    storage.before = sleep
    receiver = world.receiver(storage=storage, now=lambda: slept[0])
    eventually(lambda: receiver.loop.report().abandoned == 1)
    eventually(lambda: receiver.loop.report().rows == 2)
    receiver.stop()
    names = {path.split("/")[1] for path in storage.calls if path.startswith("seg/")}
    assert len(names) == 2
    assert len([path for path in storage.calls if path.startswith("man/")]) == 1
    assert world.acked == set()


def test_a_receiver_whose_folder_vanishes_returns_its_messages_and_ends(world: World) -> None:
    """A missing manifest is no proof of a commit."""
    published = world.publish(b"1", b"2")
    receiver = world.receiver()
    eventually(lambda: receiver.loop.report().rows == 2)
    shutil.rmtree(world.spool)
    world.broker.clock.advance(6)
    with pytest.raises(SpoolError, match="gone or was exchanged"):
        receiver.join()
    assert world.returned == set(published)
    assert world.acked == set()


def test_a_receiver_returns_messages_whose_manifest_vanishes_without_a_mark(world: World) -> None:
    """It stays in operation."""
    published = world.publish(b"1")
    receiver = world.receiver()
    eventually(lambda: receiver.loop.report().rows == 1)
    shutil.rmtree(world.spool / "man")
    world.broker.clock.advance(6)
    eventually(lambda: world.returned == set(published))
    eventually(lambda: receiver.loop.report().rows == 2)


def test_a_receiver_fails_if_its_subscription_does_not_exist(world: World) -> None:
    """The error is the server's."""
    with pytest.raises(NotFound):
        world.receiver(subscription="projects/p/subscriptions/other").join()


@pytest.mark.parametrize("acknowledge", list(Acknowledge))
def test_a_receiver_warns_of_few_delivery_attempts(
    world: World, acknowledge: Acknowledge, caplog: pytest.LogCaptureFixture
) -> None:
    """Only with `committed`, where kills may use them up."""
    name = "projects/p/subscriptions/limited"
    policy = pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC, max_delivery_attempts=5)
    world.broker.inspect(
        lambda engine: engine.create_subscription(
            pubsub.Subscription(name=name, topic=TOPIC, dead_letter_policy=policy)
        )
    )
    receiver = world.receiver(subscription=name, acknowledge=acknowledge)
    eventually(lambda: receiver.loop.report().activity is Activity.RECEIVING)
    receiver.stop()
    assert ("allows 5 delivery attempts" in caplog.text) == (acknowledge is not STORED)


def test_a_receiver_refuses_the_spool_of_another_subscription(world: World) -> None:
    """Nothing is received."""
    world.publish(b"1")
    world.query().step()
    with pytest.raises(SpoolError, match=r"belongs to .*/subscription, not to .*/other"):
        world.receiver(subscription="projects/p/subscriptions/other").join()
    assert world.broker.history.deliveries() == []


def test_a_receiver_shows_that_its_server_is_away(world: World) -> None:
    """The report says why, and the receiver goes on when the server is back."""
    receiver = world.receiver()
    eventually(lambda: receiver.loop.report().activity is Activity.RECEIVING)
    world.broker.stop()
    eventually(lambda: receiver.loop.report().activity is Activity.UNREACHABLE)
    assert receiver.loop.report().problem
    receiver.stop()


def test_a_receiver_without_rights_in_its_folder_fails_with_one_line(
    world: World, tmp_path: Path
) -> None:
    """A file is in the place of the folder."""
    world.spool.write_bytes(b"")
    with pytest.raises(SpoolError, match=r"cannot use .* as a spool: .*Not a directory"):
        world.receiver().join()
