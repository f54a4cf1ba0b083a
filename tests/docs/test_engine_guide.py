"""Tests of docs/engine.md: its example runs, and the methods that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def test_the_example_program_of_the_engine_guide_runs_without_an_error() -> None:
    """The example runs unchanged, and its assertions hold."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    exec(compile(example, "docs/engine.md", "exec"), {})


ENGINE = ROOT / "emulator" / "pullstream_emulator" / "engine"
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in ENGINE.rglob("*.py"))


@pytest.mark.parametrize(
    ("owner", "method"), sorted(set(re.findall(r"`([A-Z]\w+)\.(\w+)`", GUIDE)))
)
def test_every_method_named_in_the_engine_guide_exists_in_the_engine(
    owner: str, method: str
) -> None:
    """A renamed method must be renamed in the guide, too."""
    (body,) = re.findall(rf"^class {owner}\b.*?(?=^\S|\Z)", SOURCES, re.MULTILINE | re.DOTALL)
    assert re.search(rf"\b{method}\b", body)
