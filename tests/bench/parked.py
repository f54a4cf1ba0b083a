"""What waiting subscribers cost the process they wait at, which is nothing but their publisher.

    python -m tests.bench.parked parked --subscribers 10000

parked       at a ChannelPublisher on a grpc.server
parked-aio   at a ChannelPublisher on a server of grpc.aio
bare         at a server of grpc.aio that does nothing but let calls wait

Prints its figures as JSON. What it imports is part of them: no more than is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from protocol.rpcs import CHANNELS
from subscriber import ChannelPublisher

from .client import Figures, Process

# How long all may take to come, and how often that is looked at, in seconds.
PATIENCE = 60.0
LOOK_EVERY = 0.1

# What docs/channels.md names for as many listeners.
LEAN = [("grpc.enable_deadline_checking", 0), ("grpc.max_receive_message_length", -1)]


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


@contextmanager
def _held(port: int, subscribers: int) -> Iterator[None]:
    """So many come and wait, from a process of their own."""
    command = [sys.executable, "-m", "tests.bench.listen_client", "hold", f"localhost:{port}"]
    holder = subprocess.Popen([*command, "--subscribers", str(subscribers)], stdout=subprocess.PIPE)
    try:
        yield
    finally:
        holder.kill()
        holder.wait()


def _looks(count: Callable[[], int], subscribers: int) -> Iterator[float]:
    """Seconds to wait before the next look, until all wait."""
    deadline = time.monotonic() + PATIENCE
    while count() < subscribers:
        if time.monotonic() > deadline:
            sys.exit(f"{count()} of {subscribers} subscribers wait")
        yield LOOK_EVERY


def _resident() -> Figures:
    return {"resident_mebibytes": Process.now().mebibytes}


def parked(subscribers: int) -> Figures:
    publisher = ChannelPublisher()
    server = grpc.server(ThreadPoolExecutor(), options=LEAN)
    publisher.add_to(server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with _held(port, subscribers):
        for pause in _looks(lambda: publisher.statistics().parked, subscribers):
            time.sleep(pause)
        return _resident()


async def _on_a_loop(
    service: ChannelPublisher | Waiting, count: Callable[[], int], subscribers: int
) -> Figures:
    server = grpc.aio.server()
    service.add_to(server)
    port = server.add_insecure_port("localhost:0")
    await server.start()
    with _held(port, subscribers):
        for pause in _looks(count, subscribers):
            await asyncio.sleep(pause)
        return _resident()


def parked_aio(subscribers: int) -> Figures:
    publisher = ChannelPublisher()
    return asyncio.run(_on_a_loop(publisher, lambda: publisher.statistics().parked, subscribers))


def bare(subscribers: int) -> Figures:
    waiting = Waiting()
    return asyncio.run(_on_a_loop(waiting, lambda: waiting.count, subscribers))


MODES = {"parked": parked, "parked-aio": parked_aio, "bare": bare}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--subscribers", type=int, default=1000)
    arguments = parser.parse_args()
    print(json.dumps(MODES[arguments.mode](arguments.subscribers)), flush=True)
    # Without waiting for what the server still has to do for those who were here.
    os._exit(0)


if __name__ == "__main__":
    main()
