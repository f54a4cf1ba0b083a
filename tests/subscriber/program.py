"""Programs of users, run in separate processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
