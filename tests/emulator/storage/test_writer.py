"""Storage on a slow disk: the writes that a call waits for, and the order of visible effects."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.request import urlopen

import pytest
from google.protobuf.message import Message

from pullstream_emulator import Emulator
from pullstream_emulator.broker import Broker
from pullstream_emulator.engine import Consumer
from pullstream_emulator.engine.record import Record, RecordRun
from pullstream_emulator.engine.settings.durability import Durability
from pullstream_emulator.storage import storage as module
from pullstream_emulator.storage.key_map import RESERVE
from pullstream_emulator.storage.sql_writer import Change, SqlWriter
from pullstream_emulator.storage.storage import Storage
from pullstream_emulator.storage.writer import Writer
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.crash import copy_running
from tests.emulator.wire import TIMEOUT, Wire
from tests.subscriber.streaming.fakes import eventually


class SlowDisk:
    """While it is slow, it writes each group of changes when the test allows it."""

    def __init__(self) -> None:
        self.is_slow = False
        self._begun = threading.Semaphore(0)
        self._let = threading.Semaphore(0)

    def ledger(self) -> type[SqlWriter]:
        """Return a class of SQL writers that write to this disk."""
        disk = self

        class SlowLedger(SqlWriter):
            def write(self, changes: Sequence[Change]) -> None:
                if disk.is_slow:
                    disk._begun.release()
                    assert disk._let.acquire(timeout=TIMEOUT)
                super().write(changes)

        return SlowLedger

    def wait_until_busy(self) -> None:
        """Wait until it writes the next group. The groups before it are written."""
        assert self._begun.acquire(timeout=TIMEOUT)

    def finish_one(self) -> None:
        self._let.release()

    def recover(self) -> None:
        self.is_slow = False
        self._let.release()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    monkeypatch.setattr(module, "SqlWriter", disk.ledger())
    return disk


@pytest.fixture
def broker(tmp_path: Path, disk: SlowDisk) -> Iterator[Broker]:
    broker = start(tmp_path / "data")
    yield broker
    disk.recover()
    broker.close()


def start(directory: Path, durability: Durability = Durability.FSYNC, **settings: Any) -> Broker:
    return Broker(storage=Storage(directory, durability, **settings))


PUBLISH = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"data")])


def publish(broker: Broker) -> int:
    (message_id,) = broker.engine.publish(PUBLISH)
    return int(message_id)


def answer(broker: Broker, request: Message) -> asyncio.Future[None]:
    """Return the future for which the answer to this request waits. The request was carried out."""
    assert broker.storage is not None
    barrier = broker.storage.barrier(request)
    assert barrier is not None
    return asyncio.ensure_future(barrier)


async def test_a_publish_is_answered_when_its_own_message_is_on_disk(
    broker: Broker, disk: SlowDisk
) -> None:
    """A write in progress, such as the one that reserves the number, does not suffice."""
    disk.is_slow = True
    topic = pubsub.Topic(name=TOPIC)
    broker.engine.create_topic(topic)
    newest = answer(broker, topic)
    for _ in range(3):
        disk.wait_until_busy()
        # All waits for earlier writes have been notified by now.
        await asyncio.sleep(0)
        assert not newest.done()
        publish(broker)
        before, newest = newest, answer(broker, PUBLISH)
        disk.finish_one()
        await before
    disk.recover()
    await newest


def test_a_call_that_changes_nothing_does_not_wait_for_disk_writes_of_other_calls(
    broker: Broker, disk: SlowDisk
) -> None:
    """Acknowledgements on streams and timers are examples. No call waits for their writes."""
    storage = broker.storage
    assert storage is not None
    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    disk.is_slow = True
    publish(broker)
    request = pubsub.GetTopicRequest(topic=TOPIC)
    storage.check(request)
    assert storage.barrier(request) is None


async def test_a_repeated_acknowledgement_is_answered_after_the_disk_write_of_the_first_one(
    broker: Broker, disk: SlowDisk
) -> None:
    """The call finds the message acknowledged, but the acknowledgement must be on disk first."""
    engine = broker.engine
    engine.create_topic(pubsub.Topic(name=TOPIC))
    engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    publish(broker)
    consumer = Consumer(ack_deadline=60, wake=lambda: None)
    ((ack_id, _),) = engine.take(engine.join(SUBSCRIPTION, consumer), consumer)
    assert broker.storage is not None
    broker.storage.flush()
    request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[ack_id])
    disk.is_slow = True
    engine.acknowledge(SUBSCRIPTION, [ack_id])
    first = answer(broker, request)
    engine.acknowledge(SUBSCRIPTION, [ack_id])
    second = answer(broker, request)
    disk.wait_until_busy()
    await asyncio.sleep(0)
    assert not second.done()
    disk.recover()
    await first
    await second


@pytest.mark.parametrize("restarted", [False, True], ids=["new", "after a restart"])
def test_a_message_id_that_was_delivered_is_not_used_again_after_a_crash(
    tmp_path: Path, disk: SlowDisk, restarted: bool
) -> None:
    """The rule holds even if the broker crashed before the first publish was on disk."""
    directory, crashed = tmp_path / "data", tmp_path / "crashed"
    broker = start(directory)
    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    if restarted:
        broker.close()
        broker = start(directory)
    assert broker.storage is not None
    broker.storage.flush()
    disk.is_slow = True
    seen = publish(broker)
    copy_running(directory, crashed)
    disk.recover()
    broker.close()
    broker = start(crashed)
    assert publish(broker) > seen
    broker.close()


def test_a_message_is_not_published_before_its_number_is_reserved_on_disk(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber gets published messages at once, and after a crash their numbers are used up."""
    directory, crashed = tmp_path / "data", tmp_path / "crashed"
    asked: list[Message] = []
    numbers_for = Storage.numbers_for

    def counted(self: Storage, request: Message) -> Awaitable[None] | None:
        asked.append(request)
        return numbers_for(self, request)

    monkeypatch.setattr(Storage, "numbers_for", counted)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[*PUBLISH.messages] * 1000)
    with Emulator(data_dir=directory, durability="disk") as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        assert emulator.broker.storage is not None
        emulator.broker.storage.flush()
        disk.is_slow = True
        calls = [wire.start("Publish", request) for _ in range(80)]
        eventually(lambda: len(asked) >= len(calls))
        seen = emulator.inspect(lambda engine: engine.registry.topic(TOPIC).log.head_seq)
        assert seen == RESERVE // 1000 * 1000
        copy_running(directory, crashed)
        disk.recover()
        ids = {message_id for call in calls for message_id in call.result().message_ids}
        assert len(ids) == 80_000
        wire.close()
    broker = start(crashed)
    assert publish(broker) > seen
    broker.close()


def test_of_messages_on_disk_only_unacknowledged_ones_stay_in_memory(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """They were written in the batch of changes that reserves more numbers of their topic."""
    broker = start(tmp_path, Durability.DISK)
    assert broker.storage is not None
    engine = broker.engine
    disk.is_slow = True
    engine.create_topic(pubsub.Topic(name=TOPIC))
    disk.wait_until_busy()
    engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    before = {id(each): each for each in kept_messages()}

    def kept() -> list[type]:
        return [type(each) for each in kept_messages() if id(each) not in before]

    for _ in range(3):
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[*PUBLISH.messages] * 200))
    engine.update_topic(
        pubsub.UpdateTopicRequest(
            topic=pubsub.Topic(name=TOPIC, labels={"a": "b"}), update_mask={"paths": ["labels"]}
        )
    )
    disk.recover()
    broker.storage.flush()
    consumer = Consumer(ack_deadline=10, wake=lambda: None)
    subscription = engine.join(SUBSCRIPTION, consumer)
    ack_ids = [ack_id for ack_id, _ in engine.take(subscription, consumer)]
    engine.acknowledge(SUBSCRIPTION, ack_ids[1:])
    broker.storage.flush()
    assert kept() == [Record]
    engine.delete_subscription(SUBSCRIPTION)
    engine.registry.work.finish()
    engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[*PUBLISH.messages] * 200))
    broker.storage.flush()
    assert kept() == []
    broker.close()


def kept_messages() -> list[Record | RecordRun]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) in (Record, RecordRun)]


# ---- exactly-once delivery ---------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_an_exactly_once_acknowledgement_is_confirmed_after_its_disk_write(
    tmp_path: Path, disk: SlowDisk, durability: str
) -> None:
    """The test covers a unary call and a stream.

    A confirmed client never gets the message again.
    """
    with (
        Emulator(data_dir=tmp_path, durability=durability) as emulator,
        ThreadPoolExecutor(1) as pool,
    ):
        wire = Wire(emulator.endpoint)
        wire.create_with("first", "second", enable_exactly_once_delivery=True)
        stream = wire.stream()
        first, second = stream.messages(2)
        storage = emulator.broker.storage
        assert storage is not None
        storage.flush()
        disk.is_slow = True
        stream.send(ack_ids=[first.ack_id])
        response = pool.submit(stream.next)
        disk.wait_until_busy()
        with pytest.raises(FutureTimeout):
            response.result(0.2)
        disk.finish_one()
        confirmed = response.result(TIMEOUT).acknowledge_confirmation
        assert confirmed.ack_ids == [first.ack_id]
        request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[second.ack_id])
        call = wire.start("Acknowledge", request)
        disk.wait_until_busy()
        assert not call.done()
        disk.recover()
        call.result(TIMEOUT)
        stream.cancel()
        wire.close()


def test_with_durability_disk_an_acknowledgement_is_answered_before_the_disk_write(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """The subscription is without exactly-once delivery."""
    with Emulator(data_dir=tmp_path, durability="disk") as emulator:
        wire = Wire(emulator.endpoint)
        wire.create_with("data")
        (received,) = wire.pull()
        disk.is_slow = True
        wire.acknowledge(received.ack_id)
        disk.recover()
        wire.close()


# ---- the administration ------------------------------------------------------------------------


def test_a_broker_reset_is_answered_after_its_disk_write(tmp_path: Path, disk: SlowDisk) -> None:
    """Otherwise the removed data could reappear after a crash."""
    answer_when_on_disk(tmp_path, disk, "/reset", b"")


def test_an_advance_of_the_broker_clock_returns_after_the_disk_write_of_its_effects(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """Here the effect is the end of a subscription that was unused for a day."""
    answer_when_on_disk(tmp_path, disk, "/v0/admin/clock:advance", b'{"seconds": 172800}')


def answer_when_on_disk(directory: Path, disk: SlowDisk, path: str, body: bytes) -> None:
    with (
        Emulator(data_dir=directory, durability="disk", rest=True) as emulator,
        ThreadPoolExecutor(1) as pool,
    ):
        wire = Wire(emulator.endpoint)
        expiration = pubsub.ExpirationPolicy()
        expiration.ttl.FromSeconds(86400)
        wire.create(expiration_policy=expiration)
        wire.close()
        disk.is_slow = True
        url = f"http://{emulator.endpoint}{path}"
        answer = pool.submit(urlopen, url, body, TIMEOUT)
        disk.wait_until_busy()
        with pytest.raises(FutureTimeout):
            answer.result(0.2)
        disk.recover()
        assert answer.result(TIMEOUT).status == 200


def test_a_message_of_emulator_publish_is_on_disk_when_the_method_returns(tmp_path: Path) -> None:
    """The publish of a client has the same guarantee."""
    with Emulator(data_dir=tmp_path / "running", durability="fsync") as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        emulator.publish(TOPIC, "data")
        copy_running(tmp_path / "running", tmp_path / "killed")
        wire.close()
    with Emulator(data_dir=tmp_path / "killed") as emulator:
        assert emulator.backlog(SUBSCRIPTION) == 1


# ---- the limit of the loss ---------------------------------------------------------------------


def test_a_publish_waits_for_the_disk_if_an_unwritten_change_is_older_than_max_loss() -> None:
    """The writer does not wait earlier. A crash costs at most the data of this period."""
    clock = ManualClock()
    may_write = threading.Event()
    begun = threading.Semaphore(0)

    def write(changes: Sequence[Change]) -> None:
        begun.release()
        assert may_write.wait(TIMEOUT)

    def add() -> bool:
        return writer.add(lambda ledger: None)[1]

    nothing = Mock()
    writer = Writer(write, nothing, nothing, "the database", 0.25, clock=clock)
    assert not add()
    assert begun.acquire(timeout=TIMEOUT)
    clock.advance(0.25)
    assert not add()
    clock.advance(0.01)
    assert add()
    may_write.set()
    writer.flush()
    assert not add()
    writer.close()


def test_with_a_tiny_max_loss_a_publish_with_durability_disk_waits_for_a_slow_disk(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """The topic has class disk, where a publish is otherwise answered at once."""
    for max_loss, waits in ((3600.0, False), (1e-9, True)):
        broker = start(tmp_path / str(waits), Durability.DISK, max_loss=max_loss)
        assert broker.storage is not None
        broker.engine.create_topic(pubsub.Topic(name=TOPIC))
        broker.storage.flush()
        disk.is_slow = True
        broker.storage.check(PUBLISH)
        publish(broker)

        async def run(storage: Storage) -> bool:
            barrier = storage.barrier(PUBLISH)
            disk.recover()
            if barrier is not None:
                await barrier
            return barrier is not None

        publish(broker)
        assert asyncio.run(run(broker.storage)) is waits
        broker.close()
