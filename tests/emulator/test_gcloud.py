"""The command line of Google's emulator runs the broker."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.request import urlopen

import click
import pytest
from click.testing import CliRunner

from pullstream_emulator.gcloud import gcloud, host_and_port
from tests.completed import run_command
from tests.emulator.program import started
from tests.emulator.wire import TIMEOUT

PROGRAM = [sys.executable, "-m", "pullstream_emulator.gcloud"]


@pytest.mark.parametrize(
    "arguments",
    [
        # Testcontainers for Java, Node, Go and .NET.
        ["beta", "emulators", "pubsub", "start", "--host-port", "127.0.0.1:0"],
        # Testcontainers for Python.
        ["beta", "emulators", "pubsub", "start", "--project=test", "--host-port=127.0.0.1:0"],
        ["emulators", "pubsub", "start", "--host-port=127.0.0.1:0", "--verbosity=debug", "--quiet"],
        ["--quiet", "beta", "emulators", "pubsub", "start", "--host-port=127.0.0.1:0"],
    ],
)
def test_the_gcloud_command_line_for_the_emulator_starts_the_broker(arguments: list[str]) -> None:
    """Tools wait for the line "Server started, listening on PORT"."""
    with (
        started([*PROGRAM, *arguments], {}) as (_, endpoint),
        urlopen(f"http://{endpoint}/", timeout=TIMEOUT) as answer,
    ):
        assert answer.read() == b"Ok\n"


def test_the_gcloud_data_dir_option_sets_the_data_directory_of_the_broker(tmp_path: Path) -> None:
    """The log can be switched on, too."""
    start = ["emulators", "pubsub", "start", "--host-port=127.0.0.1:0", "--log-http"]
    with started([*PROGRAM, *start, f"--data-dir={tmp_path}"], {}):
        assert list(tmp_path.glob("*.db*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:8085", ("localhost", 8085)),
        ("0.0.0.0:8432", ("0.0.0.0", 8432)),
        ("[::]:8085", ("::", 8085)),
        ("[::1]", ("::1", 8085)),
        (":9000", ("localhost", 9000)),
        ("9000", ("localhost", 9000)),
        ("broker", ("broker", 8085)),
    ],
)
def test_a_gcloud_host_port_option_without_host_or_port_gets_the_defaults(
    text: str, expected: tuple[str, int]
) -> None:
    """The defaults are those of gcloud."""
    assert host_and_port(text) == expected


@pytest.mark.parametrize("text", ["localhost:port", "localhost:65536", "localhost:-1"])
def test_the_gcloud_command_line_of_the_broker_refuses_an_invalid_host_port_option(
    text: str,
) -> None:
    """The error shows the allowed form."""
    with pytest.raises(click.UsageError, match="must be HOST:PORT"):
        host_and_port(text)


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`start` returns at once, and gcloud's directory is temporary."""
    monkeypatch.setattr("pullstream_emulator.cli.command.main", lambda *_, **__: None)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))


@pytest.mark.usefixtures("no_broker")
@pytest.mark.parametrize("directory", [(), ("--data-dir", "{tmp_path}/data")])
@pytest.mark.parametrize(
    ("host_port", "address"),
    [
        ((), "localhost:8085"),
        (("--host-port=0.0.0.0:8432",), "0.0.0.0:8432"),
        (("--host-port=[::1]:8432",), "[::1]:8432"),
    ],
)
def test_gcloud_env_init_prints_the_emulator_address_of_the_last_gcloud_start(
    tmp_path: Path, directory: tuple[str, ...], host_port: tuple[str, ...], address: str
) -> None:
    """A shell executes it: $(gcloud beta emulators pubsub env-init)."""
    where = [part.format(tmp_path=tmp_path) for part in directory]
    command = ["beta", "emulators", "pubsub"]
    for other in (("--host-port=other:1",), host_port):
        started_ = CliRunner().invoke(gcloud, [*command, "start", *other, *where])
        assert started_.exit_code == 0, started_.output
    ran = CliRunner().invoke(gcloud, [*command, "env-init", *where])
    assert (ran.exit_code, ran.output) == (0, f"export PUBSUB_EMULATOR_HOST={address}\n")


def test_gcloud_env_init_exits_with_an_error_if_gcloud_start_was_never_run(tmp_path: Path) -> None:
    """The error names the file and the remedy."""
    command = ["beta", "emulators", "pubsub", "env-init", f"--data-dir={tmp_path}"]
    ran = CliRunner().invoke(gcloud, command)
    assert ran.exit_code == 1
    assert f"{tmp_path / 'env.yaml'}'); start it first" in ran.output


@pytest.mark.usefixtures("no_broker")
def test_gcloud_start_starts_the_broker_if_no_directory_is_writable(
    tmp_path: Path,
) -> None:
    """Only `env-init` needs the file."""
    (tmp_path / "emulators").touch()
    assert CliRunner().invoke(gcloud, ["emulators", "pubsub", "start"]).exit_code == 0


@pytest.mark.usefixtures("no_broker")
def test_gcloud_start_starts_the_broker_without_a_home_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The case occurs in a container that runs with any user id."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CLOUDSDK_CONFIG")
    monkeypatch.setattr(Path, "home", no_home)
    assert CliRunner().invoke(gcloud, ["emulators", "pubsub", "start"]).exit_code == 0
    ran = CliRunner().invoke(gcloud, ["emulators", "pubsub", "env-init"])
    assert ran.exit_code == 1
    assert "set CLOUDSDK_CONFIG" in ran.output


def test_the_gcloud_command_line_of_the_broker_refuses_commands_but_start_and_env_init() -> None:
    """The error names the two commands."""
    ran = CliRunner().invoke(gcloud, ["pubsub", "topics", "list"])
    assert ran.exit_code == 2
    assert "gcloud beta emulators pubsub start" in ran.output
    assert "'pubsub topics list'" in ran.output


def test_the_gcloud_command_line_of_the_broker_refuses_an_unknown_option() -> None:
    """The option would have an effect in gcloud."""
    ran = run_command([*PROGRAM, "beta", "emulators", "pubsub", "start", "--impersonate=x"])
    assert ran.returncode == 2
    assert "--impersonate" in ran.stderr
