"""Programs of users, run in separate processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.subscriber.streaming.fakes import TIMEOUT

ROOT = Path(__file__).resolve().parents[2]
# Warnings are errors, except for google-api-core's about a Python near its end of life. The module
# is named because an option that is also in PYTHONWARNINGS counts only there, before "error".
STRICT = (
    *("-W", "error"),
    *("-W", "ignore::FutureWarning:google.api_core._python_version_support"),
)


def start_program(text: str, endpoint: str) -> subprocess.Popen[str]:
    """Start a program, which finds the broker's endpoint in `sys.argv[1]`."""
    return subprocess.Popen(
        [sys.executable, *STRICT, "-c", text, endpoint],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_of(program: subprocess.Popen[str]) -> tuple[str, str, int]:
    """Wait for the end of a program, and return its output, its errors and its exit code."""
    out, err = program.communicate(timeout=TIMEOUT)
    return out, err, program.returncode


def interrupted(program: subprocess.Popen[str]) -> tuple[str, str, int]:
    """Send Ctrl-C to a program that has printed "ready", and return the same."""
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    return end_of(program)
