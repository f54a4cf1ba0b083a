"""Runs the example of docs/push.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.emulator.wire import TIMEOUT
from tests.subscriber.program import STRICT

ROOT = Path(__file__).parents[3]


def test_the_example_of_the_push_guide_runs() -> None:
    """The code runs as printed, without additions."""
    page = (ROOT / "docs" / "push.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ran = subprocess.run(
        [sys.executable, *STRICT, "-c", example],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "b'one order'\n"), ran.stderr
