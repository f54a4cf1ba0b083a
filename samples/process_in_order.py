"""Handle each customer's messages in order, and different customers in parallel.

    python samples/process_in_order.py projects/PROJECT/subscriptions/NAME

The subscription must have been created with enable_message_ordering, and the messages published
with an ordering key. If a callback fails, the key continues with that message; later messages
wait.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from concurrent.futures import TimeoutError

from pullstream import Message, SubscriberClient


def main(subscription: str) -> None:
    """Receive for five seconds, and print the messages of each customer in order."""
    # A list needs no lock: the callbacks of one key never run at the same time.
    journal: dict[str, list[str]] = defaultdict(list)

    def handle(message: Message) -> None:
        journal[message.ordering_key].append(message.data.decode())
        message.ack()

    with SubscriberClient() as client:
        future = client.subscribe(subscription, handle)
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.cancel()
            future.result()
    for customer in sorted(journal):
        print(f"{customer}: {' '.join(journal[customer])}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
