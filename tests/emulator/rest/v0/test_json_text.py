"""The data of records stays text, and everything else is parsed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pullstream_emulator.rest.json_text import Json, to_array, to_object
from pullstream_emulator.rest.v0.json_text import loads, loads_records

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
def test_only_the_data_of_records_stays_text(data: st.DataObject) -> None:
    """Everything else is parsed as JSON, wherever there is space."""
    values = data.draw(st.lists(VALUE, max_size=3))
    content: dict[str, Any] = {
        "node": data.draw(VALUE),
        "records": [{"tag": data.draw(VALUE), "data": value} for value in values],
        "data": {"data": 1},
    }
    text = spaced(data.draw, content)
    assert loads(text.encode()) == content
    read = loads_records(text.encode())
    kept = [record.pop("data") for record in read["records"]]
    assert kept == [json.dumps(value, separators=(",", ":")) for value in values]
    for record in content["records"]:
        del record["data"]
    assert read == content


@given(VALUE)
@settings(max_examples=40)
def test_anything_may_stand_where_records_should(value: Any) -> None:
    """Other code refuses it."""
    read = loads_records(json.dumps({"records": value}).encode())["records"]
    if isinstance(value, list):
        assert [r for r in read if not isinstance(r, dict)] == [
            r for r in value if not isinstance(r, dict)
        ]
    else:
        assert read == value


def test_what_is_written_is_one_line() -> None:
    """Texts are inserted unchanged."""
    content = {"a": 'é"\n', "b": to_array([Json("1.00"), Json("[ ]")]), "c": None}
    assert to_object(content) == '{"a":"é\\"\\n","b":[1.00,[ ]],"c":null}'
