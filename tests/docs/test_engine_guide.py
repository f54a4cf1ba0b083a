"""Tests of docs/engine.md: its example runs, the modules that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def test_its_example_runs() -> None:
    """The example runs unchanged, and its assertions hold."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    exec(compile(example, "docs/engine.md", "exec"), {})


@pytest.mark.parametrize("module", sorted(set(re.findall(r"`(\w+\.py)`", GUIDE))))
def test_a_module_that_it_names_exists(module: str) -> None:
    """The modules are in the engine."""
    assert (ROOT / "emulator" / "pullstream_emulator" / "engine" / module).is_file()
