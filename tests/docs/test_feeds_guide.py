"""Tests of docs/feeds.md: its program prints the documented output, its tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from pullstream.feeds import Frame, GapReason
from pullstream_emulator import Emulator
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.subscriber.command_line import pullstream
from tests.subscriber.streaming.fakes import eventually

GUIDE = (Path(__file__).parents[2] / "docs" / "feeds.md").read_text(encoding="utf-8")

_STEP = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def first_cells(head: str) -> set[str]:
    """Return the names in backquotes in the first column of the table with this head."""
    _, _, table = GUIDE.partition(f"{head}\n")
    rows = table.partition("\n\n")[0].splitlines()[1:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_program_of_the_feeds_guide_prints_its_documented_output(
    pubsub_emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output of each step is checked. A watch may print its part later."""
    steps = _STEP.findall(GUIDE)
    assert len(steps) == GUIDE.count("```python")
    names: dict[str, Any] = {}
    printed = ""

    def has_printed(text: str) -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return printed == text

    try:
        for program, text in steps:
            printed = ""
            exec(program.replace("localhost:8085", pubsub_emulator.endpoint), names)
            eventually(lambda text=text: has_printed(text))  # type: ignore[misc]
    finally:
        names["client"].close()


def test_the_shell_commands_of_the_feeds_guide_run_without_an_error(
    pubsub_emulator: Emulator,
) -> None:
    """The commands run one after the other."""
    (block,) = re.findall(r"^```console\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    results = {}
    for line in block.splitlines():
        command = shlex.split(line.removeprefix("$ pullstream "))
        extra = ("--max-messages", "4") if command[0] == "watch" else ()
        results[command[0], command[1]] = result = pullstream(*command, *extra)
        assert result.code == 0, result.stderr
    assert results["feeds", "read"].lines == ["world"]
    assert sorted(results["watch", "news"].lines) == ["again", "again", "hello", "world"]


def test_the_feeds_guide_lists_every_kind_of_watch_frame() -> None:
    """The table has no other frame."""
    assert first_cells("| frame | |") == {kind.__name__ for kind in Frame.__args__}


def test_the_feeds_guide_lists_every_reason_of_a_gap() -> None:
    """The table has the reasons that a broker sends."""
    assert first_cells("| reason | the messages |") == {reason.name for reason in GapReason} - {
        GapReason.UNKNOWN.name
    }


def test_the_feeds_guide_lists_every_setting_of_a_feed() -> None:
    """The names are those that `config` accepts."""
    assert first_cells("| setting | default | |") == {
        field.name for field in feeds.FeedConfig.DESCRIPTOR.fields
    }
