"""Messages in Avro's binary encoding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.schemas.definition import Mismatch
from pullstream_protocol.messages import schema_pb2 as pb
from tests.emulator.schemas.avro_examples import (
    CHAIN,
    definition,
    in_binary,
    linked,
    messages,
    takes,
)


@given(message=messages(), data=st.data())
def test_an_avro_message_with_missing_or_extra_bytes_is_refused(
    message: tuple[Any, Any], data: st.DataObject
) -> None:
    """One byte more or less is refused."""
    schema, value = message
    binary = in_binary(schema, value)
    with pytest.raises(Mismatch, match="Too much data to parse for schema"):
        definition(schema).check(binary + b"\0", pb.BINARY)
    if binary:
        cut = data.draw(st.integers(0, len(binary) - 1))
        assert not takes(schema, binary[:cut], pb.BINARY)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("boolean", b"\x02"),
        ("int", b"\x80\x80\x80\x80\x20"),
        ("long", b"\xff" * 10 + b"\x01"),
        ("string", b"\x01"),
        ("string", b"\x02\xff"),
        (["null", "int"], b"\x04"),
        (["null", "int"], b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        # A block of one int with a declared size of two bytes.
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00"),
    ],
)
def test_a_message_with_invalid_avro_binary_data_is_refused(schema: Any, data: bytes) -> None:
    """No Avro library would write these bytes."""
    assert not takes(schema, data, pb.BINARY)


@pytest.mark.parametrize("value", [0, -1, 63, 64, -65, 2**31, 2**63 - 1, -(2**63)])
def test_integers_of_every_length_are_accepted_in_a_binary_avro_message(value: int) -> None:
    """A byte has seven bits of a number, and a bit that says whether another byte follows."""
    assert takes("long", in_binary("long", value), pb.BINARY)


@pytest.mark.parametrize(("name", "bits"), [("int", 32), ("long", 64)])
def test_avro_int_values_beyond_32_bits_and_long_values_beyond_64_bits_are_refused(
    name: str, bits: int
) -> None:
    """Both encodings have the same limits."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value, fits in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        assert takes(name, json.dumps(value).encode()) is fits
    assert takes("int", in_binary("long", low), pb.BINARY) is (bits == 32)
    assert takes("int", in_binary("long", high), pb.BINARY) is (bits == 32)
    assert takes(name, in_binary("long", low), pb.BINARY)
    assert not takes("int", in_binary("long", 2**31), pb.BINARY)
    assert not takes("int", in_binary("long", -(2**31) - 1), pb.BINARY)


def test_an_avro_array_block_that_states_its_size_in_bytes_is_accepted() -> None:
    """The count of the block is negative then."""
    assert takes({"type": "array", "items": "int"}, b"\x03\x04\x02\x02\x00", pb.BINARY)


def test_an_avro_message_with_a_huge_array_of_nulls_is_checked_in_constant_time() -> None:
    """Items without bytes are not counted one by one."""
    assert takes({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01\x00", pb.BINARY)


@pytest.mark.parametrize(("depth", "fits"), [(0, True), (50, True), (1_000_000, False)])
def test_a_too_deeply_nested_avro_message_is_refused(depth: int, fits: bool) -> None:
    """A parser written in C would end the process."""
    assert takes(CHAIN, linked(depth), pb.BINARY) is fits


@pytest.mark.parametrize("count", [0, 1])
def test_an_avro_message_with_too_many_values_of_zero_bytes_is_refused(count: int) -> None:
    """Each record has two of the next kind, so the innermost kind occurs a million times."""
    schema: Any = {"type": "record", "name": "r20", "fields": []}
    for level in range(19, -1, -1):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"r{level + 1}"}]
        schema = {"type": "record", "name": f"r{level}", "fields": fields}
    compiled = definition({"type": "array", "items": schema})
    data = b"\2" * count + b"\0"
    if count:
        with pytest.raises(Mismatch, match="The message has too many values"):
            compiled.check(data, pb.BINARY)
    else:
        compiled.check(data, pb.BINARY)
