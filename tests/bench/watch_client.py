"""The work of a client with feeds: one mode, measured in its own process.

    python -m tests.bench.watch_client watch localhost:PORT --messages 100000

Prints its figures as one JSON object. The data of each counted message is read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from pullstream import SubscriberClient
from pullstream.feeds import CaughtUp, Frame, Records
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .client import Figures, wait_for_progress
from .peers import TIMESTAMP
from .publisher import READY, TOPIC
from .servers import running

BATCH = 1000
TIMEOUT = 60.0
WARM_UP = 0.5

# A frame of a watch of 100 topics has the positions of all.
FRAME_BYTES = 3_500
BARE_SERVICE = "bench.Bare"

SIZE = 100
RECORD = pubsub.PubsubMessage(data=b"x" * SIZE)


def fill(client: SubscriberClient, messages: int) -> None:
    """Make a feed that keeps all messages."""
    client.feeds.put(TOPIC)
    for _ in range(0, messages, BATCH):
        client.feeds.append(TOPIC, [RECORD] * BATCH)


def watch(client: SubscriberClient, arguments: argparse.Namespace) -> Figures:
    """Watch a backlog, and measure from the first frame with messages to the last."""
    count = 0
    began, ended = [0.0, 0.0], [0.0, 0.0]
    done = threading.Event()

    def handle(frame: Frame) -> None:
        nonlocal count
        if isinstance(frame, Records):
            if not count:
                began[:] = time.monotonic(), time.process_time()
            count += sum(len(one.data) == SIZE for one in frame.messages)
        elif isinstance(frame, CaughtUp) and count:
            ended[:] = time.monotonic(), time.process_time()
            done.set()

    fill(client, arguments.messages)
    with SubscriberClient(endpoint=arguments.endpoint) as reader:
        reader.watch({TOPIC: 0}, handle, max_messages=1000)
        assert done.wait(TIMEOUT), "the watch has not caught up"
    return _rate(count, ended[0] - began[0], ended[1] - began[1])


def read(client: SubscriberClient, arguments: argparse.Namespace) -> Figures:
    """Read a backlog by one call after the other."""
    fill(client, arguments.messages)
    reading = client.feeds.read(TOPIC, max_messages=1)
    began, used = time.monotonic(), time.process_time()
    count = 0
    while not reading.caught_up:
        reading = client.feeds.read(TOPIC, reading.position, max_messages=1000)
        count += sum(len(one.data) == SIZE for one in reading.messages)
    return _rate(count, time.monotonic() - began, time.process_time() - used)


def _rate(count: int, seconds: float, used: float) -> Figures:
    return {"rate": count / seconds, "cpu_micros": used / count * 1e6}


def latency(client: SubscriberClient, arguments: argparse.Namespace) -> Figures:
    """Measure the time from sending to the handler, while a publisher runs."""
    times: list[float] = []

    def handle(frame: Frame) -> None:
        if isinstance(frame, Records):
            now = time.time()
            times.extend(now - TIMESTAMP.unpack(one.data)[0] for one in frame.messages)

    client.watch({TOPIC: "tail"}, handle)
    time.sleep(WARM_UP)
    times.clear()
    wait_for_progress(arguments.seconds, lambda: len(times) >= 2)
    return _percentiles(list(times))


def fan_out(client: SubscriberClient, arguments: argparse.Namespace) -> Figures:
    """Measure the time from an append to the last handler, with many topics filled by routers."""
    copies = [f"{TOPIC}-{number:03}" for number in range(arguments.topics)]
    client.feeds.put(TOPIC)
    for number, copy in enumerate(copies):
        client.feeds.put(copy)
        name = client.routers.path("bench", f"router-{number:03}")
        client.routers.put({"name": name, "source": TOPIC, "dest": copy})
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()

    def handle(frame: Frame) -> None:
        if isinstance(frame, Records):
            arrived.put(len(frame.messages))
        elif isinstance(frame, CaughtUp):
            arrived.put(0)

    client.watch(dict.fromkeys(copies, "tail"), handle)
    for _ in copies:
        arrived.get(timeout=TIMEOUT)
    return _until_all_arrived(lambda: client.feeds.append(TOPIC, [RECORD]), arrived, arguments)


def _until_all_arrived(
    append: Callable[[], object], arrived: queue.SimpleQueue[int], arguments: argparse.Namespace
) -> Figures:
    """Measure the time from a call to the last of the messages that it causes, one a topic."""
    times: list[float] = []
    warm = time.monotonic() + WARM_UP
    while (now := time.monotonic()) < warm + arguments.seconds or len(times) < 2:
        began = time.perf_counter()
        append()
        count = 0
        while count < arguments.topics:
            count += arrived.get(timeout=TIMEOUT)
        if now > warm:
            times.append(time.perf_counter() - began)
    return _percentiles(times)


def bare_fan_out(client: SubscriberClient, arguments: argparse.Namespace) -> Figures:
    """Measure the time from a call to the last of as many small messages of a stream of gRPC."""
    command = [sys.executable, "-m", "tests.bench.watch_client", SERVER, ""]
    command += ["--topics", str(arguments.topics)]
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
    with (
        running(command, rf"{READY} (\d+)") as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        stream: Any = channel.unary_stream(f"/{BARE_SERVICE}/Frames")
        frames = stream(b"")

        def read() -> None:
            # The stream ends with the channel.
            with suppress(grpc.RpcError):
                for _ in frames:
                    arrived.put(1)

        threading.Thread(target=read, daemon=True).start()
        append: Any = channel.unary_unary(f"/{BARE_SERVICE}/Append")
        return _until_all_arrived(lambda: append(b""), arrived, arguments)


async def serve_frames(topics: int) -> None:
    """Serve a stream that gets a message of FRAME_BYTES for each topic after each call."""
    called = asyncio.Event()

    async def frames(request: bytes, context: Any) -> None:
        while True:
            await called.wait()
            called.clear()
            for _ in range(topics):
                await context.write(b"x" * FRAME_BYTES)

    async def append(request: bytes, context: Any) -> bytes:
        called.set()
        return b""

    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Frames": grpc.unary_stream_rpc_method_handler(frames),
        "Append": grpc.unary_unary_rpc_method_handler(append),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(BARE_SERVICE, handlers)])
    port = server.add_insecure_port("localhost:0")
    await server.start()
    print(READY, port, flush=True)
    await server.wait_for_termination()


def _percentiles(times: Sequence[float]) -> Figures:
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": percentiles[49] * 1e3, "p99_ms": percentiles[98] * 1e3}


MODES: dict[str, Callable[[SubscriberClient, argparse.Namespace], Figures]] = {
    "watch": watch,
    "read": read,
    "latency": latency,
    "fan-out": fan_out,
    "bare-fan-out": bare_fan_out,
}
SERVER = "serve-frames"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=(*MODES, SERVER))
    parser.add_argument("endpoint")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--messages", type=int, default=100_000, help="how large a backlog")
    parser.add_argument("--topics", type=int, default=1, help="watched")
    arguments = parser.parse_args()
    if arguments.mode == SERVER:
        asyncio.run(serve_frames(arguments.topics))
        return
    with SubscriberClient(endpoint=arguments.endpoint) as client:
        figures = MODES[arguments.mode](client, arguments)
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
