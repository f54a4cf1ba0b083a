"""Pull messages with single calls: pull, handle, acknowledge.

python samples/pull.py projects/PROJECT/subscriptions/NAME
"""

from __future__ import annotations

import sys

from pullstream import SubscriberClient


def main(subscription: str) -> None:
    """Pull, print and acknowledge at most ten messages."""
    with SubscriberClient() as client:
        # Waits for the first message until the timeout; then the response is empty.
        response = client.pull(subscription=subscription, max_messages=10, timeout=5.0)
        for received in response.received_messages:
            print(f"pulled {received.message.data.decode()!r}")
        ack_ids = [received.ack_id for received in response.received_messages]
        if ack_ids:
            client.acknowledge(subscription=subscription, ack_ids=ack_ids)
        print(f"acknowledged {len(ack_ids)} messages")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
