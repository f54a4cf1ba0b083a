"""Receive only as many messages as can be handled.

    python samples/limit_flow.py projects/PROJECT/subscriptions/NAME

At most twenty messages or one megabyte are outstanding: running, waiting for one of the four
threads, or held for their ordering key. At the limit the stream is paused, and the server knows it.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import TimeoutError

from pullstream import FlowControl, Message, SubscriberClient


def main(subscription: str) -> None:
    """Handle messages for five seconds, and print the largest number at the same time."""
    lock = threading.Lock()
    running = most = handled = 0

    def handle(message: Message) -> None:
        nonlocal running, most, handled
        with lock:
            running += 1
            most = max(most, running)
        # ... the work ...
        message.ack()
        with lock:
            running -= 1
            handled += 1

    with SubscriberClient() as client:
        future = client.subscribe(
            subscription,
            handle,
            flow_control=FlowControl(max_messages=20, max_bytes=1_000_000),
            max_workers=4,
            await_callbacks_on_shutdown=True,
        )
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.cancel()
            future.result()
    print(f"handled {handled} messages, at most {most} at the same time")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
