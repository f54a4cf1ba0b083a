"""Storage whose disk takes its time: what a call waits for, and what must not be seen before."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from google.protobuf.message import Message

from emulator.broker import Broker
from emulator.engine import Consumer
from emulator.storage import storage as module
from emulator.storage.durability import Durability
from emulator.storage.ledger import Change, Ledger
from emulator.storage.storage import Storage
from protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import PATIENCE


class SlowDisk:
    """While it is slow, it writes each group of changes when the test lets it."""

    def __init__(self) -> None:
        self.is_slow = False
        self._begun = threading.Semaphore(0)
        self._let = threading.Semaphore(0)

    def ledger(self) -> type[Ledger]:
        """A ledger on this disk."""
        disk = self

        class SlowLedger(Ledger):
            def write(self, changes: Sequence[Change]) -> None:
                if disk.is_slow:
                    disk._begun.release()
                    assert disk._let.acquire(timeout=PATIENCE)
                super().write(changes)

        return SlowLedger

    def wait_until_busy(self) -> None:
        """With the next group: those before it are written."""
        assert self._begun.acquire(timeout=PATIENCE)

    def finish_one(self) -> None:
        self._let.release()

    def recover(self) -> None:
        self.is_slow = False
        self._let.release()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    monkeypatch.setattr(module, "Ledger", disk.ledger())
    return disk


@pytest.fixture
def broker(tmp_path: Path, disk: SlowDisk) -> Iterator[Broker]:
    broker = start(tmp_path / "data")
    yield broker
    disk.recover()
    broker.close()


def start(directory: Path) -> Broker:
    return Broker(storage=Storage(directory, Durability.FSYNC))


PUBLISH = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"data")])


def publish(broker: Broker) -> int:
    (message_id,) = broker.engine.publish(PUBLISH)
    return int(message_id)


def answer(broker: Broker, request: Message) -> asyncio.Future[None]:
    """What the answer to a request waits for that was just carried out."""
    assert broker.storage is not None
    barrier = broker.storage.barrier(request)
    assert barrier is not None
    return asyncio.ensure_future(barrier)


def test_a_publish_waits_until_it_is_written_itself(broker: Broker, disk: SlowDisk) -> None:
    """And not only for a write that is under way: the one that reserves its number, say."""

    async def run() -> None:
        disk.is_slow = True
        topic = pubsub.Topic(name=TOPIC)
        broker.engine.create_topic(topic)
        newest = answer(broker, topic)
        for _ in range(3):
            disk.wait_until_busy()
            # All that waited for earlier writes has been told by now.
            await asyncio.sleep(0)
            assert not newest.done()
            publish(broker)
            before, newest = newest, answer(broker, PUBLISH)
            disk.finish_one()
            await before
        disk.recover()
        await newest

    asyncio.run(run())


def test_a_call_waits_for_nothing_that_others_brought(broker: Broker, disk: SlowDisk) -> None:
    """Acknowledgements on streams, say, or what falls due: nobody waits for these."""
    storage = broker.storage
    assert storage is not None
    broker.engine.create_topic(pubsub.Topic(name=TOPIC))
    disk.is_slow = True
    publish(broker)
    request = pubsub.GetTopicRequest(topic=TOPIC)
    storage.check(request)
    assert storage.barrier(request) is None


def test_an_ack_that_is_tried_again_waits_for_the_first(broker: Broker, disk: SlowDisk) -> None:
    """It finds the message acknowledged, which it is not before that is on disk."""
    engine = broker.engine
    engine.create_topic(pubsub.Topic(name=TOPIC))
    engine.create_subscription(pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    publish(broker)
    consumer = Consumer(ack_deadline=60, wake=lambda: None)
    ((ack_id, _),) = engine.take(engine.join(SUBSCRIPTION, consumer), consumer)
    assert broker.storage is not None
    broker.storage.flush()
    request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[ack_id])

    async def run() -> None:
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

    asyncio.run(run())


@pytest.mark.parametrize("restarted", [False, True], ids=["new", "after a restart"])
def test_a_number_that_was_seen_is_not_used_again(
    tmp_path: Path, disk: SlowDisk, restarted: bool
) -> None:
    """Though the broker crashed before anything of the first publish was on disk."""
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
    shutil.copytree(directory, crashed)
    disk.recover()
    broker.close()
    broker = start(crashed)
    assert publish(broker) > seen
    broker.close()
