"""Protocol Buffers schemas: valid definitions, valid messages, and compatible revisions."""

from __future__ import annotations

import importlib.util

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.schemas import protoc
from pullstream_emulator.schemas.definition import BadDefinition, Mismatch
from pullstream_emulator.schemas.protobuf import ProtobufDefinition
from pullstream_protocol.messages import schema_pb2 as pb
from tests.emulator.schemas.protobuf_examples import compiled, proto2, proto3

ORDER = """
    syntax = "proto3";
    package shop;
    message Order {
      string id = 1;
      int64 cents = 2;
      Address to = 3;
      repeated string tags = 4;
      enum Status { UNKNOWN = 0; PAID = 1; }
      Status status = 5;
      message Address { string city = 1; Address other = 2; }
    }
"""


def takes(definition: ProtobufDefinition, data: bytes, encoding: pb.Encoding) -> bool:
    try:
        definition.check(data, encoding)
    except Mismatch:
        return False
    return True


@pytest.mark.parametrize(
    "source",
    [
        ORDER,
        'syntax = "proto2"; message M { required string a = 1; }',
        'edition = "2023"; message M { string a = 1; }',
        "message M { optional string a = 1; }",
        'syntax = "proto3"; enum E { X = 0; } message M { E e = 1; }',
    ],
)
def test_valid_protobuf_schemas_are_accepted(source: str) -> None:
    """Every syntax and edition that the compiler knows is valid."""
    compiled(source)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "exactly one top-level message type is allowed, not 0"),
        ("message A {} message B {}", "not 2"),
        ("nonsense", "1:1: Expected top-level statement"),
        ('syntax = "proto3"; message M { N n = 1; }', '1:32: "N" is not defined'),
        ('import "other.proto"; message M {}', 'Import "other.proto" was not found'),
        ('import "google/protobuf/timestamp.proto"; message M {}', "is not supported"),
        ('import "/etc/passwd"; message M {}', "was not found"),
    ],
)
def test_invalid_protobuf_schemas_are_refused(source: str, problem: str) -> None:
    """The error has the compiler's text without the name of a temporary file."""
    with pytest.raises(BadDefinition, match=problem) as refused:
        ProtobufDefinition.from_source(source)
    assert "tmp" not in str(refused.value)


def from_files(root: str, *files: FileDescriptorProto) -> ProtobufDefinition:
    compiled_bytes = FileDescriptorSet(file=files).SerializeToString()
    return ProtobufDefinition.from_compiled(
        pb.CompiledProtoSchema(root_message=root, compiled_bytes=compiled_bytes)
    )


def test_messages_can_be_checked_by_a_compiled_protobuf_schema_without_a_protobuf_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The schema may have several messages and imported files."""
    source = protoc.compile_source("message A { optional string a = 1; } message B {}")
    imported = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    source.dependency.append(imported.name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    definition = from_files("A", imported, source)
    assert takes(definition, b'{"a": "x"}', pb.JSON)
    assert not takes(definition, b'{"b": "x"}', pb.JSON)
    assert not takes(from_files("B", imported, source), b'{"a": "x"}', pb.JSON)


def test_an_invalid_compiled_protobuf_schema_is_refused() -> None:
    """Examples are other bytes, an unknown root, and a missing import."""
    with pytest.raises(BadDefinition, match="not a FileDescriptorSet"):
        ProtobufDefinition.from_compiled(pb.CompiledProtoSchema(compiled_bytes=b"nonsense"))
    with pytest.raises(BadDefinition, match="message type M is not in the FileDescriptorSet"):
        from_files("M", FileDescriptorProto(name="a.proto"))
    with pytest.raises(BadDefinition, match=r"Depends on file 'b.proto'"):
        from_files("M", FileDescriptorProto(name="a.proto", dependency=["b.proto"]))


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (b"{}", True),
        (b'{"id": "1", "cents": "5", "to": {"city": "Rome"}, "tags": ["a"]}', True),
        (b'{"cents": 5, "status": "PAID"}', True),
        (b'{"status": 1}', True),
        (b'{"id": 1}', False),
        (b'{"status": "LOST"}', False),
        (b'{"name": "x"}', False),
        (b'{"to": {"street": "x"}}', False),
        (b"[]", False),
        (b"3", False),
        (b"", False),
        (b"\xff", False),
        (b'{"to": {"other": ' * 1000 + b"{}" + b"}}" * 1000, False),
    ],
)
def test_only_json_messages_that_match_their_protobuf_schema_are_accepted(
    data: bytes, fits: bool
) -> None:
    """The rules of Protocol Buffers' JSON apply. Unknown fields are refused."""
    assert takes(compiled(ORDER), data, pb.JSON) is fits


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (b"", True),
        (b"\x0a\x01x\x10\x05", True),
        (b"\x1a\x06\x0a\x04Rome", True),
        (b"\x0a\x05x", False),
        (b"\xff\xff", False),
        (b"\x0a\x01\xff", False),
        # Fields that the schema does not have, at the top level and nested.
        (b"\x32\x01x", False),
        (b"\x1a\x03\x1a\x01x", False),
    ],
)
def test_only_binary_messages_that_match_their_protobuf_schema_are_accepted(
    data: bytes, fits: bool
) -> None:
    """Like the service, the broker refuses messages with unknown fields."""
    assert takes(compiled(ORDER), data, pb.BINARY) is fits


@pytest.mark.parametrize(("data", "encoding"), [(b"{}", pb.JSON), (b"", pb.BINARY)])
def test_a_message_without_a_required_protobuf_field_is_refused(
    data: bytes, encoding: pb.Encoding
) -> None:
    """The field is required in both encodings."""
    definition = proto2("required string a = 1;")
    with pytest.raises(Mismatch, match="required"):
        definition.check(data, encoding)


@given(data=st.binary(), encoding=st.sampled_from([1, 2]))
def test_any_message_bytes_are_accepted_or_refused_by_a_protobuf_schema_without_a_crash(
    data: bytes, encoding: pb.Encoding
) -> None:
    """Invalid bytes are refused without another exception."""
    assert takes(compiled(ORDER), data, encoding) in (True, False)


def test_two_protobuf_schemas_may_use_the_same_message_name() -> None:
    """Each schema has its own namespace."""
    text, number = proto3("string a = 1;"), proto3("int32 a = 1;")
    assert takes(text, b'{"a": "x"}', pb.JSON)
    assert not takes(number, b'{"a": "x"}', pb.JSON)
