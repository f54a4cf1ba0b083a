"""Decoding of message data: no decoding, or JSON objects with a schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

# Prefix of the message columns (message_id and others) if fields of the data are columns too.
PREFIX = "pubsub_"

_DATA = "data"
_ALWAYS = frozenset({"message_id", "publish_time"})
_TEXT, _VALUE, _WHOLE = "_text", "_value", "_whole"
_CORRUPT = "_corrupt_record"


class Decoding(Protocol):
    """Conversion of message rows to table rows."""

    @property
    def required(self) -> frozenset[str]:
        """Names of the columns that are never null in the rows of `good`."""

    def read(self, messages: DataFrame) -> DataFrame:
        """Return `messages` with the helper columns that the other methods need."""

    def is_bad(self) -> Column:
        """Return the condition, on the rows of `read`, that a message cannot be decoded."""

    def good(self, read: DataFrame) -> DataFrame:
        """Return the table rows of the messages that can be decoded."""

    def bad(self, read: DataFrame) -> DataFrame:
        """Return the other messages, with their data unchanged and the column `reason`."""


class Undecoded:
    """Messages without decoding. None is bad."""

    @property
    def required(self) -> frozenset[str]:
        """Every message has an id and a publish time."""
        return _ALWAYS

    def read(self, messages: DataFrame) -> DataFrame:
        """Return the messages as they are: no helper columns are needed."""
        return messages

    def is_bad(self) -> Column:
        """Return a condition that is false for every message."""
        return F.lit(False)

    def good(self, read: DataFrame) -> DataFrame:
        """Return all messages unchanged."""
        return read

    def bad(self, read: DataFrame) -> DataFrame:
        """Return an empty DataFrame with the columns of bad messages."""
        return read.withColumn("reason", F.lit("")).where(F.lit(False))


@dataclass(frozen=True)
class JsonDecoding:
    """Messages with one JSON object each, whose fields become columns.

    A missing field is null; if `schema` says NOT NULL, the message is bad. A message is also bad if
    a value has another type, if its bytes are not UTF-8, or if anything follows the object. Fields
    that the schema does not name are dropped.

    Attributes:
        schema: The fields and their types.
    """

    schema: StructType

    @classmethod
    def from_ddl(cls, ddl: str) -> JsonDecoding:
        """Parse a schema such as `id BIGINT NOT NULL, tags ARRAY<STRING>`. Needs a Spark session.

        Raises:
            ValueError: The text is not a schema, or a column name is reserved or repeated.
        """
        try:
            schema = StructType.fromDDL(ddl)
        except PySparkException as error:
            raise _no_schema(ddl, str(error).strip().splitlines()[0]) from error
        if not isinstance(schema, StructType) or not schema.fields:
            raise _no_schema(ddl, "there are no columns")
        for name in schema.fieldNames():
            if name.lower().startswith(PREFIX) or name.lower() == _CORRUPT:
                raise ValueError(
                    f"schema has the column {name!r}, whose name is reserved, like all names "
                    f"that begin with {PREFIX}; choose another name"
                )
        names = [name.lower() for name in schema.fieldNames()]
        for name in schema.fieldNames():
            if names.count(name.lower()) > 1:
                raise ValueError(
                    f"schema has the column {name!r} more than once (case does not matter); "
                    "remove all but one"
                )
        return cls(schema)

    @property
    def required(self) -> frozenset[str]:
        """The columns that the schema declares as NOT NULL, and those of every message."""
        return frozenset(
            (*(field.name for field in self._required()), *(PREFIX + name for name in _ALWAYS))
        )

    def read(self, messages: DataFrame) -> DataFrame:
        """Add the parsed object, and whether the data is exactly one JSON value."""
        full = StructType([*self.schema.fields, StructField(_CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        text = messages.withColumn(_TEXT, F.col(_DATA).cast("string"))
        # from_json stops at the end of the first value. Text after the value may close an array or
        # an object, but not both, so the value is tested inside both.
        in_array = F.concat(F.lit("["), F.col(_TEXT), F.lit("]"))
        in_object = F.concat(F.lit('{"":'), F.col(_TEXT), F.lit("}"))
        whole = (F.json_array_length(in_array) == 1) & F.json_object_keys(in_object).isNotNull()
        return text.select(
            "*",
            F.from_json(_TEXT, full, options).alias(_VALUE),
            F.coalesce(whole, F.lit(False)).alias(_WHOLE),
        )

    def is_bad(self) -> Column:
        """Return the condition that the data is malformed or does not fit the schema."""
        fits = (
            F.is_valid_utf8(_TEXT)
            & F.col(_VALUE).isNotNull()
            & self._value(_CORRUPT).isNull()
            & F.col(_WHOLE)
        )
        if required := [self._value(field.name) for field in self._required()]:
            # One expression of any length: hundreds of nested ones overflow Java's stack.
            fits &= F.forall(F.array(*(one.isNotNull() for one in required)), lambda has: has)
        return ~F.coalesce(fits, F.lit(False))

    def good(self, read: DataFrame) -> DataFrame:
        """Return the fields as columns, followed by the prefixed message columns except `data`."""
        fields = [self._value(name).alias(name) for name in self.schema.fieldNames()]
        own = [
            F.col(name).alias(PREFIX + name)
            for name in read.columns
            if name not in (_DATA, _TEXT, _VALUE, _WHOLE)
        ]
        return read.where(~self.is_bad()).select(*fields, *own)

    def bad(self, read: DataFrame) -> DataFrame:
        """Return the messages that do not fit the schema, and say why in the column `reason`.

        The message's own columns have the names of the good table, so that one query fits both.
        """
        rows = read.where(self.is_bad()).withColumn("reason", self._reason())
        rows = rows.drop(_TEXT, _VALUE, _WHOLE)
        own = {name: PREFIX + name for name in rows.columns if name not in (_DATA, "reason")}
        return rows.withColumnsRenamed(own)

    def _reason(self) -> Column:
        missing = _listed(
            F.when(self._value(field.name).isNull(), field.name) for field in self._required()
        )
        unfit = _listed(
            F.when(
                F.get_json_object(_TEXT, f"$['{field.name}']").isNotNull()
                & self._value(field.name).isNull(),
                f"{field.name} {field.dataType.simpleString()}",
            )
            for field in self.schema.fields
        )
        is_object = F.startswith(F.ltrim(F.col(_TEXT)), F.lit("{"))
        return (
            F.when(F.coalesce(F.length(_DATA), F.lit(0)) == 0, "empty")
            .when(~F.is_valid_utf8(_TEXT), "not UTF-8")
            .when(~F.col(_WHOLE), "not one JSON value")
            .when(~is_object, "not a JSON object")
            .when(unfit != "", F.concat(F.lit("does not fit: "), unfit))
            .when(self._value(_CORRUPT).isNotNull(), "a nested value does not fit the schema")
            .otherwise(F.concat(F.lit("missing: "), missing))
        )

    def _required(self) -> list[StructField]:
        return [field for field in self.schema.fields if not field.nullable]

    def _value(self, name: str) -> Column:
        return F.col(_VALUE).getField(name)


def _no_schema(ddl: str, reason: str) -> ValueError:
    return ValueError(
        f"schema is {ddl!r}; it must be column definitions, such as "
        f"'id BIGINT NOT NULL, tags ARRAY<STRING>' ({reason})"
    )


def _listed(texts: Iterable[Column]) -> Column:
    """Join the texts that are not null with commas."""
    return F.concat_ws(", ", *texts)
