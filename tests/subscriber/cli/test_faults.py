"""`pullstream faults`: faults of a running broker."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from tests.subscriber.command_line import pullstream


def test_the_faults_command_adds_lists_and_clears_faults_of_a_broker(emulator: Emulator) -> None:
    """`clear` takes the ids that `add` prints, or removes all faults."""
    ids = [pullstream("faults", "add", f"drop:Pull:times={n}").lines[0] for n in (1, 2, 3)]
    assert [fault.scope.times for fault in emulator.faults.active] == [1, 2, 3]
    listed = pullstream("faults", "list").objects
    assert [fault["times"] for fault in listed] == [1, 2, 3]
    assert pullstream("faults", "clear", ids[0], ids[2]).code == 0
    assert [fault.scope.times for fault in emulator.faults.active] == [2]
    assert pullstream("faults", "clear").code == 0
    assert emulator.faults.active == ()
    assert pullstream("faults", "list").lines == []


@pytest.mark.parametrize("arguments", [["add", "explode:Pull"], ["add"], ["clear", "first"]])
@pytest.mark.usefixtures("emulator")
def test_the_faults_command_reports_an_invalid_fault_as_a_usage_error(arguments: list[str]) -> None:
    """The broker decides which faults are valid."""
    assert pullstream("faults", *arguments).code == 2
