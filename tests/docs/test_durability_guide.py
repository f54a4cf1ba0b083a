"""Tests of docs/durability.md: its program runs, its table is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine.settings.durability import LABEL, Durability

GUIDE = (Path(__file__).parents[2] / "docs" / "durability.md").read_text(encoding="utf-8")


def test_what_its_program_makes_is_there_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the requested durability class."""
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    exec(program, {})
    with Emulator(data_dir="broker-data") as emulator:
        topic = emulator.inspect(lambda engine: engine.get_topic("projects/shop/topics/orders"))
    assert topic.labels[LABEL] == "fsync"


def test_every_class_stands_in_the_table() -> None:
    """The names are those of the option and the label."""
    named = re.findall(r"^\| `(\w+)`", GUIDE, re.MULTILINE)
    assert named == [each.value for each in Durability]
