"""The cost of ordering keys whose messages fail, at growing sizes, and of the official client.

    python -m tests.bench.growth_ordering
    python -m tests.bench.growth_ordering --case keys --sizes 1000 2000 4000 8000

one-key: a key with `size` waiting messages, whose first message is nacked three times.
keys: `size` keys of two messages each. The first message of each key is nacked once.

During each run, messages of other keys are published evenly. The columns are the CPU time of the
client, its exponent (1 is linear) from the next smaller size, the seconds until all messages were
handled, and the longest time that a message of another key waited for its callback.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import peers
from .client import SUBSCRIPTION, TIMEOUT, Figures
from .peers import OFFICIAL, OURS, PEERS, TIMESTAMP, Counter
from .publisher import BATCH, TOPIC, Broker
from .servers import Broker as Kind
from .servers import serving

SIZES = (500, 1000, 2000, 4000)
CASES = ("one-key", "keys")
ONE_KEY_NACKS = 3
OTHERS_PER_SECOND = 50
# Seconds before each nack of the one key.
FILL_FOR = 1.0
OTHER = "other"


class Failing(Counter):
    """Nacks the first message of each failing key, and counts the handled messages."""

    def __init__(self, nacks: int, size: int) -> None:
        super().__init__()
        self._nacks = nacks
        self._left = size
        self._failed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._began = math.inf
        self.longest_wait = 0.0
        self.first = threading.Event()
        self.done = threading.Event()

    def callback(self, message: Any) -> None:
        if not self.first.is_set():
            self._began = time.time()
            self.first.set()
        key = message.ordering_key
        if key.startswith(OTHER):
            published = TIMESTAMP.unpack(message.data)[0]
            # Not the time that the process took to start.
            if published > self._began:
                with self._lock:
                    self.longest_wait = max(self.longest_wait, time.time() - published)
            message.ack()
            return
        with self._lock:
            failures = self._failed.get(key, 0)
            if failures < self._nacks:
                self._failed[key] = failures + 1
            else:
                self._left -= 1
                if self._left == 0:
                    self.done.set()
        if failures < self._nacks:
            if self._nacks > 1:
                # Meanwhile the other messages of the key arrive.
                time.sleep(FILL_FOR)
            message.nack()
        else:
            message.ack()


def client(peer: str, endpoint: str, case: str, size: int) -> Figures:
    """Receive all messages of a case in this process."""
    subscribe = PEERS[peer](endpoint)
    messages = size if case == "one-key" else 2 * size
    counter = Failing(ONE_KEY_NACKS if case == "one-key" else 1, messages)
    # The window takes all messages and those of the other keys.
    subscribe(SUBSCRIPTION.format(0), 2 * messages + 10, counter)
    if not counter.first.wait(TIMEOUT):
        sys.exit("received nothing")
    cpu, began = time.process_time(), time.monotonic()
    if not counter.done.wait(TIMEOUT * 5):
        sys.exit(f"{counter._left} messages are missing")
    return {
        "cpu": time.process_time() - cpu,
        "seconds": time.monotonic() - began,
        "longest_wait": counter.longest_wait,
    }


def publish_failing(broker: Broker, case: str, size: int) -> None:
    keys = ["failing"] * size if case == "one-key" else [f"key-{n % size}" for n in range(2 * size)]
    for at in range(0, len(keys), BATCH):
        batch = [pubsub.PubsubMessage(data=b"x", ordering_key=key) for key in keys[at : at + BATCH]]
        broker.publish(pubsub.PublishRequest(topic=TOPIC, messages=batch))


@contextmanager
def others_published(broker: Broker) -> Iterator[None]:
    """Publish messages of other keys evenly during the block."""
    ended = threading.Event()

    def publish() -> None:
        number = 0
        while not ended.wait(1 / OTHERS_PER_SECOND):
            number += 1
            one = pubsub.PubsubMessage(
                data=TIMESTAMP.pack(time.time()), ordering_key=f"{OTHER}-{number}"
            )
            broker.publish(pubsub.PublishRequest(topic=TOPIC, messages=[one]))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure(peer: str, case: str, size: int) -> Figures:
    """Return the figures of one client in its own process, at a broker of its own."""
    with serving(Kind.OURS) as endpoint:
        broker = Broker(endpoint)
        broker.create_topic(pubsub.Topic(name=TOPIC))
        name = SUBSCRIPTION.format(0)
        broker.create_subscription(
            pubsub.Subscription(
                name=name, topic=TOPIC, ack_deadline_seconds=60, enable_message_ordering=True
            )
        )
        publish_failing(broker, case, size)
        command = [sys.executable, "-m", "tests.bench.growth_ordering", "--client", peer]
        options = ["--endpoint", endpoint, "--case", case, "--sizes", str(size)]
        with others_published(broker):
            ended = subprocess.run(
                [*command, *options], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT * 10
            )
        if ended.returncode:
            return {}
        figures: Figures = json.loads(ended.stdout)
        return figures


def exponent(sizes: Sequence[int], figures: Sequence[Figures]) -> str:
    (few, many), (before, after) = sizes, figures
    if not (before and after):
        return ""
    return f"{math.log(after['cpu'] / before['cpu'], many / few):.2f}"


def report(case: str, sizes: Sequence[int], rounds: int) -> Table:
    view = Table(title=f"{case}: median of {rounds}")
    for column in ("client", "size", "CPU, s", "exponent", "all after, s", "longest wait, s"):
        view.add_column(column, justify="right")
    for peer in (OURS, OFFICIAL):
        if peers.missing(peer):
            continue
        previous: tuple[int, Figures] | None = None
        for size in sizes:
            runs = [figures for _ in range(rounds) if (figures := measure(peer, case, size))]
            runs.sort(key=lambda figures: figures["cpu"])
            figures = runs[len(runs) // 2] if runs else {}
            grown = exponent((previous[0], size), (previous[1], figures)) if previous else ""
            cells = [f"{figures[name]:.2f}" if figures else "failed" for name in FIGURES]
            view.add_row(peer, str(size), cells[0], grown, *cells[1:])
            previous = size, figures
    return view


FIGURES = ("cpu", "seconds", "longest_wait")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, help="default: each")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--client", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        figures = client(arguments.client, arguments.endpoint, arguments.case, arguments.sizes[0])
        print(json.dumps(figures), flush=True)
        # Without a shutdown, whose cost is not measured here.
        os._exit(0)
    for case in [arguments.case] if arguments.case else CASES:
        Console().print(report(case, arguments.sizes, arguments.rounds))


if __name__ == "__main__":
    main()
