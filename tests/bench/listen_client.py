"""Subscribers of channels that wait, and the delay of a message to one of them.

    python -m tests.bench.listen_client latency localhost:PORT --subscribers 1000

latency: from the call of publish to the callback of a listener of the SDK, one message at a time;
    the other subscribers wait for other keys, in their own process.
hold: the other subscribers, which wait until this process is ended.

Prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio

from pullstream import SubscriberClient
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

from .client import Figures
from .publisher import READY, TOPIC, Broker
from .servers import running

# Subscribers share connections, as subscribers on one machine share a proxy's connections.
PER_CONNECTION = 1000
# The broker allows 300 calls of one connection at a time.
PER_CONNECTION_TO_BROKER = 250
WARM_UP = 0.5
TIMEOUT = 60.0
KEY = "the-one"
DATA = b"x" * 100


@contextmanager
def holding(endpoint: str, subscribers: int) -> Iterator[None]:
    """Let this many other subscribers wait during the block."""
    command = [sys.executable, "-m", "tests.bench.listen_client", "hold", endpoint]
    limits = ["--subscribers", str(subscribers), "--per-connection", str(PER_CONNECTION_TO_BROKER)]
    with running([*command, *limits], READY):
        yield


def latency(arguments: argparse.Namespace) -> Figures:
    broker = Broker(arguments.endpoint)
    broker.create_topic(pubsub.Topic(name=TOPIC))
    message = pubsub.PubsubMessage(data=DATA, ordering_key=KEY)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[message])
    came: queue.SimpleQueue[float] = queue.SimpleQueue()
    taken = threading.Event()
    times: list[float] = []
    with (
        holding(arguments.endpoint, arguments.subscribers - 1),
        SubscriberClient(endpoint=arguments.endpoint) as client,
    ):
        client.listen().subscribe(
            TOPIC,
            KEY,
            on_message=lambda message: came.put(time.perf_counter()),
            on_done=lambda error: taken.set(),
        )
        taken.wait(TIMEOUT)
        warm = time.monotonic() + WARM_UP
        while time.monotonic() < warm + arguments.seconds or len(times) < 2:
            began = time.perf_counter()
            broker.publish(request)
            took = came.get(timeout=TIMEOUT) - began
            if time.monotonic() > warm:
                times.append(took)
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": percentiles[49] * 1e3, "p99_ms": percentiles[98] * 1e3}


async def hold(endpoint: str, subscribers: int, per_connection: int) -> None:
    """Subscribe to one key each and wait. READY is printed when all wait."""
    connections = [
        grpc.aio.insecure_channel(endpoint, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(0, subscribers, per_connection)
    ]
    waiting = []
    for number in range(subscribers):
        waiting.append(await _hold_one(connections[number // per_connection], number))
    print(READY, flush=True)
    await asyncio.gather(*waiting)


async def _hold_one(channel: grpc.aio.Channel, number: int) -> Any:
    name = f"held-{number}"
    command = channels.Command(channel=TOPIC, key=name, subscribe=True)
    response = await _call(
        channel,
        "Commands",
        channels.CommandsRequest(subscriber_id=name, batch_no=1, replace=True, commands=[command]),
    )
    poll = channels.PollRequest(subscriber_id=name, incarnation=response.incarnation)
    return _call(channel, "Poll", poll)


def _call(channel: grpc.aio.Channel, method: str, request: Any) -> Any:
    rpc = BY_METHOD[method]
    call: Any = channel.unary_unary(
        rpc.path,
        request_serializer=rpc.request.SerializeToString,
        response_deserializer=rpc.response.FromString,
    )
    return call(request)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["latency", "hold"])
    parser.add_argument("endpoint")
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--per-connection", type=int, default=PER_CONNECTION)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    if arguments.mode == "hold":
        asyncio.run(hold(arguments.endpoint, arguments.subscribers, arguments.per_connection))
        return
    print(json.dumps(latency(arguments)))


if __name__ == "__main__":
    main()
