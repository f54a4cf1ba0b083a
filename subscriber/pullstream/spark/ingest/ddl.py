"""Column definitions of common form, read without Spark, so that errors come early."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_]\w*)|(\d+)|([<>(),:]))", re.ASCII)

_TYPES: Mapping[str, DataType] = {
    **dict.fromkeys(("tinyint", "byte"), ByteType()),
    **dict.fromkeys(("smallint", "short"), ShortType()),
    **dict.fromkeys(("int", "integer"), IntegerType()),
    **dict.fromkeys(("bigint", "long"), LongType()),
    **dict.fromkeys(("float", "real"), FloatType()),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_LARGEST_PRECISION = 38
_DECIMAL = (10, 0)


def columns_of(ddl: str) -> StructType | None:
    """Return the columns that a text such as `id BIGINT NOT NULL, tags ARRAY<STRING>` defines.

    Args:
        ddl: The definitions.

    Returns:
        The columns, as Spark reads them; None if only Spark can tell.
    """
    try:
        reader = _Reader(ddl)
        columns = reader.fields("")
    except _OnlySpark:
        return None
    return columns


class _OnlySpark(Exception):
    """The text has an error, or a form that is not read here."""


class _Reader:
    """The words of a text, read from left to right."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = []
        text, at = text.rstrip(), 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise _OnlySpark
            self._words.append(match[0].strip())
            at = match.end()
        # No word is empty, so this is the end.
        self._words.append("")
        self._at = 0

    def fields(self, end: str) -> StructType:
        """Read fields up to a word, which is read too."""
        found = [self._field()]
        while self._take(","):
            found.append(self._field())
        self._expect(end)
        return StructType(found)

    def _field(self) -> StructField:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name.isidentifier():
            raise _OnlySpark
        self._take(":")
        kind = self._type()
        is_required = self._take("not")
        if is_required:
            self._expect("null")
        return StructField(name, kind, not is_required)

    def _type(self) -> DataType:
        word = self._next().lower()
        match word:
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                return self.fields(">")
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case _ if word in _TYPES:
                return _TYPES[word]
        raise _OnlySpark

    def _decimal(self) -> DecimalType:
        precision, scale = _DECIMAL
        if self._take("("):
            precision = self._number()
            scale = self._number() if self._take(",") else 0
            self._expect(")")
        if not 0 < precision <= _LARGEST_PRECISION or scale > precision:
            raise _OnlySpark
        return DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._next()
        if not word.isdigit():
            raise _OnlySpark
        return int(word)

    def _next(self) -> str:
        word = self._words[self._at]
        if not word:
            raise _OnlySpark
        self._at += 1
        return word

    def _take(self, word: str) -> bool:
        """Read a word if it is the next one."""
        is_next = self._words[self._at].lower() == word
        self._at += is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise _OnlySpark
