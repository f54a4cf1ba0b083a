"""One topic: numbers and encodes published messages, and passes them to its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer
from pullstream_emulator.engine.record import Record, RecordRun, timestamp_of
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .by_name import ByName
from .publish_columns import PublishColumns


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

        Called when all others hold the appended records.
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
        self.subscriptions: ByName[Subscription] = ByName()
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
        publish_time = timestamp_of(publish_ms)
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
        self.append(RecordRun.of(records), messages, now)
        return ids

    def publish_columns(
        self, columns: PublishColumns, messages: Iterable[pubsub.PubsubMessage], now: Now
    ) -> list[str]:
        """Do the work of `publish` for a request that was read by columns.

        Args:
            columns: The messages.
            messages: The same messages, decoded.
            now: The present time.

        Raises:
            FailedPrecondition: The feed refuses the messages.
        """
        feed = self.feed
        if feed is not None:
            feed.prepare()
        publish_ms = self.next_publish_ms(now.wall)
        run = RecordRun(self.log.head_seq + 1, publish_ms, columns.parts, columns.ordering_keys)
        if feed is not None:
            feed.admit(run)
        self.append(run, messages, now)
        return [str(seq) for seq in range(run.first, run.last + 1)]

    def next_publish_ms(self, wall: float) -> int:
        """Return the publish time in ms of a message that is appended at wall time `wall`."""
        return max(int(wall * 1000), self._last_publish_ms)

    def append(self, run: RecordRun, messages: Iterable[pubsub.PubsubMessage], now: Now) -> None:
        """Append complete records, which have the next numbers and the next publish time.

        Args:
            run: The records.
            messages: The same messages, decoded. Only subscriptions with a filter use them.
            now: The present time.
        """
        self._last_publish_ms = run.publish_ms
        self.log.head_seq = run.last
        observer, feed = self._observer, self.feed
        self.log.append(run)
        if feed is not None:
            feed.keep(run.records)
        filtered: list[tuple[str, Sequence[int]]] = []
        for name, subscription in self.subscriptions.items():
            rejected = subscription.offer(run, messages, now)
            if rejected:
                filtered.append((name, rejected))
        # Once for all subscriptions: a topic may have a thousand.
        holders = len(self.subscriptions) - len(filtered)
        self.log.hold(run.masks, holders)
        # A list of records costs its readers less than the run.
        records = run.created or run
        observer.published(self.config.name, records)
        for name, seqs in filtered:
            observer.finished(name, seqs)
        self.log.count(records, are_held=holders > 0)
        if feed is not None:
            feed.enforce_limits(records)
