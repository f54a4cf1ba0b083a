"""docs/tutorial.md works as printed: its commands, its program and its tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.completed import run_command
from tests.emulator.program import running
from tests.subscriber.streaming.fakes import eventually

TEXT = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ pullstream") and line != "$ pullstream emulator"
]


def wait_until_nothing_waits(environment: dict[str, str]) -> None:
    """Wait until the second order is in the dead-letter topic."""
    program = [sys.executable, "-m", "pullstream", "subscriptions", "describe", "billing", "--json"]

    def is_empty() -> bool:
        shown = subprocess.run(program, env=environment, check=True, capture_output=True)
        backlog: int = json.loads(shown.stdout)["backlog"]
        return backlog == 0

    eventually(is_empty)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert set(FILES) == {"billing.py", "test_billing.py"}
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def test_the_example_tests_of_the_tutorial_pass(folder: Path) -> None:
    """The number of tests is the one that the tutorial prints."""
    ran = run_command([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder)
    assert ran.stdout.splitlines()[-1].startswith("3 passed"), ran.stdout


def test_the_commands_and_the_program_of_the_tutorial_run_without_an_error(folder: Path) -> None:
    """The program bills the first order, and Ctrl-C ends it without a traceback.

    The second order fails five times, and its traceback is printed once.
    """
    with running() as (_, endpoint):
        environment = {
            **os.environ,
            "PUBSUB_EMULATOR_HOST": endpoint,
            "PUBSUB_PROJECT_ID": "shop",
            "PYTHONUNBUFFERED": "1",
        }
        assert len(COMMANDS) == 6
        for command in COMMANDS:
            _, *arguments = shlex.split(command)
            program = [sys.executable, "-m", "pullstream", *arguments]
            subprocess.run(program, env=environment, check=True, capture_output=True)
        consumer = subprocess.Popen(
            [sys.executable, "billing.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "billed order 1\n"
            wait_until_nothing_waits(environment)
            consumer.send_signal(signal.SIGINT)
            _, printed = consumer.communicate(timeout=30)
        finally:
            consumer.kill()
            consumer.wait()
    assert consumer.returncode == 0
    assert printed.count("Traceback") == 1
    assert "no price for unknown (with the traceback above, 4 times" in printed
