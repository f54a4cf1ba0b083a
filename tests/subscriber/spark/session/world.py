"""A broker with a topic and a subscription, and an ingestion that can be killed."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from pullstream.client import SubscriberClient
from pullstream.spark.session.prefetch import PrefetchMode
from pullstream.spark.session.session import IngestSession
from pullstream.spark.session.settings import IngestSettings
from pullstream.spark.spool.atomic_files import TEMPORARY, AtomicFiles
from pullstream.spark.spool.segment import SegmentFile
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.engine import Killed, Offset
from tests.subscriber.streaming.fakes import TIMEOUT

# The seconds of a lease of this subscription, and a bit more.
LEASE = 61.0

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"


class MortalDisk(AtomicFiles):
    """A disk during one of whose writes the process dies: the `dies_at`th change, from 1.

    Attributes:
        how: "before" or "after" the change, or "half", which leaves a half-done change.
    """

    def __init__(self, dies_at: int = 0, how: str = "before") -> None:
        self._left = dies_at
        self._how = how

    def write(self, path: Path, data: memoryview | bytes) -> None:
        if self._is_last():
            if self._how == "half":
                path.with_name(path.name + TEMPORARY).write_bytes(data[: len(data) // 2])
            elif self._how == "after":
                super().write(path, data)
            raise Killed
        super().write(path, data)

    def append(self, path: Path, data: bytes) -> None:
        if self._is_last():
            kept = {"before": 0, "half": len(data) // 2, "after": len(data)}[self._how]
            if kept:
                super().append(path, data[:kept])
            raise Killed
        super().append(path, data)

    def delete(self, path: Path) -> None:
        if self._is_last():
            if self._how == "after":
                super().delete(path)
            raise Killed
        super().delete(path)

    def _is_last(self) -> bool:
        self._left -= 1
        return self._left == 0


class FillingDisk(AtomicFiles):
    """A disk that is full while `full` is set, and full for appends only while `half_full` is."""

    def __init__(self, *, half_full: bool = False) -> None:
        self.full = False
        self._half_full = half_full

    def write(self, path: Path, data: memoryview | bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, data)

    def append(self, path: Path, data: bytes) -> None:
        if self.full or self._half_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(path, data)


class Ingestion:
    """A session on a connection that can be cut. From outside this looks like a killed process."""

    def __init__(
        self,
        broker: Emulator,
        settings: IngestSettings,
        disk: AtomicFiles,
        work_ahead: PrefetchMode,
    ) -> None:
        self.channel = grpc.insecure_channel(broker.endpoint)
        self.session = IngestSession(
            settings,
            work_ahead=work_ahead,
            disk=disk,
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


class World:
    """A broker with a subscription, and sessions on one spool."""

    def __init__(self, broker: Emulator, spool: Path) -> None:
        self.broker = broker
        self.spool = spool
        self.sessions: list[IngestSession] = []

    def session(
        self,
        *,
        work_ahead: PrefetchMode = PrefetchMode.OFF,
        disk: AtomicFiles | None = None,
        spool: Path | None = None,
        **settings: Any,
    ) -> IngestSession:
        # The wait is long, because messages are expected; other tests set it.
        settings = {"idle_wait": TIMEOUT, "linger": 0.1, **settings}
        session = IngestSession(
            settings_of(self.broker, spool or self.spool, **settings),
            work_ahead=work_ahead,
            disk=disk,
        )
        self.sessions.append(session)
        return session


class SessionReader:
    """A session with the method names that Spark calls."""

    def __init__(self, session: IngestSession) -> None:
        self._session = session

    def getDefaultReadLimit(self) -> None:  # noqa: N802
        return None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._session.prepare_available_now()

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"seq": 0}

    def latestOffset(self, start: Offset, limit: None) -> Offset:  # noqa: N802
        return {"seq": self._session.latest(start["seq"])}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return self._session.report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[SegmentFile]:
        return self._session.segments(start["seq"], end["seq"])

    def commit(self, end: Offset) -> None:
        self._session.commit(end["seq"])


def read(segment: SegmentFile) -> Iterator[pa.RecordBatch]:
    return segment.read()


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


def ids(session: IngestSession, start: int, end: int) -> list[str]:
    return [
        message_id
        for segment in session.segments(start, end)
        for rows in segment.read()
        for message_id in rows.column("message_id").to_pylist()
    ]
