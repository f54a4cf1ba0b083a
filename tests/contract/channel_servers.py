"""Servers that only publish channels. Each runs for the duration of a `with` block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import grpc
import grpc.aio
import pytest

from pullstream import ChannelPublisher

Serve: TypeAlias = Callable[[ChannelPublisher], AbstractContextManager[str]]


@contextmanager
def served(
    publisher: ChannelPublisher,
    *,
    threads: int = 8,
    interceptors: list[grpc.ServerInterceptor] | None = None,
) -> Iterator[str]:
    """Serve the publisher on a server with threads, and yield its endpoint."""
    server = grpc.server(ThreadPoolExecutor(threads), interceptors=interceptors)
    publisher.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        publisher.close()
        server.stop(grace=None).wait()


@contextmanager
def served_on_a_loop(publisher: ChannelPublisher) -> Iterator[str]:
    """Serve the publisher on an event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server()
        publisher.add_to(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    server, port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        publisher.close()
        asyncio.run_coroutine_threadsafe(server.stop(None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


on_both_servers = pytest.mark.parametrize("serve", [served, served_on_a_loop])
