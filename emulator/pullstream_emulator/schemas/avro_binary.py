"""Check and decoding of messages in Avro's binary encoding.

The check reads the bytes without building objects. Values without bytes, such as nulls, are limited
in number, so the length of a hostile message limits its cost. (fastavro's reader is in C and
recursive: a list of about 100,000 nested elements crashes the process.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from .avro_json import INT_RANGE, LONG_RANGE
from .avro_types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union
from .definition import Mismatch

_WIDTHS = {"null": 0, "float": 4, "double": 8}
_STRING = Primitive("string")

# The largest integer up to which JavaScript's numbers are exact.
_MAX_EXACT = 2**53

# Most values of a message: a number for any message, more for each byte, and a limit for all. A
# definition of the largest size can have fewer fields than the first number. It can also have
# records in records in records, so that one byte or none becomes a huge number of values.
_VALUES_PER_MESSAGE = 20_000
_VALUES_PER_BYTE = 100
MAX_VALUES = 50_000_000

# Most values of a message that is decoded, about 20 ms of work.
_MAX_DECODED = 20_000


def check_binary(schema: AvroType, data: bytes) -> None:
    """Check that `data` is exactly one message of a schema.

    Args:
        schema: The schema.
        data: The encoded message.

    Raises:
        Mismatch: `data` is not a message of the schema, or has too many values.
    """
    most = min(_VALUES_PER_MESSAGE + _VALUES_PER_BYTE * len(data), MAX_VALUES)
    walker = _Walker(data, most)
    try:
        walker.walk(schema)
    except RecursionError:
        raise Mismatch("The message nests too deeply.") from None
    walker.expect_end()


def decode_binary(schema: AvroType, data: bytes) -> Any:
    """Return a message as a JSON value, for people.

    Bytes become text with one character for each byte, as in Avro's JSON encoding. Numbers that
    browsers cannot read from JSON exactly, such as NaN and large integers, become text. A value of
    a union is without the name of its type.

    Args:
        schema: The schema.
        data: The encoded message.

    Raises:
        Mismatch: `data` is not a message of the schema, or has more than 20,000 values.
    """
    reader = _Reader(data, _MAX_DECODED)
    try:
        value = reader.read(schema)
    except RecursionError:
        raise Mismatch("The message nests too deeply.") from None
    reader.expect_end()
    return value


class _Walker:
    def __init__(self, data: bytes, max_values: int) -> None:
        self._data = data
        self._values_left = max_values
        self._position = 0

    def expect_end(self) -> None:
        if self._position < len(self._data):
            raise Mismatch("Too much data to parse for schema.")

    def walk(self, schema: AvroType) -> None:
        self._count_value()
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

    def _count_value(self) -> None:
        self._values_left -= 1
        if self._values_left < 0:
            raise Mismatch("The message has too many values.")

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
                # The block contains its size in bytes, so that readers can skip it.
                size = self._number()
                end = self._position + size
                count = -count
            for _ in range(count):
                before = self._position
                for part in parts:
                    self.walk(part)
                if self._position == before:
                    # These elements have no bytes, so their number may be huge: check only one.
                    break
            if end is not None and end != self._position:
                raise Mismatch("The size of a block is not the size in its header.")

    def _index(self, count: int) -> int:
        index = self._number()
        if not 0 <= index < count:
            raise Mismatch(f"{index} is not one of {count} alternatives.")
        return index

    def _number(self) -> int:
        """Read a variable-length zig-zag number of at most 64 bits."""
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


class _Reader(_Walker):
    """Builds the values that a walker only checks."""

    def read(self, schema: AvroType) -> Any:
        self._count_value()
        if isinstance(schema, Primitive):
            return self._read_primitive(schema.name)
        if isinstance(schema, Record):
            return {field.name: self.read(field.type) for field in schema.fields}
        if isinstance(schema, Union):
            return self.read(schema.branches[self._index(len(schema.branches))])
        if isinstance(schema, Enum):
            return list(schema.symbols)[self._index(len(schema.symbols))]
        if isinstance(schema, Fixed):
            return self._bytes(schema.size).decode("latin-1")
        if isinstance(schema, Array):
            return [self.read(schema.items) for _ in self._block_items()]
        assert isinstance(schema, Map)
        return {self.read(_STRING): self.read(schema.values) for _ in self._block_items()}

    def _read_primitive(self, name: str) -> Any:
        if name == "null":
            return None
        if name == "boolean":
            return self._bytes(1) == b"\1"
        if name in ("int", "long"):
            whole = self._number()
            return whole if abs(whole) <= _MAX_EXACT else str(whole)
        if name in ("float", "double"):
            (number,) = struct.unpack("<f" if name == "float" else "<d", self._bytes(_WIDTHS[name]))
            return number if math.isfinite(number) else str(number)
        data = self._bytes(self._number())
        return data.decode("utf-8" if name == "string" else "latin-1")

    def _block_items(self) -> Iterator[None]:
        """Yield once for each element of an array or a map."""
        while count := self._number():
            if count < 0:
                self._number()
                count = -count
            for _ in range(count):
                yield
