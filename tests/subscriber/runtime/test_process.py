"""The end of the program, and calls that a signal handler interrupts."""

from __future__ import annotations

import socket

import pytest

from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.program import start_program

TOPIC = "projects/p/topics/t"
SUBSCRIPTION = "projects/p/subscriptions/s"

# The limit is shorter than the real one, so that the test is short.
PROLOGUE = f"""
import asyncio, logging, sys
from pullstream import AsyncPublisherClient, PublisherClient, SubscriberClient
from pullstream.runtime import process

logging.disable()
process.EXIT_TIMEOUT = 2.0

def subscriber():
    return SubscriberClient(endpoint=sys.argv[1])

def subscribe():
    # The message has to be returned, and the server does not answer.
    subscriber().subscribe({SUBSCRIPTION!r}, print).adopt(["lease"])

def fetch():
    client = subscriber()
    client._settler({SUBSCRIPTION!r}).keep_leases([])
    future = client.subscribe({SUBSCRIPTION!r}, print)
    future.adopt(["lease"])[0].ack()

def follow():
    subscriber().follow({TOPIC!r}, print)

def watch():
    subscriber().watch({{{TOPIC!r}: 0}}, print)

def listen():
    subscriber().listen().subscribe("channel", on_message=print)

def publish():
    PublisherClient(endpoint=sys.argv[1]).publish({TOPIC!r}, b"x")

async def publish_async():
    AsyncPublisherClient(endpoint=sys.argv[1]).publish({TOPIC!r}, b"x")

"""

KINDS = ["subscribe", "fetch", "follow", "watch", "listen", "publish"]


def seconds_to_exit(text: str) -> float:
    """Run a program with a server that accepts connections and answers nothing.

    Returns:
        The seconds from the end of its main module to the end of the process.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        running = start_program(PROLOGUE + text + "\nprint('end', flush=True)\n", endpoint)
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "end\n"
            began = SYSTEM_CLOCK.monotonic()
            _, err = running.communicate(timeout=60)
        finally:
            running.kill()
            running.wait()
    assert (err, running.returncode) == ("", 0)
    return SYSTEM_CLOCK.monotonic() - began


@pytest.mark.parametrize("kind", ["subscribe", "publish"])
def test_twenty_clients_of_a_silent_server_close_at_exit_within_one_shared_time_limit(
    kind: str,
) -> None:
    """The limit is 2 s here. One after the other, each would wait for 1 s at least."""
    assert seconds_to_exit(f"for _ in range(20):\n    {kind}()\n") < 15


def test_clients_of_all_kinds_close_at_program_exit_within_one_shared_time_limit() -> None:
    """The limit is 2 s here. One after the other, they would take some 20 s."""
    calls = "".join(f"{kind}()\n" for kind in KINDS * 4)
    assert seconds_to_exit(calls + "asyncio.run(publish_async())\n") < 15
