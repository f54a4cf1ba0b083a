"""The command line of Google's emulator runs the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import click
import pytest
from click.testing import CliRunner

from pullstream_emulator.gcloud import gcloud, host_and_port
from tests.emulator.program import started
from tests.emulator.wire import PATIENCE

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
def test_tools_start_the_broker(arguments: list[str]) -> None:
    """They wait for the line "Server started, listening on PORT"."""
    with (
        started([*PROGRAM, *arguments], {}) as (_, endpoint),
        urlopen(f"http://{endpoint}/", timeout=PATIENCE) as answer,
    ):
        assert answer.read() == b"Ok\n"


def test_the_data_directory_is_used(tmp_path: Path) -> None:
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
def test_an_address_has_defaults(text: str, expected: tuple[str, int]) -> None:
    """As gcloud's."""
    assert host_and_port(text) == expected


@pytest.mark.parametrize("text", ["localhost:port", "localhost:65536", "localhost:-1"])
def test_a_bad_address_is_refused(text: str) -> None:
    """The error shows the allowed form."""
    with pytest.raises(click.UsageError, match="must be HOST:PORT"):
        host_and_port(text)


def test_other_commands_are_refused() -> None:
    """The error names the one command."""
    ran = CliRunner().invoke(gcloud, ["pubsub", "topics", "list"])
    assert ran.exit_code == 2
    assert "gcloud beta emulators pubsub start" in ran.output
    assert "'pubsub topics list'" in ran.output


def test_an_unknown_option_is_refused() -> None:
    """It would have an effect in gcloud."""
    ran = subprocess.run(
        [*PROGRAM, "beta", "emulators", "pubsub", "start", "--impersonate=x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "--impersonate" in ran.stderr
