"""Print the records of a topic over HTTP, with Python's standard library only.

    python samples/tail_topic.py http://localhost:8085 orders
    curl -X POST localhost:8085/v0/topics/orders -d '{"records": [{"data": "hello"}]}'

It waits for the topic to exist and starts with the oldest record. It reconnects after a failure,
reports missed records, and ends when the topic is deleted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

# The broker sends something at least every 15 s. After twice that time the connection is dead.
WATCHDOG = 30.0
PAUSE = 2.0

# Temporary errors: no such topic yet, or the watch has expired; no room; the broker stops.
PASSING = (404, 429, 503)


def begin(base: str, topic: str, cursor: str) -> str:
    """Create a watch, at the cursor's position if there is one; return the stream's address."""
    body = json.dumps({"topics": {topic: {"from_seq": 0}}, "cursor": cursor}).encode()
    with urlopen(Request(f"{base}/v0/watch", body), timeout=WATCHDOG) as answer:
        path: str = json.load(answer)["stream_url"]
    return base + path


def events(address: str, last_event_id: str) -> Iterator[tuple[str, str, Any]]:
    """Yield name, id and content of each event of a stream, until it ends."""
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    with urlopen(Request(address, headers=headers), timeout=WATCHDOG) as stream:
        fields: dict[str, str] = {}
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "event" in fields:
                yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
                fields = {}


def tail(base: str, topic: str) -> None:
    """Print the topic's records until it is deleted; retry after temporary failures."""
    address = last_event_id = ""
    while True:
        try:
            address = address or begin(base, topic, last_event_id)
            for event, event_id, content in events(address, last_event_id):
                if event == "record":
                    for record in content["records"]:
                        print(json.dumps(record["data"]), flush=True)
                elif event == "tombstone":
                    missed = f"{content['gap_from']} to {content['gap_to']}"
                    print(f"missed {missed}: {content['reason']}", file=sys.stderr)
                elif event == "topic-deleted":
                    return
                # Advance only after the event was handled.
                last_event_id = event_id or last_event_id
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError):
                if error.code not in PASSING:
                    raise
                address = ""
            print(f"retrying in {PAUSE:g} s: {error}", file=sys.stderr, flush=True)
        time.sleep(PAUSE)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tail(*sys.argv[1:])
