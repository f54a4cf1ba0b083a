"""README.md: its first program runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_first_program_of_the_readme_runs_without_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The program prints the published message and ends when the message is acknowledged."""
    text = README.read_text(encoding="utf-8")
    program = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    exec(compile(program, README.name, "exec"), {})
    assert capsys.readouterr().out == "b'two books'\n"
