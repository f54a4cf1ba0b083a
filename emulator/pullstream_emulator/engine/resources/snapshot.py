"""A snapshot: the messages that a subscription had not finished at one time."""

from __future__ import annotations

from collections.abc import Iterable

from pullstream_emulator.engine.due_queue import Now
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.persisted_state import SnapshotValue
from pullstream_emulator.engine.record import Record
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class Snapshot:
    """Keeps the messages that were unfinished at its creation, and all messages published since.

    Args:
        config: Its settings.
        subscription: The subscription from which it is created.
        log: The log of the subscription's topic.
        since: The topic's newest sequence number at the creation of the snapshot.
        unfinished: The messages up to `since` that were unfinished.
    """

    def __init__(
        self,
        config: pubsub.Snapshot,
        subscription: str,
        log: Log,
        since: int,
        unfinished: Iterable[Record],
    ) -> None:
        self.config = config
        self._subscription = subscription
        self.log = log
        self.since = since
        self._unfinished = {record.seq: record for record in unfinished}
        for record in self._unfinished.values():
            record.holders += 1
        log.keep_since(config.name, since)

    def wants(self, record: Record) -> bool:
        """Return whether a message must be unfinished after a seek to the snapshot."""
        return record.seq > self.since or record.seq in self._unfinished

    def records(self) -> list[Record]:
        """Return every message that belongs to the snapshot."""
        later = [record for record in self.log.history if record.seq > self.since]
        return [*self._unfinished.values(), *later]

    def next_due(self, now: Now) -> float:
        """Return the expiry time on the monotonic clock."""
        expires = self.config.expire_time
        return now.due(expires.seconds + expires.nanos / 1e9)

    def is_expired(self, now: Now) -> bool:
        """Return whether the expiry time of the snapshot has passed."""
        return self.next_due(now) <= now.monotonic

    def release_records(self) -> None:
        """Release all messages, because the snapshot was deleted."""
        self.log.keep_since(self.config.name, None)
        self.log.release(self._unfinished.values())

    def encode(self) -> bytes:
        """Serialize the snapshot for the observer; see SnapshotValue."""
        unacked = list(self._unfinished)
        return SnapshotValue(self.config, self._subscription, self.since, unacked).encode()
