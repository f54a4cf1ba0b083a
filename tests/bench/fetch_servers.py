"""The brokers of the `fetch` comparison: each keeps its messages in memory, as ours does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from tests.free_port import free_port

from .fetch_cases import NATS, REDIS, FetchWork
from .servers import Broker, running, serving


@contextmanager
def serving_for(work: FetchWork) -> Iterator[str]:
    """Run the broker of a peer on loopback during the block, and yield its endpoint."""
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
    """Return the program's command line, and its output when it is ready."""
    if peer == NATS:
        options = ["--addr", "127.0.0.1", "--port", str(port)]
        return ["nats-server", "--jetstream", "--store_dir", directory, *options], "Server is ready"
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", directory, "--save", ""]
    return ["redis-server", *options, "--appendonly", "no"], "Ready to accept connections"
