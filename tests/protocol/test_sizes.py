"""Sizes in bytes."""

from __future__ import annotations

import pytest

from pullstream_protocol.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("100", 100), (" 512k ", 2**19), ("64MB", 2**26), ("1 GiB", 2**30), ("2T", 2**41)],
)
def test_the_function_parse_size_accepts_units_that_are_powers_of_1024(
    text: str, size: int
) -> None:
    """Units may be in upper or lower case."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5g", "64x", "ten", "k"])
def test_the_function_parse_size_refuses_a_text_that_is_not_a_number_of_bytes(text: str) -> None:
    """The error shows the allowed forms."""
    with pytest.raises(ValueError, match="is not a number of bytes, such as 1048576, 512k"):
        parse_size(text)
