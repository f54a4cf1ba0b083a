"""`python -m emulator`: the line it prints, how it stops, what it says when it cannot start."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.wire import PATIENCE, Wire

COMMAND = [sys.executable, "-m", "emulator", "--host", "127.0.0.1"]

# From the signal to the end of the process, on any machine.
STOPS_WITHIN = 2.0


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A broker in a process of its own that has printed its line, and its port."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        start, _, port = line.rpartition(" ")
        assert start == "Server started, listening on"
        yield process, int(port)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_stops_when_told(number: signal.Signals) -> None:
    """One line, no more; SIGTERM and Ctrl-C end it with success, also with a client connected."""
    with broker("--port", "0") as (process, port):
        wire = Wire(f"127.0.0.1:{port}")
        wire.create()
        stream = wire.stream()
        assert stream.is_quiet()
        process.send_signal(number)
        output, errors = process.communicate(timeout=STOPS_WITHIN)
        assert (process.returncode, output, errors) == (0, "", "")
        assert stream.end().name == "UNAVAILABLE"
        wire.close()


def test_it_listens_on_the_port_that_is_asked_for() -> None:
    """And can be started there again at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for _ in range(2):
        with broker("--port", str(port)) as (process, bound):
            assert bound == port
            wire = Wire(f"127.0.0.1:{port}")
            request = pubsub.ListTopicsRequest(project="projects/test")
            assert wire.call("ListTopics", request) == pubsub.ListTopicsResponse()
            process.terminate()
            assert process.wait(PATIENCE) == 0
            wire.close()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--port", "{busy}"], "Error: cannot listen on 127.0.0.1:{busy}: the port is in use\n"),
        (
            ["--host", "localhost", "--port", "{busy}"],
            "Error: cannot listen on localhost:{busy}: the port is in use\n",
        ),
        (["--host", "nowhere.invalid"], "Error: cannot listen on nowhere.invalid: "),
    ],
)
def test_one_line_says_why_it_cannot_start(arguments: list[str], line: str) -> None:
    """And the exit code is 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        ran = subprocess.run(
            [*COMMAND, *(argument.format(busy=busy) for argument in arguments)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(line.format(busy=busy))
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_bad_port_is_a_usage_error(port: str) -> None:
    """As every bad option: exit code 2 and the option's name."""
    ran = subprocess.run(
        [*COMMAND, "--port", port], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--port" in ran.stderr
