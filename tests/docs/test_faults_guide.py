"""Tests of docs/faults.md: its tables are complete, its commands are valid."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from pullstream_emulator.faults import Faults
from pullstream_emulator.faults.request import KINDS, FaultRequest

GUIDE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")


def test_the_faults_guide_lists_every_method_that_injects_a_fault() -> None:
    """The table has each method that sets a fault, with valid arguments."""
    calls = re.findall(r"^\| `(\w+\(.*?\))` \|", GUIDE, re.MULTILINE)
    documented = {call.partition("(")[0] for call in calls}
    setting = {
        name
        for name, method in vars(Faults).items()
        if inspect.isfunction(method) and "-> Fault" in f"-> {method.__annotations__.get('return')}"
    }
    assert documented == {name for name in setting if not name.startswith("_")}


def test_the_faults_guide_lists_every_fault_kind_of_the_faults_command() -> None:
    """Kinds have their names on the command line."""
    rows = GUIDE.partition("\n| kind |")[2].splitlines()[2:]
    cells = [row.split("|")[1] for row in rows if row.startswith("|")]
    assert {kind for cell in cells for kind in re.findall(r"`([a-z-]+)`", cell)} == set(KINDS)


@pytest.mark.parametrize("text", re.findall(r"(?:--fault|faults add) (\S+:\S+)", GUIDE))
def test_the_shell_commands_of_the_faults_guide_have_valid_arguments(text: str) -> None:
    """Each command sets a fault."""
    assert FaultRequest.from_text(text).set(Faults()).number == 1
