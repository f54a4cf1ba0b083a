"""One subscription under load: a publisher, two restarted subscribers, and the ledger."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from pullstream import (
    FlowControl,
    Message,
    StreamingPullFuture,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream_protocol.errors import Cancelled, DeadlineExceeded, Unavailable

from .ledger import Ledger

# Short leases, so that lost messages are redelivered within the soak.
LIMITS = FlowControl(
    max_messages=300, min_duration_per_lease_extension=10, max_duration_per_lease_extension=10
)


@dataclass(frozen=True)
class Kind:
    ordered: bool
    exactly_once: bool

    @property
    def name(self) -> str:
        order = "ordered" if self.ordered else "unordered"
        return order + (", exactly once" if self.exactly_once else "")


KINDS = tuple(Kind(o, e) for o in (False, True) for e in (False, True))


class World:
    """The publisher, subscribers and ledger of one kind of subscription.

    Args:
        rate: The messages per second to publish.
        keys: The number of ordering keys.
        seconds: The longest duration, which sets the ledger's size.
    """

    def __init__(self, endpoint: str, kind: Kind, *, rate: int, keys: int, seconds: float) -> None:
        self.kind = kind
        self.ledger = Ledger(
            keys=keys,
            capacity=int(rate * seconds / keys) + 1,
            ordered=kind.ordered,
            exactly_once=kind.exactly_once,
        )
        self._endpoint = endpoint
        self._pause = keys / rate
        self._dice = random.Random(kind.name)
        word = kind.name.replace(", ", "-").replace(" ", "-")
        self.topic = f"projects/soak/topics/{word}"
        self.subscription = f"projects/soak/subscriptions/{word}"
        self._ending = threading.Event()
        self._topics = TopicAdminClient(endpoint=endpoint)
        self._clients = [SubscriberClient(endpoint=endpoint) for _ in range(2)]
        self.futures: list[StreamingPullFuture] = []
        self._publisher = threading.Thread(target=self._publish, daemon=True)

    def start(self) -> None:
        self._topics.create_topic(name=self.topic)
        self._clients[0].create_subscription(
            request={
                "name": self.subscription,
                "topic": self.topic,
                "enable_message_ordering": self.kind.ordered,
                "enable_exactly_once_delivery": self.kind.exactly_once,
            }
        )
        self.futures = [self._subscribe(client) for client in self._clients]
        self._publisher.start()

    def replace_one(self) -> None:
        """Close one subscriber in one of the two modes, and start another."""
        which = self._dice.randrange(2)
        mode = self._dice.choice(("drain", "nack"))
        old = self.futures[which]
        old.close(timeout=5.0, mode="drain" if mode == "drain" else "nack")
        assert old.done(), f"{self.kind.name}: a subscription did not end within its time"
        old.result(0)
        self.futures[which] = self._subscribe(self._clients[which])

    def stop_publishing(self) -> None:
        self._ending.set()
        self._publisher.join()

    def close(self) -> None:
        for client in self._clients:
            client.close(timeout=20.0, mode="drain")
        self._topics.close()
        for future in self.futures:
            future.result(0)

    def _subscribe(self, client: SubscriberClient) -> StreamingPullFuture:
        return client.subscribe(self.subscription, self._handle, LIMITS, max_workers=4)

    def _publish(self) -> None:
        while not self._ending.wait(self._pause):
            numbers = list(self.ledger.next_numbers())
            if not numbers:
                return
            messages = [
                {"data": b"%d:%d" % one, "ordering_key": str(one[0]) * self.kind.ordered}
                for one in numbers
            ]
            while True:
                try:
                    self._topics.publish(self.topic, messages, timeout=5.0)
                    break
                except (Unavailable, Cancelled, DeadlineExceeded):
                    # The message may have been stored, so the subscriber must accept a copy.
                    if self._ending.wait(0.1):
                        return
            for key, number in numbers:
                self.ledger.published[key] = number + 1

    def _handle(self, message: Message) -> None:
        key, number = self.ledger.began(message)
        roll = self._dice.random()
        if roll < 0.02:
            message.nack()
        elif roll < 0.021:
            message.drop()
        elif roll < 0.025:
            raise RuntimeError("a callback that fails")
        elif roll < 0.027:
            message.nack(delay=1)
        else:
            if roll < 0.03:
                # A slow callback.
                self._ending.wait(self._dice.uniform(0.0, 0.5))
            self.ledger.handled(key, number)
            if self.kind.exactly_once or roll < 0.2:
                self.ledger.watch(message, message.ack_with_response())
            else:
                message.ack()
