"""Test of docs/routers.md: its program prints the documented output, its limits are correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pullstream_emulator.logs.forwarder import MESSAGES_PER_TURN, RETRY
from pullstream_emulator.logs.record_copies import HOPS, MAX_HOPS
from pullstream_emulator.logs.routers import MAX_ROUTERS

GUIDE = (Path(__file__).parents[2] / "docs" / "routers.md").read_text(encoding="utf-8")


def test_the_program_of_the_routers_guide_prints_its_documented_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    exec(program, {})
    assert f"It prints `{capsys.readouterr().out.strip()}`" in GUIDE


def test_the_limits_in_the_routers_guide_equal_the_limits_of_the_broker() -> None:
    for claim in (
        f"up to {MESSAGES_PER_TURN:,} copies",
        f"every {RETRY * 1000:.0f} ms",
        f"more than {MAX_ROUTERS:,} routers",
        f"`{HOPS}`",
    ):
        assert claim in GUIDE
    assert MAX_HOPS == 8
