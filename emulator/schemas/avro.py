"""Schemas of the type AVRO."""

from __future__ import annotations

from protocol.messages import schema_pb2 as pb

from .avro_binary import check_binary
from .avro_compatibility import check_readable
from .avro_json import check_json
from .avro_types import parse
from .definition import Definition, Incompatible


class AvroDefinition:
    """An Avro schema.

    Raises:
        BadDefinition: `text` is none.
    """

    def __init__(self, text: str) -> None:
        self._schema = parse(text)

    def check(self, data: bytes, encoding: pb.Encoding) -> None:
        if encoding == pb.JSON:
            check_json(self._schema, data)
        else:
            check_binary(self._schema, data)

    def check_follows(self, older: Definition) -> None:
        if not isinstance(older, AvroDefinition):
            raise Incompatible("the type of a schema cannot change")
        check_readable(self._schema, older._schema)
        check_readable(older._schema, self._schema)
