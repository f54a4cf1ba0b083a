"""Values in JSON objects: the types with which Spark reads them, and the table's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
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

# A condition on a value, the converted value and the converted type. None: it is always false.
Test = Callable[[Column, Column, DataType], Column | None]

_TIMES = (TimestampType, TimestampNTZType)

# Spark accepts more than one may want: "2026" and 1764000000 as times, 200 as the TINYINT -56.
STRICT: Mapping[type[DataType], DataType] = {
    TimestampType: StringType(),
    TimestampNTZType: StringType(),
    DateType: StringType(),
    ByteType: ShortType(),
}
# Spark refuses numbers as texts, except decimals. Decimals stay as they are: Spark reads a number
# as a text through a double.
TEXT_NUMBERS: Mapping[type[DataType], DataType] = dict.fromkeys(
    (ShortType, IntegerType, LongType, FloatType, DoubleType), StringType()
)
TEXT_DECIMALS: Mapping[type[DataType], DataType] = {DecimalType: StringType()}

_DAY = r"\d{4}-\d\d-\d\d"
_LOCAL = rf"{_DAY}[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?"
_ZONED = rf"{_LOCAL} ?(?:[Zz]|UTC|[+-]\d\d(?::?\d\d)?)"
_INTEGER = r"-?\d+"
_DOUBLE = r"NaN|-?Infinity|-?(?:\d+(?:\.\d*)?|\.\d+)(?:[Ee][+-]?\d+)?"
_NANOSECONDS = r"\.\d{6}\d*[1-9]"


def replaced(kind: DataType, types: Mapping[type[DataType], DataType]) -> DataType:
    """Return a type in which some types are replaced, at any depth."""
    match kind:
        case StructType():
            return StructType(
                [
                    StructField(field.name, replaced(field.dataType, types), field.nullable)
                    for field in kind.fields
                ]
            )
        case ArrayType():
            return ArrayType(replaced(kind.elementType, types), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, replaced(kind.valueType, types), kind.valueContainsNull)
        case _:
            return types.get(type(kind), kind)


def converted(value: Column, have: DataType, want: DataType, time_zone: str) -> Column:
    """Return a value as another type, with null in each place where it does not fit.

    Args:
        value: The value.
        have: Its type.
        want: The other type, of which `have` is a replacement.
        time_zone: Zone of times without one.
    """
    if have == want:
        return value
    match have, want:
        case StructType(), StructType():
            fields = [
                converted(value.getField(old.name), old.dataType, new.dataType, time_zone).alias(
                    new.name
                )
                for old, new in zip(have.fields, want.fields, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType(), ArrayType():
            old, new = have.elementType, want.elementType
            return F.transform(value, lambda one: converted(one, old, new, time_zone))
        case MapType(), MapType():
            old, new = have.valueType, want.valueType
            return F.transform_values(value, lambda _, one: converted(one, old, new, time_zone))
        case _:
            return _parsed(value, want, time_zone)


def _parsed(value: Column, want: DataType, time_zone: str) -> Column:
    match want:
        case TimestampType():
            # A zone in the text makes the cast independent of the session's zone.
            zone = F.lit(time_zone)
            text = (
                F.when(_is(value, _ZONED), F.upper(value))
                .when(_is(value, _LOCAL), F.concat(F.upper(value), zone))
                .when(_is(value, _DAY), F.concat(value, F.lit("T00:00:00"), zone))
            )
        case TimestampNTZType():
            text = F.when(_is(value, f"{_LOCAL}|{_DAY}"), F.upper(value))
        case DateType():
            text = F.when(_is(value, _DAY), value)
        case FloatType() | DoubleType():
            # Spark reads the number 1e400 as a text with quotes: "Infinity".
            text = F.translate(value, '"', "")
            text = F.when(_is(text, _DOUBLE), text)
        case ShortType() | IntegerType() | LongType():
            text = F.when(_is(value, _INTEGER), value)
        case _:
            text = value
    return text.try_cast(want)


def _is(text: Column, pattern: str) -> Column:
    return F.rlike(text, F.lit(rf"\A(?:{pattern})\z"))


def places(value: Column, made: Column, have: DataType, want: DataType, test: Test) -> list[Column]:
    """Return the test's conditions for all places in which the types differ.

    Args:
        value: The value.
        made: The value as the other type.
        have: Type of the value.
        want: The other type.
        test: The test.
    """
    if have == want:
        return []
    match have, want:
        case StructType(), StructType():
            found: list[Column] = []
            for old, new in zip(have.fields, want.fields, strict=True):
                one, made_one = value.getField(old.name), made.getField(new.name)
                found += places(one, made_one, old.dataType, new.dataType, test)
            return found
        case ArrayType(), ArrayType():
            return _elements(value, made, have.elementType, want.elementType, test)
        case MapType(), MapType():
            values = F.map_values(value), F.map_values(made)
            return _elements(*values, have.valueType, want.valueType, test)
        case _:
            condition = test(value, made, want)
            return [] if condition is None else [condition]


def _elements(
    values: Column, made: Column, have: DataType, want: DataType, test: Test
) -> list[Column]:
    def is_found(value: Column, one: Column) -> Column:
        return any_of(places(value, one, have, want, test))

    if not places(F.lit(None), F.lit(None), have, want, test):
        return []
    return [F.exists(F.zip_with(values, made, is_found), lambda found: found)]


def is_lost(value: Column, made: Column, want: DataType) -> Column:
    """Return whether a value does not fit the other type. A test for `places`."""
    return value.isNotNull() & made.isNull()


def is_cut(value: Column, made: Column, want: DataType) -> Column | None:
    """Return whether a time has lost nanoseconds. A test for `places`."""
    return F.rlike(value, F.lit(_NANOSECONDS)) if isinstance(want, _TIMES) else None


def has_comma(value: Column, made: Column, want: DataType) -> Column:
    """Return whether a text has a comma. A test for `places`."""
    return F.contains(value, F.lit(","))


def any_of(conditions: Sequence[Column]) -> Column:
    """Return whether a condition is true; null counts as false."""
    # One expression of any length: hundreds of nested ones overflow Java's stack. It needs two
    # values or more.
    return F.greatest(F.lit(False), F.lit(False), *conditions)
