"""Whether bytes are a message of an Avro schema, in Avro's binary encoding.

The bytes are walked through and nothing is built of them, so that none that a hostile publisher
can think of cost more than their length. (fastavro's reader is in C, and recursive: a list of some
100,000 elements that hold each other ends the process.)
"""

from __future__ import annotations

from .avro_json import INT_RANGE, LONG_RANGE
from .avro_types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union
from .definition import Mismatch

_WIDTHS = {"null": 0, "float": 4, "double": 8}
_STRING = Primitive("string")


def check_binary(schema: AvroType, data: bytes) -> None:
    """Raise Mismatch unless `data` is one message of `schema`, to the last byte."""
    walker = _Walker(data)
    try:
        walker.walk(schema)
    except RecursionError:
        raise Mismatch("The message nests too deeply.") from None
    walker.expect_end()


class _Walker:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def expect_end(self) -> None:
        if self._position < len(self._data):
            raise Mismatch("Too much data to parse for schema.")

    def walk(self, schema: AvroType) -> None:
        if isinstance(schema, Primitive):
            self._walk_primitive(schema.name)
        elif isinstance(schema, Record):
            for field in schema.fields:
                self.walk(field.type)
        elif isinstance(schema, Union):
            self.walk(schema.branches[self._index(len(schema.branches))])
        elif isinstance(schema, Enum):
            self._index(len(schema.symbols))
        elif isinstance(schema, Fixed):
            self._bytes(schema.size)
        elif isinstance(schema, Array):
            self._walk_blocks(schema.items)
        elif isinstance(schema, Map):
            self._walk_blocks(_STRING, schema.values)

    def _walk_primitive(self, name: str) -> None:
        if name in _WIDTHS:
            self._bytes(_WIDTHS[name])
        elif name == "boolean":
            if self._bytes(1) not in (b"\0", b"\1"):
                raise Mismatch("A boolean is neither 0 nor 1.")
        elif name in ("int", "long"):
            if self._number() not in (INT_RANGE if name == "int" else LONG_RANGE):
                raise Mismatch(f"A number is too large for {name}.")
        else:
            text = self._bytes(self._number())
            if name == "string":
                try:
                    text.decode()
                except UnicodeDecodeError:
                    raise Mismatch("A string is not UTF-8.") from None

    def _walk_blocks(self, *parts: AvroType) -> None:
        while count := self._number():
            end = None
            if count < 0:
                # The block says how many bytes it has, so that readers can skip it.
                size = self._number()
                end = self._position + size
                count = -count
            for _ in range(count):
                before = self._position
                for part in parts:
                    self.walk(part)
                if self._position == before:
                    # They take no room, so there may be any number of them.
                    break
            if end is not None and end != self._position:
                raise Mismatch("A block does not have the size that it claims.")

    def _index(self, count: int) -> int:
        index = self._number()
        if not 0 <= index < count:
            raise Mismatch(f"{index} is not one of {count} alternatives.")
        return index

    def _number(self) -> int:
        """A variable-length zig-zag number of at most 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            octet = self._bytes(1)[0]
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise Mismatch("A number has more than 10 bytes.")

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._position : self._position + count] if count > 0 else b""
        if len(found) != count:
            raise Mismatch("Not enough data to parse for schema.")
        self._position += count
        return found
