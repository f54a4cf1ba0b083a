"""Tests of docs/testing.md: its tests pass, its file loads, its tables are complete."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.history import History, Kind
from tests.completed import run_command

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")

ORDERS = "projects/shop/topics/orders"
BILLING = "projects/shop/subscriptions/billing"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_example_tests_of_the_testing_guide_pass(tmp_path: Path) -> None:
    """Each block is a module of a user's test suite."""
    for number, block in enumerate(blocks("python")):
        (tmp_path / f"test_{number}.py").write_text(block, encoding="utf-8")
    fixtures = "pubsub_session_emulator, pubsub_shared_emulator"
    plugin = f"from pullstream_emulator.pytest_plugin import {fixtures}"
    (tmp_path / "conftest.py").write_text(plugin, encoding="utf-8")
    ran = run_command(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert f"{len(blocks('python'))} passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_broker_loads_the_configuration_file_of_the_testing_guide(tmp_path: Path) -> None:
    """The broker has everything in the file."""
    pytest.importorskip("yaml")
    (text,) = blocks("yaml")
    path = tmp_path / "pubsub.yaml"
    path.write_text(text, encoding="utf-8")
    with Emulator(config=path) as emulator:
        assert emulator.backlog(BILLING) == 1
        (message,) = emulator.messages(ORDERS)
        assert message.attributes["customer"] == "7"


def test_the_testing_guide_names_every_kind_of_broker_event() -> None:
    """The kinds have the names of the administration and of the history's queries."""
    (line,) = re.findall(r"^Kinds are (.*?)\. The", GUIDE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`([a-z-]+)`", line) == [kind.value for kind in Kind]
    queries = {name for name in vars(History) if name.endswith("s") and not name.startswith("_")}
    assert {name for name in queries if f"`{name}" not in GUIDE} == set()
