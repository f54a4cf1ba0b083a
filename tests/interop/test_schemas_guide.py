"""Test of docs/schemas.md: the example prints the documented output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "schemas.md"
REVISION = re.compile(r"(?<=revision_id=)[0-9a-f]{8}")


def test_the_example_of_the_schemas_guide_prints_its_documented_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example runs unchanged. Only the id of the revision differs each time."""
    # The example sets the variable, so monkeypatch restores it afterwards.
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "")
    text = GUIDE.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^It prints\n\n```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(code, str(GUIDE), "exec"), {})
    printed = capsys.readouterr().out
    assert REVISION.sub("ID", printed) == REVISION.sub("ID", shown)
