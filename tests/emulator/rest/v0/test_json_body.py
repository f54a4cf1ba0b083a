"""The data of records stays text, and everything else is parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pullstream_emulator.rest.http_request import to_json
from pullstream_emulator.rest.v0.json_body import compact, is_json, parse, read_body
from pullstream_emulator.rest.v0.writing import AppendBody
from pullstream_protocol.errors import InvalidArgument

SPACE = st.text(" \t\n\r", max_size=2)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def spaced(draw: Any, value: Any) -> str:
    """Generate a JSON text of a value, with space wherever it is allowed."""

    def space() -> str:
        return str(draw(SPACE))

    if isinstance(value, dict):
        inner = ",".join(
            f"{space()}{json.dumps(name)}{space()}:{spaced(draw, item)}"
            for name, item in value.items()
        )
        return f"{space()}{{{inner}{space()}}}{space()}"
    if isinstance(value, list):
        return f"{space()}[{','.join(spaced(draw, item) for item in value) or space()}]{space()}"
    return space() + json.dumps(value) + space()


@given(st.data())
@settings(max_examples=40)
def test_record_data_in_a_v0_append_body_are_kept_as_json_text_and_other_fields_are_parsed(
    data: st.DataObject,
) -> None:
    """Everything else is parsed as JSON, wherever there is space."""
    values = data.draw(st.lists(VALUE, min_size=1, max_size=3))
    content: dict[str, Any] = {
        "node": data.draw(st.none() | st.text()),
        "records": [{"tag": data.draw(st.none() | st.text()), "data": value} for value in values],
    }
    body = read_body(spaced(data.draw, content).encode(), AppendBody)
    kept = [compact(record.data, "data").decode() for record in body.records]
    assert kept == [json.dumps(value, separators=(",", ":")) for value in values]
    assert body.node == content["node"]
    assert [each.tag for each in body.records] == [each["tag"] for each in content["records"]]


@pytest.mark.parametrize(
    ("text", "is_pair"),
    [
        (r'"\ud83d\ude00"', True), (r'"\ud83d"', False), (r'"\uDE00"', False),
        (r'"\ude00\ud83d"', False), (r'"\ud83d\ud83d\ude00"', False),
        (r'"\ud83d\ude00\ude00"', False), (r'"\\ud83d"', True), (r'"\\\ud83d"', False),
        (r'"\ud83d\\ude00"', False), (r'"\\\ud83d\ude00"', True),
    ],
)  # fmt: skip
def test_lone_surrogates_are_kept_in_v0_record_data_and_refused_in_v0_record_tags(
    text: str, is_pair: bool
) -> None:
    """The data are text that JSON allows; a tag must be Unicode."""
    assert compact(parse(text.encode()), "data").decode() == text
    body = f'{{"records": [{{"data": 1, "tag": {text}}}]}}'.encode()
    if is_pair:
        assert read_body(body, AppendBody).records[0].tag == json.loads(text)
    else:
        with pytest.raises(InvalidArgument, match="Expected text in Unicode"):
            read_body(body, AppendBody)


@pytest.mark.parametrize("text", [rb'"\ud8zz"', rb'"\ud8', b'"\xff"', b'"\xffud800"', b'"\xfe"'])
def test_invalid_json_text_is_refused_as_data_of_a_v0_record(text: bytes) -> None:
    """Bytes and incomplete escapes stay errors beside half of a surrogate pair."""
    assert not is_json(text)
    assert not is_json(rb'["\ud800",' + text + b"]")


def test_json_answers_of_the_v0_api_are_written_in_one_line() -> None:
    """Texts are inserted unchanged."""
    content = {"a": 'é"\n', "b": [Raw("1.00"), Raw("[ ]")], "c": None}
    assert to_json(content) == '{"a":"é\\"\\n","b":[1.00,[ ]],"c":null}'
