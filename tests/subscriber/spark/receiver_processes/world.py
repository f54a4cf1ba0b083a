"""A broker with a subscription, receivers on one spool, and the coordinator of a query."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings
from pullstream.spark.protocol.elapsed import elapsed
from pullstream.spark.protocol.layout import MANIFESTS, segments_of
from pullstream.spark.protocol.storage import Storage, run
from pullstream.spark.receiver_processes.loop import ReceiverLoop
from pullstream.spark.receiver_processes.settings import ReceiverSettings
from pullstream.spark.settings import IngestSettings
from pullstream.spark.stores import LocalFolder, StoredFile
from pullstream_emulator import Emulator
from pullstream_protocol.clock import Clock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.streaming.fakes import TIMEOUT

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"

# Seconds; the ack deadline of the subscription, too.
LEASE = 60


class Running:
    """A loop on its thread."""

    def __init__(self, loop: ReceiverLoop) -> None:
        self.loop = loop
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception as error:
            self.error = error

    def join(self) -> None:
        """Wait for the end, and raise its error."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the receiver has not ended"
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.loop.stop()
        self.join()

    def end(self) -> None:
        """Stop, also after an error."""
        self.loop.stop()
        self._thread.join(TIMEOUT)


class World:
    """A broker with a subscription, and a folder."""

    def __init__(self, broker: Emulator, spool: Path) -> None:
        self.broker = broker
        self.spool = spool
        self.folder = LocalFolder(spool)
        self.running: list[Running] = []
        broker.inspect(
            lambda engine: (
                engine.create_topic(pubsub.Topic(name=TOPIC)),
                engine.create_subscription(
                    pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=LEASE)
                ),
            )
        )

    def settings(
        self, *, count: int = 1, available_now: bool = False, **changes: Any
    ) -> ReceiverSettings:
        quick = {"linger": 0.01, "drain_wait": 0.15, "subscription": SUBSCRIPTION}
        source = IngestSettings(
            **{
                **quick,
                "spool_dir": self.spool,
                "endpoint": self.broker.endpoint,
                "lease_seconds": LEASE,
                **changes,
            }
        )
        return ReceiverSettings(source=source, count=count, available_now=available_now)

    def receiver(
        self,
        *,
        storage: Storage | None = None,
        now: Callable[[], float] = elapsed,
        **changes: Any,
    ) -> Running:
        """Start a receiver."""
        loop = ReceiverLoop(
            self.settings(**changes), storage=storage, clock=self.broker.clock, elapsed=now
        )
        running = Running(loop)
        self.running.append(running)
        return running

    def query(self, acknowledge: Acknowledge = Acknowledge.COMMITTED) -> Query:
        """Return the query of the folder."""
        return Query(self.folder, acknowledge, self.broker.clock)

    def publish(self, *data: bytes) -> list[str]:
        return [self.broker.publish(TOPIC, one) for one in data]

    @property
    def acked(self) -> set[str]:
        return {event.message_id for event in self.broker.history.acks(SUBSCRIPTION)}

    @property
    def returned(self) -> set[str]:
        history = self.broker.history
        events = (*history.nacks(SUBSCRIPTION), *history.returns(SUBSCRIPTION))
        return {event.message_id for event in events}

    @property
    def manifests(self) -> int:
        """Number of segments that can be planned."""
        return len(segments_of(self.folder.files(MANIFESTS)))


class Query:
    """The coordinator of a query, and the rows of its batches."""

    def __init__(self, folder: Storage, acknowledge: Acknowledge, clock: Clock) -> None:
        self._folder = folder
        settings = CoordinatorSettings(
            subscription=SUBSCRIPTION, acknowledge=acknowledge, lease=LEASE
        )
        self.coordinator = Coordinator(settings, elapsed=clock.monotonic)
        self._offset = START
        self.ids: list[str] = []

    def step(self) -> bool:
        """Commit the last batch and process the next one; return whether there was one."""
        offset = run(self.coordinator.latest(self._offset), self._folder)
        if offset is None:
            return False
        plan = run(self.coordinator.plan(self._offset, offset), self._folder)
        rows = rows_of(plan, [self._folder.get(part.segment.path) for part in plan.parts])
        if rows.num_rows:
            self.ids += rows.column("message_id").to_pylist()
        self._offset = offset
        return True


class Flaky:
    """A folder whose calls can fail.

    Attributes:
        lost: Number of puts that are carried out and then fail.
        error: The error of all puts of segments and manifests; None: they succeed.
        before: Called with the path before each put.
    """

    def __init__(self, folder: LocalFolder) -> None:
        self._folder = folder
        self.lost = 0
        self.error: OSError | None = None
        self.before: Callable[[str], None] = lambda path: None
        self.calls: list[str] = []

    def create(self, path: str, data: bytes) -> bool:
        self.before(path)
        self.calls.append(path)
        if self.error is not None and path.startswith(("seg/", "man/")):
            raise self.error
        created = self._folder.create(path, data)
        if self.lost and path.startswith(("seg/", "man/")):
            self.lost -= 1
            raise ConnectionResetError(errno.ECONNRESET, "the answer was lost")
        return created

    def put(self, path: str, data: bytes) -> None:
        self._folder.put(path, data)

    def get(self, path: str) -> bytes | None:
        return self._folder.get(path)

    def open(self, path: str) -> pa.NativeFile:
        return self._folder.open(path)

    def files(self, prefix: str) -> Iterator[StoredFile]:
        return self._folder.files(prefix)

    def delete(self, path: str) -> None:
        self._folder.delete(path)

    def map_all(self, function: Callable[[Any], Any], values: Iterable[Any]) -> Iterable[Any]:
        return map(function, values)
