"""Revisions of a Protocol Buffers schema."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_emulator.schemas.avro import AvroDefinition
from pullstream_emulator.schemas.definition import Incompatible
from tests.emulator.schemas.protobuf_examples import proto2, proto3


@pytest.mark.parametrize(
    ("syntax", "before", "after"),
    [
        (proto3, "string a = 1;", "string a = 1;"),
        (proto3, "string a = 1;", "string a = 1; optional int32 b = 2;"),
        (proto3, "string a = 1; int32 b = 2;", "string a = 1;"),
        (proto3, "string a = 1; int32 b = 2;", "int32 b = 2; string a = 1;"),
        (proto3, "string a = 1;", "optional string a = 1;"),
        (proto2, "required string a = 1;", "required string a = 1; optional int32 b = 2;"),
        (proto3, "M m = 1;", "M m = 1; optional string a = 2;"),
        (proto3, "string a = 1;", "string a = 1; oneof c { string d = 2; int32 e = 3; }"),
    ],
)
def test_compatible_revisions_of_a_protobuf_schema_are_accepted(
    syntax: Any, before: str, after: str
) -> None:
    """Optional fields may be added and removed."""
    syntax(after).check_follows(syntax(before))


@pytest.mark.parametrize(
    ("syntax", "before", "after", "problem"),
    [
        (
            proto3,
            "int64 at = 3;",
            "string at = 3;",
            "at of type string is not compatible with at of type int64",
        ),
        (
            proto3,
            "string device = 4;",
            "int64 device_id = 4;",
            "device_id of type int64 is not compatible with device of type string",
        ),
        (proto3, "string a = 1;", "string b = 1;", "b = 1 is not compatible with a = 1"),
        (
            proto3,
            "string a = 1;",
            "repeated string a = 1;",
            "a of type repeated string is not compatible with a of type string",
        ),
        (
            proto3,
            "string a = 1;",
            "string a = 1; repeated string b = 2;",
            "b of type repeated string is missing in M",
        ),
        (
            proto3,
            "string a = 1; map<string, string> b = 2;",
            "string a = 1;",
            "b of type repeated message is missing in M",
        ),
        (
            proto2,
            "optional string a = 1;",
            "optional string a = 1; required string b = 2;",
            "b of type required string is missing in M",
        ),
        (
            proto3,
            "enum E { X = 0; } E e = 1;",
            "enum E { X = 0; Y = 5; } E e = 1;",
            r"M.Y = 5 is missing in M.E",
        ),
        (
            proto3,
            "enum E { X = 0; Y = 5; } E e = 1;",
            "enum E { X = 0; } E e = 1;",
            r"M.Y = 5 is missing in M.E",
        ),
        (
            proto3,
            "enum E { X = 0; Y = 5; } E e = 1;",
            "enum E { X = 0; Y = 6; } E e = 1;",
            r"M.Y = 6 is missing in M.E",
        ),
        (
            proto3,
            "message N { string a = 1; } N n = 1;",
            "message N { int32 a = 1; } N n = 1;",
            "a of type int32 is not compatible with a of type string",
        ),
        (proto3, "string a = 1;", "oneof c { string a = 1; }", "a cannot move into or out of"),
    ],
)
def test_incompatible_revisions_of_a_protobuf_schema_are_refused(
    syntax: Any, before: str, after: str, problem: str
) -> None:
    """The error has the text of the production service, where that is known."""
    with pytest.raises(Incompatible, match=problem):
        syntax(after).check_follows(syntax(before))


def test_a_schema_revision_that_changes_from_avro_to_protobuf_or_back_is_refused() -> None:
    """Avro cannot follow Protocol Buffers, and vice versa."""
    avro = AvroDefinition('"string"')
    with pytest.raises(Incompatible, match="the type of a schema cannot change"):
        proto3("string a = 1;").check_follows(avro)
    with pytest.raises(Incompatible, match="the type of a schema cannot change"):
        avro.check_follows(proto3("string a = 1;"))
