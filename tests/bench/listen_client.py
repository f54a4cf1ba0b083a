"""Subscribers of channels that wait: how long a message takes to one of them, and what all cost.

    python -m tests.bench.listen_client latency localhost:PORT --subscribers 1000
    python -m tests.bench.listen_client parked --subscribers 10000

latency  from the call of publish to the callback of a listener of the SDK, one message at a time;
         the other subscribers wait for other keys, in a process of their own
parked   the memory of a process that is nothing but a publisher, with all subscribers waiting
bare     the same of a gRPC server that does nothing but let calls wait
hold     be those others: wait until this process is ended

Prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from protocol.messages import channels_pb2 as channels
from protocol.messages import pubsub_pb2 as pubsub
from protocol.rpcs import BY_METHOD, CHANNELS
from subscriber import ChannelPublisher, SubscriberClient

from .client import Figures, Process
from .publisher import READY, TOPIC, Broker
from .servers import running

# Subscribers share connections, as those of one machine would share a proxy's.
PER_CONNECTION = 1000
WARM_UP = 0.5
PATIENCE = 60.0
KEY = "the-one"
DATA = b"x" * 100


@contextmanager
def holding(endpoint: str, subscribers: int) -> Iterator[None]:
    """So many others wait while the block lasts."""
    command = [sys.executable, "-m", "tests.bench.listen_client", "hold", endpoint]
    with running([*command, "--subscribers", str(subscribers)], READY):
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
        taken.wait(PATIENCE)
        warm = time.monotonic() + WARM_UP
        while time.monotonic() < warm + arguments.seconds:
            began = time.perf_counter()
            broker.publish(request)
            took = came.get(timeout=PATIENCE) - began
            if time.monotonic() > warm:
                times.append(took)
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": percentiles[49] * 1e3, "p99_ms": percentiles[98] * 1e3}


class Waiting:
    """Calls that wait, and nothing else."""

    def __init__(self) -> None:
        self.count = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        async def answer(request: bytes, context: Any) -> bytes:
            return b""

        async def wait(request: bytes, context: Any) -> None:
            self.count += 1
            await asyncio.get_running_loop().create_future()

        methods = {"Commands": answer, "Poll": wait}
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(CHANNELS, handlers)])


def parked(arguments: argparse.Namespace) -> Figures:
    publisher = ChannelPublisher()
    return asyncio.run(
        _serve(publisher, lambda: publisher.statistics().parked, arguments.subscribers)
    )


def bare(arguments: argparse.Namespace) -> Figures:
    waiting = Waiting()
    return asyncio.run(_serve(waiting, lambda: waiting.count, arguments.subscribers))


async def _serve(
    service: ChannelPublisher | Waiting, count: Callable[[], int], subscribers: int
) -> Figures:
    """The memory of this process when all subscribers wait. It is left to its own end."""
    server = grpc.aio.server()
    service.add_to(server)
    port = server.add_insecure_port("localhost:0")
    await server.start()
    command = [sys.executable, "-m", "tests.bench.listen_client", "hold", f"localhost:{port}"]
    holder = subprocess.Popen([*command, "--subscribers", str(subscribers)], stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE
        while count() < subscribers:
            if time.monotonic() > deadline:
                sys.exit(f"{count()} of {subscribers} subscribers wait")
            await asyncio.sleep(0.1)
        return {"resident_mebibytes": Process.now().mebibytes}
    finally:
        holder.kill()
        holder.wait()


async def hold(endpoint: str, subscribers: int) -> None:
    """Subscribe to a key each and wait; READY is printed when all do."""
    connections = [
        grpc.aio.insecure_channel(endpoint, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(0, subscribers, PER_CONNECTION)
    ]
    waiting = []
    for number in range(subscribers):
        waiting.append(await _hold_one(connections[number // PER_CONNECTION], number))
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


MODES = {"latency": latency, "parked": parked, "bare": bare}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=[*MODES, "hold"])
    parser.add_argument("endpoint", nargs="?", default="")
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    if arguments.mode == "hold":
        asyncio.run(hold(arguments.endpoint, arguments.subscribers))
        return
    print(json.dumps(MODES[arguments.mode](arguments)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
