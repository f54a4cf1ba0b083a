"""The collection of the suite by pytest."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.completed import run_command

ROOT = Path(__file__).resolve().parent.parent


def test_files_of_a_folder_have_its_fixtures_although_another_file_is_named_in_between() -> None:
    """Pytest 9.1 has lost them: "fixture not found"."""
    files = [
        *("tests/subscriber/fetch/test_client.py", "tests/test_identifiers.py"),
        "tests/subscriber/fetch/test_messages.py",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--setup-plan", *files]
    result = run_command(command, cwd=ROOT)
    assert result.returncode == 0, result.stdout
