"""A broker with a topic and a subscription, and an ingestion of it that can die."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from emulator import Emulator
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.client import SubscriberClient
from subscriber.spark.disk import TEMPORARY, Disk
from subscriber.spark.segment import SegmentFile
from subscriber.spark.session import IngestSession, WorkAhead
from subscriber.spark.settings import IngestSettings
from tests.spark.engine import Killed, Offset
from tests.subscriber.streaming.fakes import PATIENCE

# A lease of a subscription here, and more.
LEASE = 61.0

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"


class MortalDisk(Disk):
    """A disk during one of whose writes the process dies: the `dies_at`th change, from 1.

    how: "before" or "after" it, or "half": what a crash in its middle leaves.
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


class FillingDisk(Disk):
    """A disk that is full while `full` is set; for what is appended only, while `half_full` is."""

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
    """A session on a connection that can be cut, which is how a process's death looks outside."""

    def __init__(
        self, broker: Emulator, settings: IngestSettings, disk: Disk, work_ahead: WorkAhead
    ) -> None:
        self.channel = grpc.insecure_channel(broker.endpoint)
        self.session = IngestSession(
            settings,
            work_ahead=work_ahead,
            disk=disk,
            connect=lambda: SubscriberClient(channel=self.channel),
        )

    def kill(self) -> None:
        """Nothing goes out any more; and then clean up, which a dead process need not."""
        self.channel.close()
        try:
            self.session.close()
        except Killed:
            # The disk knows no second death.
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
        work_ahead: WorkAhead = WorkAhead.OFF,
        disk: Disk | None = None,
        spool: Path | None = None,
        **settings: Any,
    ) -> IngestSession:
        # Patient, as there is always something to come; a test that wants nothing says so.
        settings = {"idle_wait": PATIENCE, "linger": 0.1, **settings}
        session = IngestSession(
            settings_of(self.broker, spool or self.spool, **settings),
            work_ahead=work_ahead,
            disk=disk,
        )
        self.sessions.append(session)
        return session


class SessionReader:
    """A session under the names by which Spark calls it."""

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
    """Settings with which nothing is waited for longer than a test has to."""
    quick = {"linger": 0.01, "idle_wait": 0.02, "drain_wait": 0.15}
    return IngestSettings(
        subscription=SUBSCRIPTION,
        spool_dir=spool,
        endpoint=broker.endpoint,
        **{**quick, **changes},
    )


def make_subscription(broker: Emulator, **settings: Any) -> None:
    """A topic and a subscription of it, with a deadline like that of the settings' leases."""
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
    """Publish so many messages, dealt out to these ordering keys; returns their ids."""
    return [
        broker.publish(TOPIC, f"{number}", ordering_key=keys[number % len(keys)], n=str(number))
        for number in range(count)
    ]


def acked(broker: Emulator) -> set[str]:
    return {event.message_id for event in broker.history.acks(SUBSCRIPTION)}


def threads() -> set[str]:
    """The names of the threads that an ingestion may have begun."""
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
