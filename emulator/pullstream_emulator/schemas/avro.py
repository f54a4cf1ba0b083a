"""Schemas of the type AVRO."""

from __future__ import annotations

from typing import Any

from pullstream_protocol.messages import schema_pb2 as pb

from .avro_binary import check_binary, decode_binary
from .avro_compatibility import check_readable
from .avro_json import check_json
from .avro_types import parse
from .definition import Definition, Incompatible


class AvroDefinition:
    """An Avro schema.

    Args:
        text: The schema in JSON form.

    Raises:
        BadDefinition: `text` is not a schema.
    """

    def __init__(self, text: str) -> None:
        self._schema = parse(text)

    def check(self, data: bytes, encoding: pb.Encoding) -> None:
        """Check a message in JSON or in Avro's binary encoding."""
        if encoding == pb.JSON:
            check_json(self._schema, data)
        else:
            check_binary(self._schema, data)

    def decode_binary(self, data: bytes) -> Any:
        """Return a message as a JSON value. A value of a union is without the name of its type."""
        return decode_binary(self._schema, data)

    def check_follows(self, older: Definition) -> None:
        """Raise Incompatible unless `older` is an Avro schema and both can read all messages."""
        if not isinstance(older, AvroDefinition):
            raise Incompatible("the type of a schema cannot change")
        check_readable(self._schema, older._schema)
        check_readable(older._schema, self._schema)
