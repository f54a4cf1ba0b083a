"""Receive messages in the background and handle them in parallel.

    python samples/receive.py projects/PROJECT/subscriptions/NAME

Ends after five seconds; a service would only wait in `future.result()`.
"""

from __future__ import annotations

import sys
from concurrent.futures import TimeoutError

from pullstream import Message, SubscriberClient


def handle(message: Message) -> None:
    """Called for each message on one of ten threads; an exception nacks the message."""
    # One call of write(): print() writes text and newline separately, and threads may interleave.
    sys.stdout.write(f"received {message.data.decode()!r}\n")
    message.ack()


def main(subscription: str) -> None:
    """Receive messages for five seconds."""
    with SubscriberClient() as client:
        future = client.subscribe(subscription, handle)
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.cancel()
            future.result()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
