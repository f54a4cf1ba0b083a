"""Resume tokens: encoding and decoding, and refusal of any other text."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.logs import resume_token
from pullstream_protocol.errors import InvalidArgument

PLACES = st.dictionaries(
    st.text(max_size=20),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1)),
    max_size=5,
)


@given(PLACES)
def test_positions_in_a_resume_token_survive_encoding_and_decoding(
    positions: dict[str, tuple[int, int]],
) -> None:
    entries = (resume_token.entry(name, *position) for name, position in positions.items())
    token = resume_token.encode(entries)
    assert resume_token.decode(token) == positions
    # It must fit into a header and into a line of an event stream.
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token


def test_a_resume_token_is_json_in_base64() -> None:
    """The encoder encodes its parts separately."""
    entries = [resume_token.entry(name, 7, 1) for name in ("a", "ab", "abc", "ä")]
    text = base64.urlsafe_b64decode(resume_token.encode(entries))
    assert json.loads(text) == {"a": [7, 1], "ab": [7, 1], "abc": [7, 1], "ä": [7, 1]}


def test_an_empty_resume_token_is_decoded_to_an_empty_set_of_positions() -> None:
    assert resume_token.decode("") == {}


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"a":1}', '{"a":[1]}', '{"a":[1,2,3]}', '{"a":[-1,2]}', '{"a":[true,1]}',
             '{"a":[1.5,2]}', "[" * 100_000, '{"a":"b"}', '{"a":[9223372036854775808,1]}',
             '{"a":[1,18446744073709551616]}']
)  # fmt: skip
def test_decoding_a_malformed_resume_token_raises_invalid_argument(text: str) -> None:
    with pytest.raises(InvalidArgument, match="resume_token"):
        resume_token.decode(base64.urlsafe_b64encode(text.encode()).decode())


@given(st.text(min_size=1, max_size=30))
def test_any_text_as_a_watch_resume_token_is_decoded_or_refused_as_invalid_argument(
    text: str,
) -> None:
    try:
        positions = resume_token.decode(text)
    except InvalidArgument:
        return
    assert isinstance(positions, dict)


def test_a_watch_resume_token_above_the_maximum_length_is_refused_without_decoding() -> None:
    with pytest.raises(InvalidArgument):
        resume_token.decode("A" * (resume_token.MAX_BYTES + 1))
