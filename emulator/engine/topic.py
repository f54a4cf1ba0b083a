"""One topic: it numbers and encodes what is published, and passes it to its subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from protocol.messages import pubsub_pb2 as pubsub

from .log import Log
from .observer import Observer
from .record import Record
from .subscription import Subscription


class Topic:
    """A topic's settings, its log, and the subscriptions attached to it.

    `subscriptions` holds them by name. Message ids are the decimal form of the sequence number,
    which counts from 1 in each topic.
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
        self._observer = observer
        self._last_publish_ms = last_publish_ms

    def publish(self, messages: Sequence[pubsub.PubsubMessage], now: float) -> list[str]:
        """Append messages, at wall time `now` in seconds; returns their ids in order.

        The messages are completed in place: id and publish time are the broker's to set, whatever
        the publisher sent. Publish times have milliseconds, as the real service's, and never go
        back.
        """
        publish_ms = self._last_publish_ms = max(int(now * 1000), self._last_publish_ms)
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
        self.log.head_seq = seq
        self._hand_out(records, messages)
        return ids

    def _hand_out(self, records: list[Record], messages: Sequence[pubsub.PubsubMessage]) -> None:
        observer = self._observer
        self.log.append(records)
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
