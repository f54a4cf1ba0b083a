"""Tests of docs/follow.md: its programs run, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from pullstream.follow import CloseReason, FollowState
from pullstream.logs.follow.events import FellBehindCause
from pullstream_emulator import Emulator

GUIDE = (Path(__file__).parents[2] / "docs" / "follow.md").read_text(encoding="utf-8")


def test_the_programs_of_the_follow_guide_run_without_an_error(
    pubsub_emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each program uses the results of the earlier ones."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for program in programs:
        exec(program, names)
    assert len(programs) == 4
    printed = capsys.readouterr().out
    assert "2 b'a pen' {}" in printed
    assert "caught up at 2" in printed
    assert "over: stopped None" in printed
    names["with_retries"](names["Record"](pubsub_emulator.messages(names["TOPIC"])[0], "topic"))


def test_the_follow_guide_lists_every_follower_state_close_reason_and_fell_behind_cause() -> None:
    """The names are those in the code."""
    assert all(f"**{state.name}**" in GUIDE or state.name in GUIDE for state in FollowState)
    named = re.findall(r"^\| `([A-Z_]+)`", GUIDE, re.MULTILINE)
    assert named == [reason.name for reason in CloseReason]
    assert all(f'`"{cause}"`' in GUIDE for cause in get_args(FellBehindCause))
