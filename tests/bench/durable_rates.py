"""Rates of Publish at class fsync, of this checkout's broker and another one's, in turn.

    python -m tests.bench.durable_rates ../other-checkout

Both brokers run all the time, and short slices of load alternate: the ratio of two adjacent slices
says more than two rates on a busy machine. Prints, for each kind of load, the medians of both and
of the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from pullstream_protocol.clock import SystemClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.wire import Wire

ROOT = Path(__file__).parents[2]

# Publishers, messages in a request, and whether each is pulled and acknowledged.
LOADS = ((1, 1, False), (8, 1, False), (1, 100, False), (4, 100, False), (1, 1, True))


class Measured:
    """A broker of a checkout, and clients of it."""

    def __init__(self, checkout: Path, stack: ExitStack) -> None:
        # In the source folder, because a temporary directory may be in memory.
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=ROOT))
        process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "pullstream_emulator",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    "0",
                ),
                *("--no-rest", "--data-dir", folder, "--durability", "fsync"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
        )
        stack.callback(process.communicate)
        stack.callback(process.terminate)
        assert process.stdout is not None
        endpoint = f"127.0.0.1:{process.stdout.readline().split()[-1]}"
        self._wires = [Wire(endpoint) for _ in range(max(load[0] for load in LOADS))]
        for wire in self._wires:
            stack.callback(wire.close)
        self._wires[0].create()

    def rate(self, publishers: int, batch: int, acknowledges: bool, seconds: float) -> float:
        """Return the requests per second."""
        clock = SystemClock()
        begun = clock.monotonic()
        counts = [0] * publishers
        messages = [pubsub.PubsubMessage(data=b"x" * 100)] * batch
        request = pubsub.PublishRequest(topic=TOPIC, messages=messages)

        def publish(number: int) -> None:
            wire = self._wires[number]
            while clock.monotonic() < begun + seconds:
                wire.call("Publish", request)
                counts[number] += 1
                if acknowledges:
                    pull = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=batch)
                    received = wire.call("Pull", pull).received_messages
                    wire.acknowledge(*[each.ack_id for each in received])

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(publishers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (clock.monotonic() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout to compare with")
    parser.add_argument("--slices", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each slice")
    options = parser.parse_args()
    with ExitStack() as stack:
        brokers = (Measured(ROOT, stack), Measured(options.other.resolve(), stack))
        for load in LOADS:
            rates: tuple[list[float], list[float]] = ([], [])
            for number in range(options.slices):
                for which in (0, 1) if number % 2 else (1, 0):
                    rates[which].append(brokers[which].rate(*load, options.seconds))
            ours, others = map(statistics.median, rates)
            ratios = [our / other for our, other in zip(*rates, strict=True) if other]
            kind = f"{load[0]} publishers, batches of {load[1]}{', acknowledged' * load[2]}"
            print(
                f"{kind}: {ours:.0f} and {others:.0f} requests a second, "
                f"ratio {ours / others:.2f}, of pairs {statistics.median(ratios):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
