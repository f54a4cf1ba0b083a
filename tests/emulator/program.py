"""Runs `pullstream emulator` in a separate process, or in this one to test refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from click.testing import CliRunner

from pullstream_emulator.cli import command
from tests.emulator.wire import TIMEOUT

COMMAND = [sys.executable, "-m", "pullstream_emulator", "--host", "127.0.0.1", "--port", "0"]
# Most tests expect no log.
QUIET = {"PULLSTREAM_LOG_LEVEL": "warning"}


def running(
    *arguments: str, **environment: str
) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Run a broker that has printed its line, and yield its process and endpoint."""
    return started([*COMMAND, *arguments], environment)


@contextmanager
def started(
    program: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Do the same for another command line that runs a broker."""
    process = subprocess.Popen(
        program,
        env={**os.environ, **QUIET, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        start, _, port = process.stdout.readline().rstrip().rpartition(" ")
        assert start == "Server started, listening on", process.communicate()
        yield process, f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def ends_well(process: subprocess.Popen[str]) -> None:
    """Stop the process, and check that it succeeds without further output."""
    process.terminate()
    assert process.communicate(timeout=TIMEOUT) == ("", "")
    assert process.returncode == 0


def error_of(*arguments: str, exit_code: int = 1, **environment: str) -> str:
    """Return the one line that explains the failed start, and check the exit code."""
    code, text = refusal(*arguments, **environment)
    assert code == exit_code
    assert text.startswith("Error: ")
    assert text.count("\n") == 1
    return text


def refusal(*arguments: str, **environment: str) -> tuple[int, str]:
    """Return the exit code and the output of a broker that does not start."""
    options = ["--host", "127.0.0.1", "--port", "0", *arguments]
    ran = CliRunner().invoke(command, options, env=environment)
    assert ran.stdout == ""
    return ran.exit_code, ran.stderr
