"""Tests of docs/durability.md: its program runs, its table is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine.settings.durability import LABEL, Durability

GUIDE = (Path(__file__).parents[2] / "docs" / "durability.md").read_text(encoding="utf-8")


def test_the_program_of_the_durability_guide_creates_durable_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has the requested durability class."""
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    exec(program, {})
    with Emulator(data_dir="broker-data") as emulator:
        topic = emulator.inspect(lambda engine: engine.get_topic("projects/shop/topics/orders"))
    assert topic.labels[LABEL] == "fsync"


def test_the_durability_guide_lists_every_durability_class() -> None:
    """The names are those of the option and the label."""
    named = re.findall(r"^\| `(\w+)`", GUIDE, re.MULTILINE)
    assert named == [each.value for each in Durability]
