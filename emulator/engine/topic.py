"""One topic: it numbers and encodes what is published, and passes it to its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from protocol.messages import pubsub_pb2 as pubsub

from .log import Log
from .observer import Observer
from .record import Record
from .subscription import Subscription


class TopicFeed(Protocol):
    """What a topic tells its feed, if it has one; see emulator/feeds."""

    def prepare(self) -> None:
        """Numbers are about to be given: let go of what is too old by now."""

    def admit(self, records: Sequence[Record]) -> None:
        """Raise FailedPrecondition if these are not to be appended. None has its number yet."""

    def hold(self, records: Sequence[Record]) -> None:
        """These were appended: hold what is to be read."""

    def settle(self, records: Sequence[Record]) -> None:
        """Everybody holds what he wants of them: let go of what is too much, tell readers."""

    def reconfigured(self) -> None:
        """The topic has other settings, which are kept already."""

    def close(self) -> None:
        """The topic is deleted: let go of everything, for good."""


class Topic:
    """A topic's settings, its log, and who takes what is published.

    subscriptions: those attached to it, by name.
    feed: what reads it as a log; None as long as nobody does.

    Message ids are the decimal form of the sequence number, which counts from 1 in each topic.
    """

    def __init__(
        self,
        config: pubsub.Topic,
        log: Log,
        observer: Observer | None = None,
        last_publish_ms: int = 0,
    ) -> None:
        self.config = config
        self.log = log
        self.subscriptions: dict[str, Subscription] = {}
        self.feed: TopicFeed | None = None
        self._observer = observer
        self._last_publish_ms = last_publish_ms

    def publish(
        self, messages: Sequence[pubsub.PubsubMessage], now: float, *, forced: bool = False
    ) -> list[str]:
        """Append messages, at wall time `now` in seconds; returns their ids in order.

        A feed may refuse all of them (FailedPrecondition), unless they are `forced` on it.

        The messages are completed in place: id and publish time are the broker's to set, whatever
        the publisher sent. Publish times have milliseconds, as the real service's, and never go
        back.
        """
        feed = self.feed
        if feed is not None:
            feed.prepare()
        publish_ms = self.next_publish_ms(now)
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
        self.append(records, messages)
        return ids

    def next_publish_ms(self, now: float) -> int:
        """The publish time of what is appended at wall time `now`."""
        return max(int(now * 1000), self._last_publish_ms)

    def append(self, records: Sequence[Record], messages: Iterable[pubsub.PubsubMessage]) -> None:
        """Append records that are complete: numbered from the head on, with the next time.

        messages: the same, decoded; looked at only where a subscription has a filter.
        """
        self._last_publish_ms = records[-1].publish_ms
        self.log.head_seq = records[-1].seq
        observer, feed = self._observer, self.feed
        self.log.append(records)
        if feed is not None:
            feed.hold(records)
        filtered: list[tuple[str, Sequence[int]]] = []
        for name, subscription in self.subscriptions.items():
            kept_back = subscription.offer(records, messages)
            if kept_back:
                filtered.append((name, kept_back))
        if observer is not None:
            observer.published(self.config.name, records)
            for name, seqs in filtered:
                observer.finished(name, seqs)
        self.log.count(records)
        if feed is not None:
            feed.settle(records)
