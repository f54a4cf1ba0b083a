"""The cost of waiting subscribers for a process that is only their publisher.

    python -m tests.bench.parked parked --subscribers 10000

parked: a ChannelPublisher on a grpc.server.
parked-aio: a ChannelPublisher on a server of grpc.aio.
bare: a server of grpc.aio that only lets calls wait.

Prints its figures as JSON. The imports of this module count too, so there are few.
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

from pullstream import ChannelPublisher
from pullstream_protocol.rpcs import CHANNELS

from .client import Figures, Process

# The seconds until all must have connected, and between two looks at them.
TIMEOUT = 60.0
LOOK_EVERY = 0.1

# The options that docs/channels.md recommends for this many listeners.
LEAN = [("grpc.enable_deadline_checking", 0), ("grpc.max_receive_message_length", -1)]


class Waiting:
    """A service whose calls wait and do nothing else."""

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
    """Let this many subscribers wait, in their own process."""
    command = [sys.executable, "-m", "tests.bench.listen_client", "hold", f"localhost:{port}"]
    holder = subprocess.Popen([*command, "--subscribers", str(subscribers)], stdout=subprocess.PIPE)
    try:
        yield
    finally:
        holder.kill()
        holder.wait()


def _looks(count: Callable[[], int], subscribers: int) -> Iterator[float]:
    """Yield the seconds to wait before the next look until all subscribers wait."""
    deadline = time.monotonic() + TIMEOUT
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
    # Without waiting for the server's cleanup of its subscribers.
    os._exit(0)


if __name__ == "__main__":
    main()
