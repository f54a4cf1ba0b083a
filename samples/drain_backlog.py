"""Handle the backlog of a subscription, and end when it is empty, for example in a cron job.

    python samples/drain_backlog.py projects/PROJECT/subscriptions/NAME

A line that is not a number is nacked, and left for the next run.
"""

from __future__ import annotations

import sys

from pullstream import SubscriberClient


def main(subscription: str) -> None:
    """Add up all numbers in the backlog, and print the sum."""
    total = left = 0
    with SubscriberClient() as client:
        while messages := client.fetch(subscription, max_messages=500, no_wait=True):
            # Inside the block the leases are extended for as long as the work takes.
            with messages:
                for message in messages:
                    if message.data.isdigit():
                        total += int(message.data)
                        message.ack()
                    else:
                        # Delayed by ten minutes, so that this run does not get it again.
                        message.nack(delay=600)
                        left += 1
    print(f"sum {total}, {left} left")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
