"""Schemas of the type AVRO."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pullstream_emulator.offload import Budget
from pullstream_protocol.messages import schema_pb2 as pb

from .avro_binary import check_binary, decode_binary
from .avro_compatibility import check_readable
from .avro_json import check_json
from .avro_types import parse
from .definition import MAX_UNPICKLED, Definition, Incompatible


class AvroDefinition:
    """An Avro schema.

    Args:
        text: The schema in JSON form.

    Raises:
        BadDefinition: `text` is not a schema.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._schema = parse(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _compiled, (self._text,)

    def check(self, data: bytes, encoding: pb.Encoding, budget: Budget) -> None:
        """Check a message in JSON or in Avro's binary encoding."""
        if encoding == pb.JSON:
            check_json(self._schema, data, budget)
        else:
            check_binary(self._schema, data, budget)

    def decode_binary(self, data: bytes, budget: Budget) -> Any:
        """Return a message as a JSON value. A value of a union is without the name of its type."""
        return decode_binary(self._schema, data, budget)

    def check_follows(self, older: Definition) -> None:
        """Raise Incompatible unless `older` is an Avro schema and both can read all messages."""
        if not isinstance(older, AvroDefinition):
            raise Incompatible("the type of a schema cannot change")
        check_readable(self._schema, older._schema)
        check_readable(older._schema, self._schema)


@lru_cache(maxsize=MAX_UNPICKLED)
def _compiled(text: str) -> AvroDefinition:
    return AvroDefinition(text)
