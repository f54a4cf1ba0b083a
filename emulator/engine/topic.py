"""One topic: it numbers and encodes what is published, and passes it to its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.messages import pubsub_pb2 as pubsub

from .record import Record
from .subscription import Subscription


class Topic:
    """A topic's settings, its sequence numbers, and the subscriptions attached to it.

    `subscriptions` holds them by name. Message ids are the decimal form of the sequence number,
    which counts from 1 in each topic.
    """

    def __init__(self, config: pubsub.Topic) -> None:
        self.config = config
        self.subscriptions: dict[str, Subscription] = {}
        self.head_seq = 0
        self._last_publish_ms = 0

    def publish(self, messages: Iterable[pubsub.PubsubMessage], now: float) -> list[str]:
        """Append messages, at wall time `now` in seconds; returns their ids in order.

        The messages are completed in place: id and publish time are the broker's to set, whatever
        the publisher sent. Publish times have milliseconds, as the real service's, and never go
        back.
        """
        publish_ms = self._last_publish_ms = max(int(now * 1000), self._last_publish_ms)
        seconds, nanos = publish_ms // 1000, publish_ms % 1000 * 1_000_000
        records: list[Record] = []
        ids: list[str] = []
        for message in messages:
            self.head_seq += 1
            message.message_id = message_id = str(self.head_seq)
            message.publish_time.seconds = seconds
            message.publish_time.nanos = nanos
            ids.append(message_id)
            records.append(Record(self.head_seq, message.ordering_key, message.SerializeToString()))
        for subscription in self.subscriptions.values():
            subscription.offer(records)
        return ids
