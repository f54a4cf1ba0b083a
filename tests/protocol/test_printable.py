"""Texts of strangers in one line of a log or on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol.printable import printable


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("projects/p/topics/orders", "projects/p/topics/orders"),
        ("Bücher, 本, 🙂", "Bücher, 本, 🙂"),
        ("a\nERROR forged", r"a\nERROR forged"),
        ("\r\t\x00\x1b[31mred\x7f\x9b", r"\r\t\x00\x1b[31mred\x7f\x9b"),
        ("a\u2028b\u2029c\u202ed\u2066", r"a\u2028b\u2029c\u202ed\u2066"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_the_function_printable_escapes_control_characters(text: str, line: str) -> None:
    assert printable(text) == line


@given(st.text(st.characters()))
def test_the_function_printable_turns_any_text_into_one_line_that_can_be_encoded(text: str) -> None:
    line = printable(text)
    assert len(line.splitlines()) <= 1
    line.encode()
    assert printable(line) == line


@pytest.mark.parametrize(
    ("limit", "line"), [(10, "aaaaaaaaaa"), (9, "aaaaaa..."), (None, "a" * 10)]
)
def test_the_function_printable_shortens_a_long_text(limit: int | None, line: str) -> None:
    assert printable("a" * 10, limit) == line


def test_the_function_printable_may_keep_line_breaks_and_tabs() -> None:
    assert printable("a\n\tb\r\x1b", keep_lines=True) == "a\n\tb" + r"\r\x1b"
