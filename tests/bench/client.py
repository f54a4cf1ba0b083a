"""One client, measured in a process of its own: how many messages a second, and at what cost.

    python -m tests.bench.client pullstream localhost:PORT

Prints one JSON object. The clock starts when the client is warm, so that imports and connecting do
not count.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

SUBSCRIPTION = "projects/bench/subscriptions/bench"
WARM_UP = 1.0


@dataclass
class Measurement:
    """What one process did while it was watched."""

    messages: int
    seconds: float
    cpu_seconds: float
    peak_mebibytes: float
    threads: int


class Counter:
    """Counts callbacks. `n += 1` under the interpreter's lock may lose one in a million: enough."""

    def __init__(self) -> None:
        self.n = 0

    def callback(self, message: Any) -> None:
        message.ack()
        self.n += 1


def start_pullstream(endpoint: str, max_messages: int, counter: Counter) -> None:
    from subscriber import FlowControl, SubscriberClient

    client = SubscriberClient(endpoint=endpoint)
    client.subscribe(SUBSCRIPTION, counter.callback, FlowControl(max_messages=max_messages))


def start_official(endpoint: str, max_messages: int, counter: Counter) -> None:
    os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
    from google.cloud import pubsub_v1

    client = pubsub_v1.SubscriberClient()
    limits = pubsub_v1.types.FlowControl(max_messages=max_messages)
    client.subscribe(SUBSCRIPTION, counter.callback, flow_control=limits)


def start_bare(endpoint: str, max_messages: int, counter: Counter) -> None:
    """The practical limit: a grpcio loop that reads each field, and neither acks nor runs
    callbacks.

    Its window is unlimited, as nothing is acknowledged.
    """
    import grpc

    from protocol.messages import pubsub_pb2 as pubsub

    channel = grpc.insecure_channel(endpoint)
    open_stream = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=pubsub.StreamingPullRequest.SerializeToString,
        response_deserializer=pubsub.StreamingPullResponse.FromString,
    )
    requests: queue.SimpleQueue[pubsub.StreamingPullRequest | None] = queue.SimpleQueue()
    requests.put(
        pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60)
    )

    def read() -> None:
        for response in open_stream(iter(requests.get, None)):
            for received in response.received_messages:
                message = received.message
                _ = (received.ack_id, message.data, message.message_id, message.ordering_key)
                counter.n += 1
        # Kept to here: a collected channel ends its calls.
        channel.close()

    threading.Thread(target=read, daemon=True).start()


CLIENTS: dict[str, Callable[[str, int, Counter], None]] = {
    "pullstream": start_pullstream,
    "official": start_official,
    "bare": start_bare,
}


def measure(counter: Counter, seconds: float) -> Measurement:
    time.sleep(WARM_UP)
    messages, cpu, began = counter.n, time.process_time(), time.monotonic()
    time.sleep(seconds)
    return Measurement(
        messages=counter.n - messages,
        seconds=time.monotonic() - began,
        cpu_seconds=time.process_time() - cpu,
        peak_mebibytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        threads=threading.active_count(),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("endpoint")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--max-messages", type=int, default=1000)
    arguments = parser.parse_args()
    counter = Counter()
    CLIENTS[arguments.client](arguments.endpoint, arguments.max_messages, counter)
    print(json.dumps(asdict(measure(counter, arguments.seconds))), flush=True)
    # Without a shutdown: what it costs is not what is measured here.
    os._exit(0)


if __name__ == "__main__":
    main()
