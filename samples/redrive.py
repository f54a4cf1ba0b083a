"""Move rejected messages back to their topic, after the fault is repaired.

    python samples/redrive.py projects/PROJECT/subscriptions/DEAD_LETTERS projects/PROJECT/topics/T

A message is acknowledged when its copy is confirmed, so a crash loses nothing. The command
`pullstream redrive` does the same, with a filter and a dry run.
"""

from __future__ import annotations

import sys

from pullstream import PublisherClient, SubscriberClient

# Attributes that dead-lettering, and a topic with a schema, have added.
ADDED = ("CloudPubSubDeadLetter", "pullstream_reject", "googclient_schema")


def main(subscription: str, topic: str) -> None:
    """Move all messages that are there, and print their number."""
    moved = 0
    with SubscriberClient() as subscriber, PublisherClient() as publisher:
        while messages := subscriber.fetch(subscription, 500, missing_ok=True):
            with messages:
                futures = [
                    publisher.publish(
                        topic,
                        message.data,
                        **{
                            name: value
                            for name, value in message.attributes.items()
                            if not name.startswith(ADDED)
                        },
                    )
                    for message in messages
                ]
                for message, future in zip(messages, futures, strict=True):
                    future.result()
                    message.ack()
                    moved += 1
    print(f"{moved} moved")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
