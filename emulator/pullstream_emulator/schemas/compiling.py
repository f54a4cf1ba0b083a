"""Compilation of a Schema message to its Definition.

The parsers are imported with the first schema, because most brokers never have a schema and every
broker must start fast.
"""

from __future__ import annotations

from pullstream_emulator.error_texts import invalid_argument, too_large
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import schema_pb2 as pb

from .definition import BadDefinition, Definition

# The service's 300 KB.
MAX_DEFINITION_BYTES = 300 * 1024


def compile_schema(schema: pb.Schema) -> Definition:
    """Return the definition of a schema.

    Raises:
        InvalidArgument: `schema` is invalid or too large.
        FailedPrecondition: The compiler for its type is not installed.
    """
    compiled = schema.compiled_proto_schema
    size = len(schema.definition.encode()) + len(compiled.compiled_bytes)
    if size > MAX_DEFINITION_BYTES:
        raise too_large("schema_definition_size", size, MAX_DEFINITION_BYTES)
    if schema.type not in (pb.Schema.AVRO, pb.Schema.PROTOCOL_BUFFER):
        raise invalid_argument("Invalid schema type: it must be AVRO or PROTOCOL_BUFFER")
    try:
        return _compile(schema)
    except BadDefinition as problem:
        raise InvalidArgument(
            f"Invalid schema definition: Could not parse schema. ({problem})"
        ) from None


def _compile(schema: pb.Schema) -> Definition:
    has_compiled = schema.HasField("compiled_proto_schema")
    if schema.definition and has_compiled:
        raise BadDefinition("it has both a definition and a compiled_proto_schema")
    if not schema.definition and not has_compiled:
        raise BadDefinition("it is empty")
    if schema.type == pb.Schema.AVRO:
        if has_compiled:
            raise BadDefinition("a compiled_proto_schema is not of type AVRO")
        from .avro import AvroDefinition

        return AvroDefinition(schema.definition)
    from .protobuf import ProtobufDefinition

    if has_compiled:
        return ProtobufDefinition.from_compiled(schema.compiled_proto_schema)
    return ProtobufDefinition.from_source(schema.definition)
