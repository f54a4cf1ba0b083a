"""`pullstream emulator`: in a process of its own, or in this one for what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from click.testing import CliRunner

from emulator.cli import command
from tests.emulator.wire import PATIENCE

COMMAND = [sys.executable, "-m", "emulator", "--host", "127.0.0.1", "--port", "0"]


def running(
    *arguments: str, **environment: str
) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """A broker that has printed its line, and where it listens."""
    return started([*COMMAND, *arguments], environment)


@contextmanager
def started(
    program: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The same of another command that runs one."""
    process = subprocess.Popen(
        program,
        env={**os.environ, **environment},
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
    """When it is told to; it has nothing more to say."""
    process.terminate()
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def error_of(*arguments: str, **environment: str) -> str:
    """The one line that says why it does not start; whoever started it gets 1."""
    code, text = refusal(*arguments, **environment)
    assert code == 1
    assert text.startswith("Error: ")
    assert text.count("\n") == 1
    return text


def refusal(*arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code of a broker that does not start, and what it says."""
    options = ["--host", "127.0.0.1", "--port", "0", *arguments]
    ran = CliRunner().invoke(command, options, env=environment)
    assert ran.stdout == ""
    return ran.exit_code, ran.stderr
