"""Act once on each order, even if its message is delivered or published more than once.

    python samples/handle_once.py projects/PROJECT/subscriptions/NAME

The attribute `order-id` identifies an order. Messages without it are identified by their ids.
Orders are remembered for ten minutes, in this process only.
"""

from __future__ import annotations

import sys
from concurrent.futures import TimeoutError

from pullstream import Dedupe, Message, SubscriberClient


def handle(message: Message) -> None:
    """Charge one order, and ack its message."""
    # One call of write(): print() writes text and newline separately, and threads may interleave.
    sys.stdout.write(f"charged {message.data.decode()}\n")
    message.ack()


def main(subscription: str) -> None:
    """Handle messages for five seconds, and print the number of duplicates."""
    once = Dedupe(by="order-id", max_keys=100_000, seconds=600)
    with SubscriberClient() as client:
        future = client.subscribe(subscription, once(handle))
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.close()
    print(f"skipped {once.duplicates} duplicates")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
