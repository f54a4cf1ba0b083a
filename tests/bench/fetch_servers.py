"""The brokers that `fetch` is measured beside: each keeps its messages in memory, as ours does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from tests.interop.test_java_emulator import free_port

from .fetch_cases import NATS, REDIS, FetchWork
from .servers import Broker, running, serving


@contextmanager
def serving_for(work: FetchWork) -> Iterator[str]:
    """The broker of a peer, on loopback, for as long as the block lasts; gives its endpoint."""
    if work.peer not in (NATS, REDIS):
        with serving(Broker.OURS) as endpoint:
            yield endpoint
        return
    port = free_port()
    with TemporaryDirectory() as directory:
        command, ready = _command(work.peer, port, directory)
        with running(command, ready):
            yield f"127.0.0.1:{port}"


def _command(peer: str, port: int, directory: str) -> tuple[list[str], str]:
    """The program's command line, and what it says when it is ready."""
    if peer == NATS:
        options = ["--addr", "127.0.0.1", "--port", str(port)]
        return ["nats-server", "--jetstream", "--store_dir", directory, *options], "Server is ready"
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", directory, "--save", ""]
    return ["redis-server", *options, "--appendonly", "no"], "Ready to accept connections"
