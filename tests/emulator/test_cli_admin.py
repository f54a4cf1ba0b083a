"""`pullstream faults` and `pullstream clock`: the commands that talk to a running broker."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest

from emulator import Emulator
from emulator.access import Access, Principal
from protocol.clock import ManualClock
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.wire import Wire

pytest.importorskip("click")
pytest.importorskip("aiohttp")

from click.testing import CliRunner, Result

from emulator.cli_admin import clock as clock_command
from emulator.cli_admin import faults as faults_command

START = "2023-11-14T22:13:20Z"


@pytest.fixture
def emulator(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """One that the commands find by themselves."""
    with Emulator(clock=clock, rest=True) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        yield emulator


def run(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def output(command: click.Command, *arguments: str) -> str:
    ran = run(command, *arguments)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_faults_are_added_listed_and_cleared(emulator: Emulator) -> None:
    """By the ids that `add` prints, or all of them."""
    ids = [output(faults_command, "add", f"drop:Pull:times={n}").strip() for n in (1, 2, 3)]
    assert [fault.scope.times for fault in emulator.faults.active] == [1, 2, 3]
    lines = output(faults_command, "list").splitlines()
    assert [json.loads(line)["times"] for line in lines] == [1, 2, 3]
    output(faults_command, "clear", ids[0], ids[2])
    assert [fault.scope.times for fault in emulator.faults.active] == [2]
    output(faults_command, "clear")
    assert emulator.faults.active == ()
    assert output(faults_command, "list") == ""


def test_the_clock_is_shown_and_moved(emulator: Emulator, wire: Wire, clock: ManualClock) -> None:
    """The command has ended when what was due has happened."""
    wire.create()
    wire.publish("a")
    wire.pull()
    assert output(clock_command, "show") == f"{START}\n"
    assert output(clock_command, "advance", "10") == "2023-11-14T22:13:30Z\n"
    assert len(wire.pull(wait=False)) == 1
    assert emulator.backlog(SUBSCRIPTION) == 1


def test_the_endpoint_may_stand_before_the_command(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is an option of the whole program, which goes before the environment."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    session = SimpleNamespace(endpoint=emulator.endpoint)
    ran = CliRunner().invoke(clock_command, ["show"], obj=session)
    assert (ran.exit_code, ran.output) == (0, f"{START}\n")


def test_no_proxy_is_asked(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker is near, whatever a machine's way to the web is."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert output(clock_command, "show") == f"{START}\n"


@pytest.mark.parametrize("arguments", [["add", "explode:Pull"], ["add"], ["clear", "first"]])
def test_bad_words_are_an_error_of_usage(arguments: list[str]) -> None:
    """Without asking any broker."""
    assert run(faults_command, *arguments).exit_code == 2
    assert run(clock_command, "advance", "--", "-1").exit_code == 2


def test_a_refusal_is_told_in_one_line(emulator: Emulator) -> None:
    """In the broker's words, with exit code 1."""
    ran = run(faults_command, "clear", "7")
    assert (ran.exit_code, ran.output) == (1, "Error: There is no fault with the id 7 in force.\n")


def test_a_broker_that_is_not_there_is_named() -> None:
    """With the address that was tried."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ran = run(faults_command, "list", "--endpoint", f"127.0.0.1:{port}")
    assert ran.exit_code == 1
    assert ran.output.startswith(f"Error: http://127.0.0.1:{port} does not answer: ")
    assert ran.output.count("\n") == 1


def test_a_port_of_another_kind_is_told_from_a_broker(emulator: Emulator) -> None:
    """Here a broker that serves no HTTP."""
    with Emulator() as other:
        ran = run(faults_command, "list", "--endpoint", other.endpoint)
    assert ran.exit_code == 1
    assert "does not answer in HTTP" in ran.output
    assert "pullstream[http]" in ran.output
    assert ran.output.isprintable() or ran.output.strip().isprintable()


def test_a_broker_with_tokens_wants_to_see_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an option, or by the broker's own variable."""
    with Emulator(rest=True, access=Access({"secret": Principal("tester")})) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        assert run(faults_command, "list").exit_code == 1
        assert output(faults_command, "list", "--auth-token", "secret") == ""
        monkeypatch.setenv("PULLSTREAM_AUTH_TOKEN", "secret")
        assert output(clock_command, "show")
