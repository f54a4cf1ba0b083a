"""Runs the example of docs/push.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.completed import run_command
from tests.subscriber.program import STRICT

ROOT = Path(__file__).parents[3]


def test_the_example_program_of_the_push_guide_receives_pushed_messages() -> None:
    """The code runs as printed, without additions."""
    page = (ROOT / "docs" / "push.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ran = run_command([sys.executable, *STRICT, "-c", example], cwd=ROOT)
    assert (ran.returncode, ran.stdout) == (0, "b'one order'\n"), ran.stderr
