"""One topic: numbers and encodes published messages, and passes them to its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer
from pullstream_emulator.engine.record import Record
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class TopicFeed(Protocol):
    """The calls that a topic makes to its feed, if it has one; see `logs`."""

    def prepare(self) -> None:
        """Release records that are too old. Called before new records get their numbers."""

    def admit(self, records: Sequence[Record]) -> None:
        """Raise FailedPrecondition if these records must not be appended."""

    def keep(self, records: Sequence[Record]) -> None:
        """Keep the appended records that readers can get."""

    def enforce_limits(self, records: Sequence[Record]) -> None:
        """Release records beyond the feed's limits and inform readers.

        Called when all other references to the appended records are added.
        """

    def reconfigured(self) -> None:
        """Apply changed settings of the topic, which are already stored."""

    def close(self) -> None:
        """Release all records, because the topic is deleted."""


class Topic:
    """A topic's settings, its log, its subscriptions and its feed.

    Message IDs are the decimal form of the sequence number, which counts from 1 in each topic.

    Attributes:
        config: Its settings.
        log: Its messages.
        subscriptions: The attached subscriptions, by name.
        feed: The feed that reads it as a log; None if there is none.
    """

    def __init__(
        self,
        config: pubsub.Topic,
        log: Log,
        observer: Observer,
        last_publish_ms: int = 0,
    ) -> None:
        self.config = config
        self.log = log
        self.subscriptions: dict[str, Subscription] = {}
        self.feed: TopicFeed | None = None
        self._observer = observer
        self._last_publish_ms = last_publish_ms

    def publish(
        self, messages: Sequence[pubsub.PubsubMessage], now: Now, *, forced: bool = False
    ) -> list[str]:
        """Append messages and return their IDs in order.

        The messages are completed in place: the broker sets ID and publish time and ignores the
        publisher's values. Publish times have milliseconds, as in the real service, and never go
        back.

        Args:
            messages: The messages.
            now: The present time.
            forced: Whether the topic's feed is not asked.

        Raises:
            FailedPrecondition: The feed refuses the messages.
        """
        feed = self.feed
        if feed is not None:
            feed.prepare()
        publish_ms = self.next_publish_ms(now.wall)
        publish_time = Timestamp(seconds=publish_ms // 1000, nanos=publish_ms % 1000 * 1_000_000)
        seq = self.log.head_seq
        records: list[Record] = []
        ids: list[str] = []
        for message in messages:
            seq += 1
            message.message_id = message_id = str(seq)
            message.publish_time.CopyFrom(publish_time)
            ids.append(message_id)
            encoded = message.SerializeToString()
            records.append(Record(seq, message.ordering_key, encoded, publish_ms))
        if feed is not None and not forced:
            feed.admit(records)
        self.append(records, messages, now)
        return ids

    def next_publish_ms(self, wall: float) -> int:
        """Return the publish time in ms of a message that is appended at wall time `wall`."""
        return max(int(wall * 1000), self._last_publish_ms)

    def append(
        self, records: Sequence[Record], messages: Iterable[pubsub.PubsubMessage], now: Now
    ) -> None:
        """Append complete records, which have the next numbers and the next publish time.

        Args:
            records: The records.
            messages: The same messages, decoded. Only subscriptions with a filter use them.
            now: The present time.
        """
        self._last_publish_ms = records[-1].publish_ms
        self.log.head_seq = records[-1].seq
        observer, feed = self._observer, self.feed
        self.log.append(records)
        if feed is not None:
            feed.keep(records)
        filtered: list[tuple[str, Sequence[int]]] = []
        for name, subscription in self.subscriptions.items():
            rejected = subscription.offer(records, messages, now)
            if rejected:
                filtered.append((name, rejected))
        observer.published(self.config.name, records)
        for name, seqs in filtered:
            observer.finished(name, seqs)
        self.log.count(records)
        if feed is not None:
            feed.enforce_limits(records)
