"""A broker with a topic and a subscription, and an ingestion that can be killed."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from pullstream.client import SubscriberClient
from pullstream.spark.protocol.coordinator import START
from pullstream.spark.protocol.coordinator import Offset as Position
from pullstream.spark.protocol.layout import Plan
from pullstream.spark.session.prefetch import PrefetchMode
from pullstream.spark.session.source_session import SourceSession
from pullstream.spark.settings import IngestSettings, Limit
from pullstream.spark.stores import TEMPORARY, LocalFolder
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.engine import Killed, Offset
from tests.subscriber.spark.protocol.batch_rows import rows_of
from tests.subscriber.streaming.fakes import TIMEOUT

# The seconds of a lease of this subscription, and a bit more.
LEASE = 61.0

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"


class MortalStore(LocalFolder):
    """A folder during one of whose changes the process dies: the `dies_at`th one, from 1.

    Attributes:
        how: "before" or "after" the change, or "half", which leaves a half-done change.
    """

    def __init__(self, folder: Path, dies_at: int = 0, how: str = "before") -> None:
        super().__init__(folder)
        self._left = dies_at
        self._how = how

    def create(self, path: str, data: bytes) -> bool:
        if not self._is_last():
            return super().create(path, data)
        if self._how == "half":
            remains = self.folder / f"{path}.half{TEMPORARY}"
            remains.parent.mkdir(parents=True, exist_ok=True)
            remains.write_bytes(data[: len(data) // 2])
        elif self._how == "after":
            super().create(path, data)
        raise Killed

    def delete(self, path: str) -> None:
        if not self._is_last():
            super().delete(path)
            return
        if self._how == "after":
            super().delete(path)
        raise Killed

    def _is_last(self) -> bool:
        self._left -= 1
        return self._left == 0


class FillingStore(LocalFolder):
    """A folder on a disk that is full while `full` is set."""

    full = False

    def create(self, path: str, data: bytes) -> bool:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().create(path, data)


class Ingestion:
    """A session on a connection that can be cut. From outside this looks like a killed process."""

    def __init__(
        self,
        broker: Emulator,
        settings: IngestSettings,
        storage: LocalFolder,
        work_ahead: PrefetchMode,
    ) -> None:
        self.channel = grpc.insecure_channel(broker.endpoint)
        self.session = SourceSession(
            settings,
            work_ahead=work_ahead,
            storage=storage,
            connect=lambda: SubscriberClient(channel=self.channel),
        )

    def kill(self) -> None:
        """Cut the connection, then clean up, which a killed process need not do."""
        self.channel.close()
        try:
            self.session.close()
        except Killed:
            # The disk kills only once.
            self.session.close()

    def stop(self) -> None:
        try:
            self.session.close()
        except Killed:
            self.kill()
        self.channel.close()


class Batches:
    """A session whose offsets are the numbers of its plans.

    Args:
        session: The session.
        chains: By spool: the chain of the offsets.
    """

    def __init__(self, session: SourceSession, chains: dict[Path, str]) -> None:
        self.session = session
        self._chains = chains
        self._spool = Path(session._settings.spool_dir)
        self.prepare_available_now = session.prepare_available_now
        self.report = session.report
        self.close = session.close

    def latest(self, start: int, limit: Limit | None = None) -> int:
        offset = self.session.latest(self._offset(start), limit)
        self._chains[self._spool] = offset.chain
        return offset.plan

    def latest_until(self, condition: Callable[[], bool], start: int) -> int:
        """Commit and plan batches without rows until a condition holds."""
        at = start
        deadline = SYSTEM_CLOCK.monotonic() + TIMEOUT
        while not condition():
            assert SYSTEM_CLOCK.monotonic() < deadline, "it has not happened"
            end = self.latest(at)
            assert end == at or self.ids(at, end) == []
            at = end
        return at

    def _offset(self, number: int) -> Position:
        return Position(number, self._chains[self._spool]) if number else START

    def plan(self, start: int, end: int) -> Plan:
        return self.session.plan(self._offset(start), self._offset(end))

    def commit(self, end: int) -> None:
        self.session.commit(self._offset(end))

    def ids(self, start: int, end: int) -> list[str]:
        """Return the message ids of a batch."""
        rows = self.rows(start, end)
        return [one for batch in rows for one in batch.column("message_id").to_pylist()]

    def rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        return list(reader_of(self._spool)(self.plan(start, end)))

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class World:
    """A broker with a subscription, and sessions on one spool."""

    def __init__(self, broker: Emulator, spool: Path) -> None:
        self.broker = broker
        self.spool = spool
        # By spool.
        self.chains: dict[Path, str] = {}
        self.sessions: list[Batches] = []

    def files(self, folder: str) -> list[str]:
        """Return the names of the files in a folder of the spool."""
        return sorted(file.name for file in LocalFolder(self.spool).files(folder))

    def session(
        self,
        *,
        work_ahead: PrefetchMode = PrefetchMode.OFF,
        storage: LocalFolder | None = None,
        spool: Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[], SubscriberClient] | None = None,
        **settings: Any,
    ) -> Batches:
        # The wait is long, because messages are expected; other tests set it.
        settings = {"idle_wait": TIMEOUT, "linger": 0.1, **settings}
        session = SourceSession(
            settings_of(self.broker, spool or self.spool, **settings),
            work_ahead=work_ahead,
            storage=storage,
            clock=clock,
            connect=connect,
        )
        self.sessions.append(Batches(session, self.chains))
        return self.sessions[-1]


class SessionReader:
    """A session with the method names that Spark calls."""

    def __init__(self, session: SourceSession) -> None:
        self._session = session

    def getDefaultReadLimit(self) -> None:  # noqa: N802
        return None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._session.prepare_available_now()

    def initialOffset(self) -> Offset:  # noqa: N802
        return START._asdict()

    def latestOffset(self, start: Offset, limit: None) -> Offset:  # noqa: N802
        return self._session.latest(Position(**start))._asdict()

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return self._session.report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[Plan]:
        return [self._session.plan(Position(**start), Position(**end))]

    def commit(self, end: Offset) -> None:
        self._session.commit(Position(**end))


def reader_of(folder: Path) -> Callable[[Plan], Iterator[pa.RecordBatch]]:
    """Return the function that reads the rows of a plan."""

    def read(plan: Plan) -> Iterator[pa.RecordBatch]:
        table = rows_of(plan, [(folder / part.segment.path).read_bytes() for part in plan.parts])
        return iter(table.to_batches())

    return read


def settings_of(broker: Emulator, spool: Path, **changes: Any) -> IngestSettings:
    """Return settings with waiting times as short as a test allows."""
    quick = {"linger": 0.01, "idle_wait": 0.02, "drain_wait": 0.15}
    return IngestSettings(
        subscription=SUBSCRIPTION,
        spool_dir=spool,
        endpoint=broker.endpoint,
        **{**quick, **changes},
    )


def make_subscription(broker: Emulator, **settings: Any) -> None:
    """Make a topic and a subscription with the ack deadline of the settings' leases."""
    broker.inspect(
        lambda engine: (
            engine.create_topic(pubsub.Topic(name=TOPIC)),
            engine.create_subscription(
                pubsub.Subscription(
                    **{
                        "name": SUBSCRIPTION,
                        "topic": TOPIC,
                        "ack_deadline_seconds": 60,
                        **settings,
                    }
                )
            ),
        )
    )


def publish(broker: Emulator, count: int, *, keys: Sequence[str] = ("",)) -> list[str]:
    """Publish this many messages with these ordering keys in turn, and return their ids."""
    return [
        broker.publish(TOPIC, f"{number}", ordering_key=keys[number % len(keys)], n=str(number))
        for number in range(count)
    ]


def acked(broker: Emulator) -> set[str]:
    return {event.message_id for event in broker.history.acks(SUBSCRIPTION)}


def threads() -> set[str]:
    """Return the names of the threads that an ingestion may have started."""
    return {thread.name for thread in threading.enumerate() if "pullstream" in thread.name}


def has_delivered(broker: Emulator, count: int) -> bool:
    return len(broker.history.deliveries()) >= count
