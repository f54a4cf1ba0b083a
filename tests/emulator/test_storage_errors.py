"""A disk that cannot be written: calls fail, nothing is lost, and all goes on when it can again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from emulator import Emulator
from emulator.storage.database import FILE_NAME
from protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import PATIENCE, Wire, data_of

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux can limit another process's files"
)

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
LARGE = "x" * 100_000


class LimitedBroker:
    """A broker at class fsync in a process of its own, whose disk can be made full."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "emulator", "--host", "127.0.0.1", "--port", "0"),
                *("--data-dir", str(directory), "--durability", "fsync"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.wire = Wire(f"127.0.0.1:{self._process.stdout.readline().split()[-1]}")

    def fill_disk(self) -> None:
        """No file may grow from now on."""
        size = max(file.stat().st_size for file in self._directory.iterdir())
        self._limit((size, resource.RLIM_INFINITY))

    def make_room(self) -> None:
        self._limit(NO_LIMIT)

    def _limit(self, limit: tuple[int, int]) -> None:
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, limit)

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> str:
        """End it in order; returns what it logged."""
        self.wire.close()
        self._process.terminate()
        return self._process.communicate(timeout=PATIENCE)[1]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LimitedBroker]:
    broker = LimitedBroker(tmp_path)
    try:
        broker.wire.create()
        yield broker
    finally:
        broker.stop()


def refused(wire: Wire, method: str, request: pubsub.PublishRequest | pubsub.Topic) -> str:
    """Why the broker refuses a call, with the status that makes clients try again."""
    with pytest.raises(grpc.RpcError) as failure:
        wire.call(method, request)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(failure.value.details())


def publish_until_refused(wire: Wire) -> int:
    """How many large messages a full disk still takes."""
    taken = 0
    message = pubsub.PubsubMessage(data=LARGE.encode())
    request = pubsub.PublishRequest(topic=TOPIC, messages=[message])
    while True:
        try:
            wire.call("Publish", request)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return taken
        taken += 1


def test_what_cannot_be_kept_is_not_acknowledged(broker: LimitedBroker, tmp_path: Path) -> None:
    """A publish and a change are refused, a pull is not; what was answered before is on disk."""
    wire = broker.wire
    wire.publish("before")
    broker.fill_disk()
    taken = publish_until_refused(wire)
    topic = pubsub.Topic(name=f"{TOPIC}-2")
    assert refused(wire, "CreateTopic", topic).startswith("The broker cannot write to its disk (")
    assert "before" in data_of(wire.pull())
    broker.kill()
    with Emulator(data_dir=tmp_path) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == 1 + taken


def test_it_goes_on_when_there_is_room_again(broker: LimitedBroker, tmp_path: Path) -> None:
    """By itself, with one line in the log for the trouble and one for its end."""
    wire = broker.wire
    broker.fill_disk()
    taken = publish_until_refused(wire)
    for _ in range(3):
        refused(wire, "CreateTopic", pubsub.Topic(name=f"{TOPIC}-2"))
    broker.make_room()
    publish_when_possible(wire, "after")
    log = broker.stop().splitlines()
    file = tmp_path / FILE_NAME
    assert len(log) == 2
    assert log[0].startswith(f"ERROR {file} cannot be written: ")
    assert log[1] == f"WARNING {file} can be written again"
    with Emulator(data_dir=tmp_path) as emulator:
        # The one that was refused may be among them: its publisher was told that it is not known.
        assert emulator.backlog(SUBSCRIPTION) in (taken + 1, taken + 2)


def publish_when_possible(wire: Wire, data: str) -> None:
    """As clients do: UNAVAILABLE is a reason to try again."""
    while True:
        try:
            wire.publish(data)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        else:
            return
