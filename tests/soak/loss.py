"""Measures the loss by a kill at class disk: a broker is killed repeatedly under load.

    python -m tests.soak.loss --kills 20 --max-loss 0.5

For each kill it prints the time from the confirmation of the oldest lost message to the kill, and
the span from the oldest to the newest one, in milliseconds. Exits with 1 if a span is longer than
the bound.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import grpc

from pullstream_emulator.storage.database import Database
from pullstream_emulator.storage.loading import Contents
from pullstream_protocol.clock import SystemClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import TOPIC
from tests.emulator.program import COMMAND
from tests.emulator.wire import Wire

PUBLISHERS = 4
BATCH = 100


def publish(endpoint: str, confirmed: dict[str, float]) -> None:
    """Publish until the broker is gone, and record when each message was confirmed."""
    wire = Wire(endpoint)
    messages = [pubsub.PubsubMessage(data=b"x" * 100)] * BATCH
    request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
    clock = SystemClock()
    try:
        while True:
            ids = wire.call("Publish", request).message_ids
            confirmed.update(dict.fromkeys(ids, clock.monotonic()))
    except grpc.RpcError:
        wire.close()


def kill(directory: Path, max_loss: float, seconds: float) -> tuple[float, float]:
    """Kill a broker. Return the age of the oldest lost message, and the span of all lost ones."""
    arguments = ["--data-dir", str(directory), "--max-loss", str(max_loss)]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    endpoint = f"127.0.0.1:{process.stdout.readline().split()[-1]}"
    wire = Wire(endpoint)
    wire.create()
    confirmed: dict[str, float] = {}
    threads = [
        threading.Thread(target=publish, args=(endpoint, confirmed)) for _ in range(PUBLISHERS)
    ]
    for thread in threads:
        thread.start()
    threads[0].join(seconds)
    killed = SystemClock().monotonic()
    process.kill()
    process.communicate()
    for thread in threads:
        thread.join()
    wire.close()
    with closing(Database(directory)) as database:
        (topic,) = Contents(database).saved().topics
        kept = {str(seq) for seq, _ in topic.records}
    times = [time for message_id, time in confirmed.items() if message_id not in kept]
    if not times:
        return 0.0, 0.0
    return killed - min(times), max(times) - min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load before each kill")
    parser.add_argument("--max-loss", type=float, default=0.5)
    options = parser.parse_args()
    ages, spans = [], []
    for _ in range(options.kills):
        with tempfile.TemporaryDirectory() as folder:
            age, span = kill(Path(folder) / "data", options.max_loss, options.seconds)
        ages.append(age * 1000)
        spans.append(span * 1000)
        print(f"oldest lost {ages[-1]:.0f} ms before the kill, span {spans[-1]:.0f} ms", flush=True)
    print(f"oldest: median {statistics.median(ages):.0f} ms, most {max(ages):.0f} ms")
    print(f"span: median {statistics.median(spans):.0f} ms, most {max(spans):.0f} ms")
    return 1 if max(spans) > options.max_loss * 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
