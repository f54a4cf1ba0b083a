"""Decoding of message data: none, as text, or JSON objects with a schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from pullstream.spark.local.session_builder import local_session

from .json_values import (
    FLOATING,
    STRICT,
    TEXT_DECIMALS,
    TEXT_NUMBERS,
    any_of,
    at,
    converted,
    has_comma,
    is_cut,
    is_infinite,
    is_lost,
    names_outside,
    paths,
    places,
    replaced,
    unfit_values,
    wanted_at,
)

# Prefix of the message columns (message_id and others) if the data makes columns too.
PREFIX = "pubsub_"

_DATA, _BATCH, _REASON = "data", "batch", "reason"
_ALWAYS = ("message_id", "publish_time")
_CORRUPT = "_corrupt_record"

# Columns of `read` that do not reach a table. They begin with "_", as no message column does.
_TEXT, _WHOLE, _UNKNOWN = "_text", "_whole", "_unknown"
_FIRST, _SECOND, _DECIMALS = "_first", "_second", "_decimals"
_NUMBERS, _VALUE, _BAD = "_numbers", "_value", "_bad"
_GIVEN, _ANY = "_given", "_any"

_BYTE_ORDER_MARK = "\ufeff"

# A text of which Spark makes a decimal by leaving out the comma, so that 1,5 becomes 15.
_COMMA_IN_NUMBER = r'"[-+.\deE]*,[-+.,\deE]*"'


class Decoding(Protocol):
    """Conversion of message rows to table rows."""

    @property
    def required(self) -> frozenset[str]:
        """Names of the columns that are never null in the rows of `good` and of `bad`."""

    def columns(self, messages: StructType) -> StructType:
        """Return the columns of the rows of `good`, without Spark.

        Args:
            messages: The columns of the source.
        """

    def bad_columns(self, messages: StructType) -> StructType:
        """Return the columns of the rows of `bad`, without Spark."""

    def read(self, messages: DataFrame, batch: str) -> DataFrame:
        """Return `messages` with the columns that the other methods need.

        Args:
            messages: The rows of the source.
            batch: Name of the batch.
        """

    def is_bad(self) -> Column:
        """Return the condition, on the rows of `read`, that a message cannot be decoded."""

    def counts(self) -> Mapping[str, Column]:
        """Return numbers of each row of `read`, by the fields of `Totals` that have their sums."""

    def unknown(self) -> Column | None:
        """Return the paths of a row's fields that the table leaves out; None: there are none."""

    def good(self, read: DataFrame) -> DataFrame:
        """Return the table rows of the messages that can be decoded."""

    def bad(self, read: DataFrame) -> DataFrame:
        """Return the other messages, with their data unchanged and the column `reason`."""


class Undecoded:
    """Messages without decoding, with the columns of the source. None is bad."""

    @property
    def required(self) -> frozenset[str]:
        """Every message has an id and a publish time."""
        return frozenset(_ALWAYS)

    def columns(self, messages: StructType) -> StructType:
        """Return the columns of the source."""
        return messages

    def bad_columns(self, messages: StructType) -> StructType:
        """Return the columns of the source, and the reason."""
        return StructType([*messages.fields, StructField(_REASON, StringType())])

    def read(self, messages: DataFrame, batch: str) -> DataFrame:
        """Return the messages as they are."""
        return messages

    def is_bad(self) -> Column:
        """Return a condition that is false for every message."""
        return F.lit(False)

    def counts(self) -> Mapping[str, Column]:
        """Return nothing: there is nothing to count."""
        return {}

    def unknown(self) -> Column | None:
        """Return None: nothing is left out."""
        return None

    def good(self, read: DataFrame) -> DataFrame:
        """Return all messages unchanged."""
        return read

    def bad(self, read: DataFrame) -> DataFrame:
        """Return an empty DataFrame with the columns of bad messages."""
        return read.withColumn(_REASON, F.lit("")).where(F.lit(False))


@dataclass(frozen=True)
class TextDecoding:
    """Messages whose data is the column `text`. A message is bad if its data is not UTF-8.

    Attributes:
        metadata: Whether the message's own columns and the batch follow.
    """

    metadata: bool = True

    @property
    def required(self) -> frozenset[str]:
        """The text, and the columns of every message."""
        return frozenset(("text", *_OF_EVERY_MESSAGE))

    def columns(self, messages: StructType) -> StructType:
        """Return the text, followed by the columns of `_own`."""
        text = StructField("text", StringType())
        return StructType([text, *_own_fields(messages, self.metadata)])

    def bad_columns(self, messages: StructType) -> StructType:
        """Return the columns of `_with_reason`."""
        return _fields_with_reason(messages)

    def read(self, messages: DataFrame, batch: str) -> DataFrame:
        """Add the batch, and the data as text."""
        text = F.col(_DATA).cast("string")
        return messages.withColumns({_BATCH: F.lit(batch), _TEXT: text})

    def is_bad(self) -> Column:
        """Return the condition that the data is not UTF-8."""
        return ~F.coalesce(F.is_valid_utf8(_TEXT), F.lit(False))

    def counts(self) -> Mapping[str, Column]:
        """Return nothing: there is nothing to count."""
        return {}

    def unknown(self) -> Column | None:
        """Return None: nothing is left out."""
        return None

    def good(self, read: DataFrame) -> DataFrame:
        """Return the text, followed by the prefixed message columns except `data`."""
        rows = read.where(~self.is_bad())
        return rows.select(F.col(_TEXT).alias("text"), *_own(rows, self.metadata))

    def bad(self, read: DataFrame) -> DataFrame:
        """Return the messages that are not UTF-8."""
        return _with_reason(read.where(self.is_bad()), F.lit("not UTF-8"))


@dataclass(frozen=True)
class JsonDecoding:
    """Messages with one JSON object each, whose fields become columns.

    A missing field is null; if `schema` says NOT NULL, the message is bad. A message is also bad if
    a value does not fit its type, if its bytes are not UTF-8, or if anything follows the object.
    Fields of the object that the schema does not name are left out and counted.

    Numbers may be texts, as in the JSON form of Protocol Buffers. Times have the form of RFC 3339,
    the zone may be missing. Nanoseconds are cut to microseconds, and the messages are counted.

    Attributes:
        schema: The fields and their types.
        time_zone: Zone of times without one: a name, or an offset such as +02:00.
        metadata: Whether the message's own columns and the batch follow the fields.
        event_range: Largest distance in seconds between the publish time and the times in
            `event_columns`. A message with another time is bad. None: any distance.
        event_columns: Columns of type TIMESTAMP, TIMESTAMP_NTZ or DATE. The last two are compared
            as UTC.
    """

    schema: StructType
    time_zone: str = "UTC"
    metadata: bool = True
    event_range: float | None = None
    event_columns: tuple[str, ...] = ()

    @classmethod
    def from_ddl(
        cls,
        ddl: str,
        *,
        time_zone: str = "UTC",
        metadata: bool = True,
        event_range: float | None = None,
        event_columns: Sequence[str] = (),
    ) -> JsonDecoding:
        """Parse a schema such as `id BIGINT NOT NULL, tags ARRAY<STRING>`. Needs a Spark session.

        Args:
            ddl: The schema.
            time_zone: See the class.
            metadata: See the class.
            event_range: See the class.
            event_columns: See the class. Names that the schema does not have are ignored.

        Raises:
            ValueError: The text is not a schema, a column name is reserved or repeated, or the time
                zone is unknown.
        """
        try:
            schema = StructType.fromDDL(ddl)
        except PySparkException as error:
            raise _no_schema(ddl, str(error).strip().splitlines()[0]) from error
        if not isinstance(schema, StructType) or not schema.fields:
            raise _no_schema(ddl, "there are no columns")
        decoding = cls.of(
            schema,
            time_zone=time_zone,
            metadata=metadata,
            event_range=event_range,
            event_columns=event_columns,
        )
        _check_zone(time_zone)
        return decoding

    @classmethod
    def of(
        cls,
        schema: StructType,
        *,
        time_zone: str = "UTC",
        metadata: bool = True,
        event_range: float | None = None,
        event_columns: Sequence[str] = (),
    ) -> JsonDecoding:
        """Return the decoding by a parsed schema; see `from_ddl`, which also checks the time zone.

        Raises:
            ValueError: A column name is reserved or repeated.
        """
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
        known = tuple(name for name in event_columns if name in schema.fieldNames())
        return cls(schema, time_zone, metadata, event_range, known)

    @property
    def required(self) -> frozenset[str]:
        """The columns that the schema declares as NOT NULL, and those of every message."""
        return frozenset((*(field.name for field in self._required()), *_OF_EVERY_MESSAGE))

    def columns(self, messages: StructType) -> StructType:
        """Return the fields, followed by the columns of `_own`."""
        # The parts of a value may be null, as in every object that Spark parses.
        own = _own_fields(messages, self.metadata)
        return StructType([*self.schema.toNullable().fields, *own])

    def bad_columns(self, messages: StructType) -> StructType:
        """Return the columns of `_with_reason`."""
        return _fields_with_reason(messages)

    def read(self, messages: DataFrame, batch: str) -> DataFrame:
        """Add the batch, the parsed object, and the columns of the other methods."""
        text, *steps = self._steps
        rows = messages.withColumns({_BATCH: F.lit(batch), **text})
        for columns in steps:
            rows = rows.withColumns(columns)
        return rows

    # PySpark needs a millisecond for each part of an expression, which is seconds for hundreds of
    # columns. So expressions are made once, and not for each batch.

    @cached_property
    def _steps(self) -> list[dict[str, Column]]:
        """Columns that `read` adds, in steps.

        Each step is a separate projection: Spark then evaluates an expensive column once, also if
        the next step uses it for many fields.
        """
        strict = self._strict
        # The second reading takes numbers as texts. It costs time, and few senders need it.
        lenient = replaced(strict, TEXT_NUMBERS)
        decimals = replaced(strict, TEXT_DECIMALS)
        missing = any_of([self._value(field.name).isNull() for field in self._required()])
        return [
            {_TEXT: F.ltrim(F.col(_DATA).cast("string"), F.lit(_BYTE_ORDER_MARK))},
            {
                _WHOLE: _is_one_value(),
                _UNKNOWN: names_outside(F.col(_TEXT), self.schema),
                _FIRST: _parsed(strict),
            },
            {
                _SECOND: F.when(~_is_parsed(_FIRST), _parsed(lenient)),
                _DECIMALS: F.lit(None)
                if decimals == strict
                else F.when(F.rlike(_TEXT, F.lit(_COMMA_IN_NUMBER)), _parsed(decimals)),
            },
            {
                _NUMBERS: F.when(_is_parsed(_FIRST), _object(_FIRST)).otherwise(
                    converted(_object(_SECOND), lenient, strict, self.time_zone)
                )
            },
            {_VALUE: converted(F.col(_NUMBERS), strict, self.schema, self.time_zone)},
            {_BAD: ~self._fits | missing | any_of([one.isNotNull() for one in self._far])},
        ]

    @cached_property
    def _strict(self) -> DataType:
        return replaced(self.schema, STRICT)

    @cached_property
    def _fits(self) -> Column:
        """The condition that the data is an object whose values have the types of the schema."""
        fits = (
            F.is_valid_utf8(_TEXT)
            & F.col(_WHOLE)
            & F.col(_VALUE).isNotNull()
            & (_is_parsed(_FIRST) | _is_parsed(_SECOND))
            & ~any_of(self._lost((), self.schema))
        )
        return F.coalesce(fits, F.lit(False))

    def _lost(self, path: tuple[str, ...], kind: DataType) -> list[Column]:
        """Return the conditions that a part of the value at a path does not fit its type."""
        strict = replaced(kind, STRICT)
        lenient, decimals = (replaced(strict, one) for one in (TEXT_NUMBERS, TEXT_DECIMALS))
        first, numbers, value = (
            at(_object(_FIRST), path),
            at(F.col(_NUMBERS), path),
            at(F.col(_VALUE), path),
        )
        return [
            # The first reading refuses texts for numbers: infinity is a number out of range.
            *places(first, first, strict, replaced(strict, FLOATING), is_infinite),
            *places(at(_object(_SECOND), path), numbers, lenient, strict, is_lost),
            *places(at(_object(_DECIMALS), path), numbers, decimals, strict, has_comma),
            *places(numbers, value, strict, kind, is_lost),
        ]

    def _unfit(self, path: tuple[str, ...], kind: DataType) -> Column:
        """Return the path and its type if the value may not fit; else null."""
        value, wanted = at(F.col(_VALUE), path), wanted_at(path, kind)
        match kind:
            case StructType():
                return wanted
            case ArrayType() | MapType() | DecimalType() | FloatType() | DoubleType():
                return F.when(value.isNull() | any_of(self._lost(path, kind)), wanted)
            case _:
                return F.when(value.isNull(), wanted)

    def is_bad(self) -> Column:
        """Return the condition that the data is malformed or does not fit the schema."""
        return F.col(_BAD)

    def counts(self) -> Mapping[str, Column]:
        """Return the fields outside the schema, and whether times were cut, of good messages."""
        return self._counts

    @cached_property
    def _counts(self) -> dict[str, Column]:
        cut = places(F.col(_NUMBERS), F.col(_VALUE), self._strict, self.schema, is_cut)
        return {
            "unknown_fields": F.when(~self.is_bad(), F.array_size(_UNKNOWN)),
            "cut_times": F.when(~self.is_bad(), any_of(cut).cast("int")),
        }

    def unknown(self) -> Column | None:
        """Return the paths of the fields outside the schema, of good messages."""
        return F.when(~self.is_bad(), F.col(_UNKNOWN))

    def good(self, read: DataFrame) -> DataFrame:
        """Return the fields as columns, followed by the prefixed message columns except `data`."""
        return read.where(~self.is_bad()).select(*self._fields, *_own(read, self.metadata))

    @cached_property
    def _fields(self) -> list[Column]:
        return [self._value(name).alias(name) for name in self.schema.fieldNames()]

    def bad(self, read: DataFrame) -> DataFrame:
        """Return the messages that do not fit the schema, and say why in the column `reason`.

        The message's own columns have the names of the good table, so that one query fits both.
        They are here in any case: without them nobody finds the message again.
        """
        rows = read.where(self.is_bad())
        # Parsed once for each row, and not once for each field.
        parsed = {_GIVEN: F.try_parse_json(_TEXT), _ANY: _parsed(StringType())}
        rows = rows.withColumns(parsed)
        return _with_reason(rows, self._reason)

    @cached_property
    def _reason(self) -> Column:
        missing = _listed(
            F.when(self._value(field.name).isNull(), field.name) for field in self._required()
        )
        values = [self._unfit(path, kind) for path, kind in paths(self.schema)]
        unfit = unfit_values(F.col(_GIVEN), values)
        is_object = F.startswith(F.ltrim(F.col(_TEXT)), F.lit("{"))
        is_whole = F.col(_WHOLE) & _is_parsed(_ANY)
        days = f"more than {(self.event_range or 0) / 86_400:g} days from the publish time: "
        return (
            F.when(F.coalesce(F.length(_DATA), F.lit(0)) == 0, "empty")
            .when(~F.is_valid_utf8(_TEXT), "not UTF-8")
            .when(~is_whole, "not one JSON value")
            .when(~is_object, "not a JSON object")
            .when(unfit != "", F.concat(F.lit("does not fit: "), unfit))
            .when(~self._fits, "a value does not fit the schema")
            .when(missing != "", F.concat(F.lit("missing: "), missing))
            .otherwise(F.concat(F.lit(days), _listed(self._far)))
        )

    @cached_property
    def _far(self) -> list[Column]:
        """The name of each event column, or null if it is not too far from the publish time."""
        if self.event_range is None:
            return []
        limit = round(self.event_range * 1_000_000)
        published = F.unix_micros("publish_time")
        return [
            F.when(F.abs(F.unix_micros(self._instant(name)) - published) > limit, name)
            for name in self.event_columns
        ]

    def _instant(self, name: str) -> Column:
        """Return a time as TIMESTAMP, independent of the session's zone."""
        match self.schema[name].dataType:
            case TimestampNTZType():
                return F.concat(self._value(name).cast("string"), F.lit("Z")).cast("timestamp")
            case DateType():
                text = F.concat(self._value(name).cast("string"), F.lit("T00:00:00Z"))
                return text.cast("timestamp")
            case _:
                return self._value(name)

    def _required(self) -> list[StructField]:
        return [field for field in self.schema.fields if not field.nullable]

    def _value(self, name: str) -> Column:
        return F.col(_VALUE).getField(name)


_OF_EVERY_MESSAGE = tuple(PREFIX + name for name in (*_ALWAYS, _BATCH))


def _own(read: DataFrame, metadata: bool) -> list[Column]:
    """Return the message's own columns, prefixed, and the batch; none without metadata."""
    names = [name for name in read.columns if name != _DATA and not name.startswith("_")]
    return [F.col(name).alias(PREFIX + name) for name in names] if metadata else []


def _own_fields(messages: StructType, metadata: bool) -> list[StructField]:
    """Return the columns of `_own`."""
    fields = [field for field in _prefixed(messages) if field.name != _DATA]
    return fields if metadata else []


def _fields_with_reason(messages: StructType) -> StructType:
    return StructType([*_prefixed(messages), StructField(_REASON, StringType())])


def _prefixed(messages: StructType) -> list[StructField]:
    """Return the columns of `_with_reason` without the reason."""
    fields = [*messages.fields, StructField(_BATCH, StringType())]
    return [
        StructField(field.name if field.name == _DATA else PREFIX + field.name, field.dataType)
        for field in fields
    ]


def _with_reason(read: DataFrame, reason: Column) -> DataFrame:
    """Return the data, the message's own columns and the batch, prefixed, and the reason."""
    own = [
        F.col(name).alias(name if name == _DATA else PREFIX + name)
        for name in read.columns
        if not name.startswith("_")
    ]
    return read.select(*own, reason.alias(_REASON))


# ---- JSON ----------------------------------------------------------------------------------------

# from_json stops at the end of the first value. Text after the value may close an array or an
# object, but not both, so the value is read inside both.


_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    # The other deviations from JSON that Spark knows are off by default.
    "allowSingleQuotes": "false",
    # "Infinity" is then read as a text only, so that it differs from 1e400.
    "allowNonNumericNumbers": "false",
}


def _is_one_value() -> Column:
    in_array = F.concat(F.lit("["), F.col(_TEXT), F.lit("]"))
    return F.coalesce(F.json_array_length(in_array) == 1, F.lit(False))


def _in_object() -> Column:
    return F.concat(F.lit('{"":'), F.col(_TEXT), F.lit("}"))


def _parsed(schema: DataType) -> Column:
    """Return a struct with the object, and the text if something in it does not fit."""
    columns = [StructField("", schema), StructField(_CORRUPT, StringType())]
    return F.from_json(_in_object(), StructType(columns), _OPTIONS)


def _object(parsed: str) -> Column:
    return F.col(parsed).getField("")


def _is_parsed(parsed: str) -> Column:
    # A text needs one call of Java, and methods of Column need five. A job makes 25 such columns.
    return F.expr(f"{parsed} IS NOT NULL AND {parsed}.{_CORRUPT} IS NULL")


def _check_zone(zone: str) -> None:
    query = "SELECT try_cast(concat('2026-11-01T00:00:00', :zone) AS TIMESTAMP) IS NOT NULL"
    if not zone or not local_session().sql(query, args={"zone": zone}).collect()[0][0]:
        raise ValueError(
            f"time_zone is {zone!r}; it must be the name of a time zone, such as Europe/Berlin, or "
            "an offset, such as +02:00"
        )


def _no_schema(ddl: str, reason: str) -> ValueError:
    return ValueError(
        f"schema is {ddl!r}; it must be column definitions, such as "
        f"'id BIGINT NOT NULL, tags ARRAY<STRING>' ({reason})"
    )


def _listed(texts: Iterable[Column]) -> Column:
    """Join the texts that are not null with commas."""
    return F.concat_ws(", ", *texts)
