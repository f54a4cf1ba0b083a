"""A broker with class fsync, killed repeatedly under load: answered requests stay valid."""

from __future__ import annotations

import bisect
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator.storage.rebuilding import FILE_NAME
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import TOPIC
from tests.emulator.wire import TIMEOUT, Wire
from tests.stress.killable_broker import KillableBroker

KILLS = 50
PUBLISHES_UNDER_WAY = 8

# The messages of one request. Their data identifies them.
BATCH = 20


@dataclass
class Ledger:
    """The answers that clients got during all runs of the broker."""

    sent: int = 0
    # The number of messages sent before each run.
    lives: list[int] = field(default_factory=list)
    # The id of every answered or received message, by its data.
    ids: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    # Messages whose acknowledgement was sent, and those whose acknowledgement was answered.
    acking: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)

    def saw(self, data: str, message_id: str) -> None:
        assert self.ids.setdefault(data, message_id) == message_id

    def received(self, message: pubsub.PubsubMessage) -> str:
        data = message.data.decode()
        self.saw(data, message.message_id)
        assert data not in self.acked, f"came again, though acknowledged: {self.describe({data})}"
        return data

    def describe(self, data: set[str]) -> str:
        """Return text that lists messages and the run in which each was published."""
        return ", ".join(
            f"{number} (id {self.ids[str(number)]}, of life {bisect.bisect(self.lives, number)})"
            for number in sorted(map(int, data))
        )


class Publisher:
    """Keeps several publish calls open until the broker is gone."""

    def __init__(self, wire: Wire, ledger: Ledger, enough: threading.Event, at: int) -> None:
        self._wire, self._ledger = wire, ledger
        self._enough, self._left = enough, at
        # The errors of unanswered publish calls.
        self.failures: list[str] = []

    def run(self) -> None:
        under_way = [self._send() for _ in range(PUBLISHES_UNDER_WAY)]
        while under_way:
            data, call = under_way.pop(0)
            try:
                ids = call.result().message_ids
            except grpc.RpcError as error:
                # The broker was killed, so it is unknown whether the messages are kept.
                self.failures.append(str(error))
                continue
            self._ledger.answered.update(data)
            for each, message_id in zip(data, ids, strict=True):
                self._ledger.saw(each, message_id)
            self._left -= 1
            if self._left == 0:
                self._enough.set()
            under_way.append(self._send())

    def _send(self) -> tuple[list[str], Any]:
        first = self._ledger.sent
        self._ledger.sent += random.randint(1, BATCH)
        data = [str(number) for number in range(first, self._ledger.sent)]
        messages = [pubsub.PubsubMessage(data=each.encode()) for each in data]
        request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
        return data, self._wire.start("Publish", request)


def consume(wire: Wire, ledger: Ledger) -> None:
    """Acknowledge two thirds of the messages until the broker is gone."""
    try:
        while True:
            chosen = [
                (ledger.received(received.message), received.ack_id)
                for received in wire.pull(100)
                if random.random() < 2 / 3
            ]
            if chosen:
                ledger.acking.update(data for data, _ in chosen)
                wire.acknowledge(*(ack_id for _, ack_id in chosen))
                ledger.acked.update(data for data, _ in chosen)
    except grpc.RpcError:
        return


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    with KillableBroker(tmp_path) as broker:
        yield broker


@pytest.mark.slow
def test_after_fifty_kills_of_a_broker_every_answered_request_has_its_effect(
    broker: KillableBroker, tmp_path: Path
) -> None:
    """Each answered message is delivered until it is acknowledged, and ids are unique."""
    ledger = Ledger()
    wire = Wire(broker.start())
    wire.create()
    for life in range(KILLS):
        ledger.lives.append(ledger.sent)
        enough = threading.Event()
        publisher = Publisher(wire, ledger, enough, at=random.randint(1, 60))
        workers = [
            threading.Thread(target=publisher.run),
            threading.Thread(target=consume, args=(wire, ledger)),
        ]
        for worker in workers:
            worker.start()
        assert enough.wait(TIMEOUT), publisher.failures
        broker.kill()
        for worker in workers:
            worker.join()
        wire.close()
        check_database(tmp_path / FILE_NAME)
        wire = Wire(broker.start())
        wire.call("CreateTopic", pubsub.Topic(name=f"{TOPIC}-{life}"))
    check_backlog(wire, ledger)
    listed = wire.call("ListTopics", pubsub.ListTopicsRequest(project="projects/test"))
    assert len(listed.topics) == KILLS + 1
    wire.close()


def check_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def check_backlog(wire: Wire, ledger: Ledger) -> None:
    """Check the backlog: answered and unacknowledged messages, and perhaps unanswered ones."""
    left: set[str] = set()
    while received := wire.pull(1000, wait=False):
        left.update(ledger.received(each.message) for each in received)
        wire.acknowledge(*(each.ack_id for each in received))
    lost = ledger.answered - ledger.acking - left
    assert not lost, f"answered, and gone: {ledger.describe(lost)}"
    assert len(set(ledger.ids.values())) == len(ledger.ids)
    # The load was real: each kind of event has happened.
    assert ledger.acked
    assert ledger.answered - ledger.acking
