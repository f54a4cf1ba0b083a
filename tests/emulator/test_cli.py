"""`python -m pullstream_emulator`: its first line, its end, and its errors at the start."""

from __future__ import annotations

import signal
import socket

import pytest

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.completed import run_command
from tests.emulator.program import COMMAND, error_of, refusal, running
from tests.emulator.wire import TIMEOUT, Wire
from tests.free_port import free_port

# Seconds from the signal to the end of the process. A wait for a client would never end.
STOPS_WITHIN = TIMEOUT / 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_emulator_program_prints_its_address_and_stops_on_a_signal(
    number: signal.Signals,
) -> None:
    """The program prints exactly one line.

    SIGTERM and Ctrl-C end it with success, also with a connected client.
    """
    with running() as (process, endpoint), Wire(endpoint) as wire:
        wire.create()
        stream = wire.stream()
        assert stream.is_quiet()
        process.send_signal(number)
        output, errors = process.communicate(timeout=STOPS_WITHIN)
        assert (process.returncode, output, errors) == (0, "", "")
        assert stream.end().name == "UNAVAILABLE"


def test_the_port_option_of_the_emulator_program_sets_the_port() -> None:
    """Another broker can start on the same port at once."""
    port = free_port()
    for _ in range(2):
        with running("--port", str(port)) as (process, endpoint):
            assert endpoint == f"127.0.0.1:{port}"
            wire = Wire(endpoint)
            request = pubsub.ListTopicsRequest(project="projects/test")
            assert wire.call("ListTopics", request) == pubsub.ListTopicsResponse()
            process.terminate()
            assert process.wait(TIMEOUT) == 0
            wire.close()


def test_a_start_failure_of_the_emulator_program_is_reported_in_one_line() -> None:
    """The exit code is 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = str(taken.getsockname()[1])
        ran = run_command([*COMMAND, "--port", busy])
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"Error: cannot listen on 127.0.0.1:{busy}: the port is in use\n"


def test_the_emulator_program_refuses_a_port_in_use_at_any_address_of_its_host() -> None:
    """`localhost` has two addresses. A broker at the second one would get some of the clients."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = str(taken.getsockname()[1])
        error = error_of("--host", "localhost", "--port", busy)
    assert error == f"Error: cannot listen on localhost:{busy}: the port is in use\n"


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b"])
def test_the_error_for_an_unknown_host_option_names_the_host(host: str) -> None:
    """The error contains the system's message."""
    error = error_of("--host", host)
    assert error.startswith(f"Error: cannot listen on {host}: ")


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_an_invalid_port_option_of_the_emulator_program_is_a_usage_error(port: str) -> None:
    """The error has exit code 2 and names the option, as for every bad option."""
    code, text = refusal("--port", port)
    assert code == 2
    assert "--port" in text
