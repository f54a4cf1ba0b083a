"""The lint of identifiers finds forbidden words, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.identifiers import Finding, forbidden_word, in_file, in_python, main


@pytest.mark.parametrize(
    ("identifier", "word"),
    [
        ("lane", "lane"), ("Lane", "lane"), ("_lanes", "lane"), ("key_lane", "lane"),
        ("ALL_LANES", "lane"), ("KeyLane", "lane"), ("laneOf", "lane"), ("HTTPLane", "lane"),
        ("_out_of_turn", "out_of_turn"), ("OutOfTurn", "out_of_turn"),
        ("HEAD_START", "head_start"), ("look_again_at", "look_again"),
        ("test_a_fate_is_sealed", "fate"), ("PATIENCE", "patience"), ("hurry", "hurry"),
    ],
)  # fmt: skip
def test_the_identifier_lint_finds_forbidden_words_in_identifiers_of_every_naming_style(
    identifier: str, word: str
) -> None:
    assert forbidden_word(identifier) == word


@pytest.mark.parametrize(
    "identifier",
    [
        "plane",
        "sulfate",
        "fatetown",
        "look",
        "again",
        "start_of_head",
        "out_of",
        "turn",
    ],
)
def test_the_identifier_lint_allows_identifiers_without_forbidden_words(identifier: str) -> None:
    assert forbidden_word(identifier) is None


def test_the_identifier_lint_ignores_comments_and_strings() -> None:
    assert list(in_python('# fate\n"""hurry"""\nx = "lane"\n')) == []


def test_the_identifier_lint_reports_each_use_of_a_forbidden_word_with_its_line() -> None:
    code = "def f(lane: int) -> None:\n    a.patience = lane\n"
    assert list(in_python(code)) == [
        Finding(1, "lane", "lane"),
        Finding(2, "patience", "patience"),
        Finding(2, "lane", "lane"),
    ]


def test_the_identifier_lint_checks_code_examples_in_documentation(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A lane.\n\n```python\nlane = (\n```\n\n```sh\nlane\n```\n", encoding="utf-8")
    assert list(in_file(page)) == [Finding(4, "lane", "lane")]


def test_the_identifier_lint_checks_the_names_of_modules(tmp_path: Path) -> None:
    module = tmp_path / "head_start.py"
    module.write_text("", encoding="utf-8")
    assert list(in_file(module)) == [Finding(1, "head_start.py", "head_start")]


def test_the_identifier_lint_program_exits_with_an_error_if_it_finds_a_forbidden_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("timeout = 1\n", encoding="utf-8")
    bad.write_text("patience = 1\n", encoding="utf-8")
    assert main([str(good)]) == 0
    assert main([str(good), str(bad)]) == 1
    assert capsys.readouterr().out == f"{bad}:1: patience: instead of 'patience': timeout\n"
