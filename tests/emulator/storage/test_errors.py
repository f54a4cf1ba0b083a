"""A disk that cannot be written: calls fail, no data are lost, and the broker recovers."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.storage.database import Database
from pullstream_emulator.storage.errors import StorageError
from pullstream_emulator.storage.rebuilding import FILE_NAME
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.program import COMMAND, QUIET
from tests.emulator.wire import TIMEOUT, Wire, data_of

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux can limit another process's files"
)

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
LARGE = "x" * 100_000


class LimitedBroker:
    """A broker in a separate process. The test can fill its disk."""

    def __init__(self, directory: Path, durability: str = "fsync") -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [*COMMAND, "--data-dir", str(directory), "--durability", durability],
            env={**os.environ, **QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.wire = Wire(f"127.0.0.1:{self._process.stdout.readline().split()[-1]}")

    def fill_disk(self) -> None:
        """Prevent any file from growing."""
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
        """Stop it in an orderly way, and return its log."""
        self.wire.close()
        self._process.terminate()
        return self._process.communicate(timeout=TIMEOUT)[1]

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LimitedBroker]:
    broker = LimitedBroker(tmp_path)
    try:
        broker.wire.create()
        yield broker
    finally:
        broker.stop()


def refused(wire: Wire, method: str, request: pubsub.PublishRequest | pubsub.Topic) -> str:
    """Return the text of a refusal, and check that the status is one that clients retry."""
    with pytest.raises(grpc.RpcError) as failure:
        wire.call(method, request)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(failure.value.details())


def publish_until_refused(wire: Wire) -> int:
    """Return how many large messages a full disk still accepts."""
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


def test_the_publish_of_a_message_that_cannot_be_written_to_disk_fails(
    broker: LimitedBroker, tmp_path: Path
) -> None:
    """A publish and a change are refused, a pull is not. Earlier answers are on disk."""
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


def test_a_broker_with_a_full_disk_accepts_publishes_again_when_there_is_room(
    broker: LimitedBroker, tmp_path: Path
) -> None:
    """The broker needs no restart, and logs one line for the problem and one for its end."""
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
        # The refused message may be included: its publisher got the answer that its fate is
        # unknown.
        assert emulator.backlog(SUBSCRIPTION) in (taken + 1, taken + 2)


def publish_when_possible(wire: Wire, data: str) -> None:
    """Retry after UNAVAILABLE, as clients do."""
    while True:
        try:
            wire.publish(data)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        else:
            return


def test_a_broker_program_that_loses_confirmed_messages_when_stopped_exits_with_an_error(
    tmp_path: Path,
) -> None:
    """At class disk a message is confirmed before it is written.

    The exit code is 1, with one line.
    """
    broker = LimitedBroker(tmp_path, "disk")
    try:
        broker.wire.create()
        broker.fill_disk()
        broker.wire.publish(LARGE * 20)
    finally:
        log = broker.stop().splitlines()
    assert broker.exit_code == 1
    assert log[-1].startswith(f"Error: {tmp_path / FILE_NAME} lacks the last changes, which could")
    assert log[-1].endswith("messages that were confirmed may be lost")
    assert not any("Traceback" in line for line in log)


def test_stopping_an_emulator_raises_a_storage_error_if_messages_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is stopped in any case."""
    emulator = Emulator(data_dir=tmp_path).start()
    wire = Wire(emulator.endpoint)
    wire.create()

    def fail(database: Database) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Database, "transaction", fail)
    wire.publish("lost")
    wire.close()
    with pytest.raises(StorageError, match="lacks the last changes"):
        emulator.stop()
    monkeypatch.undo()
    with Emulator(data_dir=tmp_path) as emulator:
        assert emulator.backlog(SUBSCRIPTION) == 0
