"""Handle what waits in a subscription, and end when there is no more: a job for cron.

    python samples/drain_backlog.py projects/PROJECT/subscriptions/NAME

A line that is no number is given back, and left for the next run.
"""

from __future__ import annotations

import sys

from subscriber import SubscriberClient


def main(subscription: str) -> None:
    total = left = 0
    with SubscriberClient() as client:
        while messages := client.fetch(subscription, max_messages=500, no_wait=True):
            # Inside the block the leases are extended, however long the work takes.
            with messages:
                for message in messages:
                    if message.data.isdigit():
                        total += int(message.data)
                        message.ack()
                    else:
                        # For ten minutes: this run would only meet it again.
                        message.nack(delay=600)
                        left += 1
    print(f"sum {total}, {left} left")


if __name__ == "__main__":
    main(sys.argv[1])
