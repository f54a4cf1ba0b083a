"""A snapshot: the messages that a subscription had not finished at one time."""

from __future__ import annotations

from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.persisted_state import SnapshotValue
from pullstream_emulator.engine.seq_set import SeqSet
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class Snapshot:
    """Keeps the messages that were unfinished at its creation, and all messages published since.

    Args:
        config: Its settings.
        subscription: The subscription from which it is created.
        log: The log of the subscription's topic.
        since: The topic's newest sequence number at the creation of the snapshot.
        unfinished: The messages up to `since` that were unfinished.

    Attributes:
        unfinished: The argument of this name.
    """

    def __init__(
        self,
        config: pubsub.Snapshot,
        subscription: str,
        log: Log,
        since: int,
        unfinished: SeqSet,
    ) -> None:
        self.config = config
        self._subscription = subscription
        self.log = log
        self.since = since
        self.unfinished = unfinished
        log.hold(unfinished.masks())
        log.keep_since(config.name, since)

    def next_due(self, now: Now) -> float:
        """Return the expiry time on the monotonic clock."""
        expires = self.config.expire_time
        return now.due(expires.seconds + expires.nanos / 1e9)

    def is_expired(self, now: Now) -> bool:
        """Return whether the expiry time of the snapshot has passed."""
        return self.next_due(now) <= now.monotonic

    def release_records(self, now: Now) -> None:
        """Release all messages, because the snapshot was deleted."""
        self.log.keep_since(self.config.name, None)
        self.log.release_later(self.unfinished.copy(), now)

    def encode(self) -> bytes:
        """Serialize the snapshot for the observer; see SnapshotValue."""
        value = SnapshotValue(self.config, self._subscription, self.since, self.unfinished)
        return value.encode()
