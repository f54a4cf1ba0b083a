"""Fan a feed out to its readers: one topic per reader, filled by routers, all read by one watch.

    python samples/fan_out.py projects/PROJECT/topics/NAME

The feed is small: it keeps a hundred messages for a minute. A reader that is too slow for that
gets a gap with the missed numbers, and continues. Needs pullstream's broker.
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

from pullstream import SubscriberClient
from pullstream.feeds import CaughtUp, Frame, Gap, Records

READERS = {"web": "public:", "mobile": "public:mobile"}


def main(feed: str) -> None:
    """Route three messages from the feed to two copies, and print the copies."""
    window = {"cap_records": 100, "ttl": timedelta(minutes=1)}
    copies = {f"{feed}-{reader}": prefix for reader, prefix in READERS.items()}
    done = threading.Event()
    behind = set(copies)

    def handle(frame: Frame) -> None:
        if isinstance(frame, Records):
            for message in frame.messages:
                print(f"{frame.topic}: {message.data.decode()}")
        elif isinstance(frame, Gap):
            print(f"{frame.topic}: missed {frame.from_seq} to {frame.to_seq}")
        elif isinstance(frame, CaughtUp):
            behind.discard(frame.topic)
            if not behind:
                done.set()

    with SubscriberClient() as client:
        client.feeds.put(feed, window)
        for copy, prefix in copies.items():
            client.feeds.put(copy, window)
            name = copy.rpartition("/")[2]
            project = feed.split("/")[1]
            client.routers.put(
                {
                    "name": client.routers.path(project, f"to-{name}"),
                    "source": feed,
                    "dest": copy,
                    "filter": f'hasPrefix(attributes.tag, "{prefix}")',
                }
            )
        for tag in ("public:news", "private:news", "public:mobile-news"):
            client.feeds.append(feed, [{"data": tag.encode(), "attributes": {"tag": tag}}])

        # A real reader would start at "tail" and not stop.
        watch = client.watch(dict.fromkeys(copies, 0), handle)
        done.wait(timeout=10)
        watch.close()
        # Raises the error that ended the watch, if there is one.
        watch.result()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
