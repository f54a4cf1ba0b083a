"""Do a thing once, although its message may be delivered, or published, more than once.

    python samples/handle_once.py projects/PROJECT/subscriptions/NAME

What the same order is, its attribute `order-id` says; messages without one go by their ids. Orders
are remembered for ten minutes, in this process only.
"""

from __future__ import annotations

import sys
from concurrent.futures import TimeoutError

from subscriber import Dedupe, Message, SubscriberClient


def handle(message: Message) -> None:
    # In one piece: print() writes the line and its end apart, and another thread may come between.
    sys.stdout.write(f"charged {message.data.decode()}\n")
    message.ack()


def main(subscription: str) -> None:
    once = Dedupe(by="order-id", max_keys=100_000, seconds=600)
    with SubscriberClient() as client:
        future = client.subscribe(subscription, once(handle))
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.close()
    print(f"passed over {once.duplicates} duplicates")


if __name__ == "__main__":
    main(sys.argv[1])
