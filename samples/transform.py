"""Receive messages, transform them, and publish the results.

    python samples/transform.py projects/PROJECT/subscriptions/FROM projects/PROJECT/topics/TO

A message is acknowledged when the server has confirmed its result. So a crash of this program or
of the broker loses nothing, and results of one ordering key stay in order. After a crash, a
message may be transformed again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

from pullstream import (
    BatchSettings,
    Message,
    PublisherClient,
    PublisherOptions,
    PublishFuture,
    SubscriberClient,
)


def main(subscription: str, topic: str) -> None:
    """Run until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ordered = PublisherOptions(enable_message_ordering=True)
    # A key waits for each of its results, so a result is sent without waiting for others.
    at_once = BatchSettings(max_latency=0)
    with PublisherClient(at_once, ordered) as publisher, SubscriberClient() as subscriber:

        def transform(message: Message) -> None:
            result = message.data.decode().upper().encode()
            published = publisher.publish(topic, result, message.ordering_key, source="transform")
            published.add_done_callback(settle(message))

        def settle(message: Message) -> Callable[[PublishFuture], None]:
            def confirmed(future: PublishFuture) -> None:
                if future.exception() is None:
                    message.ack()
                    return
                # The key is paused, so that no later result overtakes this one.
                if message.ordering_key:
                    publisher.resume_publish(topic, message.ordering_key)
                message.nack()

            return confirmed

        # "ack": the next message of a key waits until the result of this one is confirmed.
        future = subscriber.subscribe(subscription, transform, release_after="ack")
        stop.wait()
        future.cancel()
        future.result()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
