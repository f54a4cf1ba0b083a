"""Avro schemas: valid definitions, valid messages, and compatible revisions."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol.messages import schema_pb2 as pb
from tests.emulator.schemas.avro_examples import (
    definition,
    in_binary,
    in_json,
    messages,
    schemas,
    takes,
)


@given(message=messages())
def test_schema_checks_accept_messages_written_by_an_avro_library(
    message: tuple[Any, Any],
) -> None:
    """The test covers both encodings. Another library writes the binary one."""
    schema, value = message
    definition(schema).check(in_binary(schema, value), pb.BINARY)
    definition(schema).check(in_json(value), pb.JSON)


@given(schema=schemas(itertools.count()), data=st.binary(), encoding=st.sampled_from([1, 2]))
def test_any_message_bytes_are_accepted_or_refused_by_an_avro_schema_without_a_crash(
    schema: Any, data: bytes, encoding: pb.Encoding
) -> None:
    """Invalid bytes are refused without another exception."""
    assert takes(schema[0], data, encoding) in (True, False)
