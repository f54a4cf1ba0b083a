"""Lines from a stream as they come."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.cli.publish import line_groups


class Chunks:
    """A stream that gives these pieces, one per read."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = list(pieces)

    def read1(self, size: int, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize(
    ("pieces", "groups"),
    [
        ([], []),
        ([b"a\nb\n"], [[b"a", b"b"]]),
        ([b"a\r\nb"], [[b"a"], [b"b"]]),
        ([b"a\n", b"b\n"], [[b"a"], [b"b"]]),
        ([b"lo", b"ng", b" one\nnext\nun", b"done"], [[b"long one", b"next"], [b"undone"]]),
        ([b"a\n\nb\n"], [[b"a", b"", b"b"]]),
    ],
)
def test_each_line_of_publish_input_is_available_as_soon_as_its_end_was_read(
    pieces: list[bytes], groups: list[list[bytes]]
) -> None:
    """The lines that one read completes are one group, and the last line needs no end."""
    assert list(line_groups(Chunks(pieces))) == groups


@given(
    text=st.binary(max_size=200).map(lambda data: data.replace(b"\r", b"\n")),
    cuts=st.lists(st.integers(0, 200)),
)
def test_the_lines_of_publish_input_do_not_depend_on_the_sizes_of_the_chunks_read(
    text: bytes, cuts: list[int]
) -> None:
    """The lines equal the split of the whole text."""
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    lines = [line for group in line_groups(Chunks([p for p in pieces if p])) for line in group]
    expected = text.split(b"\n")
    assert lines == (expected[:-1] if expected[-1] == b"" else expected)


def test_the_lines_of_publish_input_can_be_read_from_a_file_object() -> None:
    """Everything else from which Python reads bytes works as well."""
    assert list(line_groups(io.BytesIO(b"a\nb\n"))) == [[b"a", b"b"]]
