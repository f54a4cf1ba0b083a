"""What waiting subscribers cost the process they wait at, which is nothing but their publisher.

    python -m tests.bench.parked parked --subscribers 10000

parked  at a ChannelPublisher on a server of grpc.aio
bare    at such a server that does nothing but let calls wait

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
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from protocol.rpcs import CHANNELS
from subscriber import ChannelPublisher

from .client import Figures, Process

# How long all may take to come, in seconds.
PATIENCE = 60.0


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


async def parked(subscribers: int) -> Figures:
    publisher = ChannelPublisher()
    return await _serve(publisher, lambda: publisher.statistics().parked, subscribers)


async def bare(subscribers: int) -> Figures:
    waiting = Waiting()
    return await _serve(waiting, lambda: waiting.count, subscribers)


MODES = {"parked": parked, "bare": bare}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--subscribers", type=int, default=1000)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(MODES[arguments.mode](arguments.subscribers))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
