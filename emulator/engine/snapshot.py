"""A snapshot: which messages a subscription had not finished at one moment."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.messages import pubsub_pb2 as pubsub

from .log import Log
from .moment import Moment
from .record import Record
from .saved import SnapshotValue


class Snapshot:
    """It keeps the messages that were unfinished then, and all that was published since.

    subscription: which one that was. since: the topic's newest sequence number at that moment.
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
        return record.seq > self.since or record.seq in self._unfinished

    def records(self) -> list[Record]:
        """Every message that belongs to it."""
        later = [record for record in self.log.history if record.seq > self.since]
        return [*self._unfinished.values(), *later]

    def next_due(self, now: Moment) -> float:
        expires = self.config.expire_time
        return now.due(expires.seconds + expires.nanos / 1e9)

    def is_expired(self, now: Moment) -> bool:
        return self.next_due(now) <= now.monotonic

    def let_go(self) -> None:
        """The snapshot is gone: nothing is kept on its behalf any more."""
        self.log.keep_since(self.config.name, None)
        self.log.release(self._unfinished.values())

    def encode(self) -> bytes:
        unacked = list(self._unfinished)
        return SnapshotValue(self.config, self._subscription, self.since, unacked).encode()
