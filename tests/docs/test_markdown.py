"""The Markdown files of the repository can be read and compared line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.completed import run_command

ROOT = Path(__file__).parents[2]
MAX_COLUMNS = 120


def markdown_files() -> list[Path]:
    """Return the Markdown files of the repository, committed or not."""
    listed = run_command(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT
    ).stdout.split()
    if not listed:
        pytest.skip("the files are not in a git checkout")
    return [path for name in listed if (path := ROOT / name).exists()]


def test_lines_of_markdown_files_have_at_most_120_characters() -> None:
    """Exceptions are the rows of tables, and code, which may be the output of a program."""
    long = []
    for path in markdown_files():
        in_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            in_code ^= line.lstrip().startswith("```")
            if len(line) > MAX_COLUMNS and not in_code and not line.lstrip().startswith("|"):
                long.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} characters")
    assert not long
