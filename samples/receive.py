"""Receive messages in the background and handle them in parallel.

    python samples/receive.py projects/PROJECT/subscriptions/NAME

Ends after five seconds; a service would simply wait in `future.result()`.
"""

from __future__ import annotations

import sys
from concurrent.futures import TimeoutError

from subscriber import Message, SubscriberClient


def handle(message: Message) -> None:
    """Called on one of ten threads for each message; an exception would give the message back."""
    # In one piece: print() writes the line and its end apart, and another thread may come between.
    sys.stdout.write(f"received {message.data.decode()!r}\n")
    message.ack()


def main(subscription: str) -> None:
    with SubscriberClient() as client:
        future = client.subscribe(subscription, handle)
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.cancel()
            future.result()


if __name__ == "__main__":
    main(sys.argv[1])
