"""`pullstream faults` and `pullstream clock`: commands for a running broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import click
import pytest
from click.testing import CliRunner, Result

from pullstream.cli.clock import clock as clock_command
from pullstream.cli.faults import faults as faults_command
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from tests.free_port import free_port

pytest.importorskip("click")

pytest.importorskip("aiohttp")

START = "2023-11-14T22:13:20Z"


def run(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def output(command: click.Command, *arguments: str) -> str:
    ran = run(command, *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_broker_admin_requests_ignore_web_proxies(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker is local, so a web proxy does not apply."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert output(clock_command, "show") == f"{START}\n"


def test_broker_admin_requests_send_no_token_to_a_redirect_target() -> None:
    """On a redirect, urllib would send the token to another server."""
    with redirecting() as (endpoint, headers):
        ran = run(clock_command, "show", "--endpoint", endpoint, "--token", "secret")
    assert (ran.exit_code, ran.output) == (1, "Error: the broker returned HTTP status 302\n")
    assert headers == ["Bearer secret"]


@contextmanager
def redirecting() -> Iterator[tuple[str, list[str | None]]]:
    """The error has the broker's text, and the exit code is 1."""
    shown: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", shown
        finally:
            server.shutdown()
            thread.join()


def test_an_admin_command_that_the_broker_refuses_prints_the_error_in_one_line(
    emulator: Emulator,
) -> None:
    """The error has the address."""
    ran = run(faults_command, "clear", "7")
    assert (ran.exit_code, ran.output) == (1, "Error: There is no fault with the id 7 in force.\n")


def test_an_admin_command_prints_the_address_of_an_unreachable_broker() -> None:
    """Nothing listens on the port of this test."""
    port = free_port()
    ran = run(faults_command, "list", "--endpoint", f"127.0.0.1:{port}")
    assert ran.exit_code == 1
    assert ran.output.startswith(f"Error: http://127.0.0.1:{port} does not answer: ")
    assert ran.output.count("\n") == 1


def test_an_admin_command_prints_that_a_broker_does_not_answer_in_http(emulator: Emulator) -> None:
    """The broker of this test has no HTTP."""
    with Emulator() as other:
        ran = run(faults_command, "list", "--endpoint", other.endpoint)
    assert ran.exit_code == 1
    assert "does not answer in HTTP" in ran.output
    assert "pullstream[http]" in ran.output
    assert ran.output.isprintable() or ran.output.strip().isprintable()


def test_an_admin_command_sends_the_token_that_the_broker_requires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The token comes from an option or the client's variable.

    The broker's own variable is not read.
    """
    with Emulator(rest=True, access=Access({"secret": Principal("tester")})) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        monkeypatch.setenv("PULLSTREAM_AUTH_TOKEN", "secret")
        assert run(faults_command, "list").exit_code == 1
        assert output(faults_command, "list", "--token", "secret") == ""
        monkeypatch.setenv("PULLSTREAM_TOKEN", "secret")
        assert output(clock_command, "show")
