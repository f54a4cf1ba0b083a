"""Values in JSON objects: the types with which Spark reads them, and the table's types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

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

# The names from the object to a field in it, and the field's type.
Path = tuple[tuple[str, ...], DataType]

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
FLOATING: Mapping[type[DataType], DataType] = dict.fromkeys((FloatType, DoubleType), StringType())

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
            # Spark reads the number 1e400 as a text with quotes, "Infinity", which is not matched.
            number = F.when(_is(value, _DOUBLE), value).try_cast(want)
            return F.when(~_is_infinite(number) | F.endswith(value, F.lit("Infinity")), number)
        case ShortType() | IntegerType() | LongType():
            text = F.when(_is(value, _INTEGER), value)
        case _:
            text = value
    return text.try_cast(want)


def _is_infinite(number: Column) -> Column:
    return F.abs(number) == F.lit(math.inf)


def _is(text: Column, pattern: str) -> Column:
    return F.rlike(text, F.lit(rf"\A(?:{pattern})\z"))


def paths(kind: StructType, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the path and the type of each field, also of those in objects."""
    for field in kind.fields:
        path = (*above, field.name)
        yield path, field.dataType
        if isinstance(field.dataType, StructType):
            yield from paths(field.dataType, path)


def json_path(path: Sequence[str]) -> str:
    """Return a path as `get_json_object` takes it. No name may have an apostrophe."""
    return "$" + "".join(f"['{name}']" for name in path)


def at(value: Column, path: Sequence[str]) -> Column:
    """Return the part of a struct at a path."""
    for name in path:
        value = value.getField(name)
    return value


_OBJECT = "struct"
# Around the type of a given value in Spark's words, until these are replaced.
_BEGIN, _END = "\u0001", "\u0002"
_INTEGER_TYPE = "(?<= (?:tinyint|smallint|int|bigint) )"
_FLOATING_TYPE = "(?<= (?:float|double) )"
_DECIMAL_TYPE = r"(?<= decimal\(\d{1,2},\d{1,2}\) )"
_ANY_NUMBER = rf"{_BEGIN}(?:BIGINT|DECIMAL|DOUBLE)[^{_END}]*{_END}"
_WORDS = {
    # A number of 19 digits or more does not fit an integer. A smaller decimal is 1.5, or 1.0.
    rf"{_INTEGER_TYPE}{_BEGIN}(?:BIGINT|DECIMAL\((?:19|[23]\d),0\)){_END}": (
        "(given: number out of range)"
    ),
    rf"{_INTEGER_TYPE}{_BEGIN}DECIMAL[^{_END}]*{_END}": "(given: number with a fraction)",
    rf"{_FLOATING_TYPE}{_ANY_NUMBER}": "(given: number out of range)",
    rf"{_DECIMAL_TYPE}{_ANY_NUMBER}": "(given: number with too many digits)",
    rf"{_BEGIN}((?:ARRAY<)*[A-Z]+)[^{_END}]*{_END}": "(given: $1)",
    r"(?<=given: )((?:ARRAY<)*)ARRAY<(?:VARIANT|VOID)\)": "$1ARRAY)",
    r"(?<=given: )((?:ARRAY<)*)(?:BIGINT|DECIMAL|DOUBLE|FLOAT)\)": "$1number)",
    r"(?<=given: )((?:ARRAY<)*)STRING\)": "$1string)",
    r"(?<=given: )((?:ARRAY<)*)BOOLEAN\)": "$1boolean)",
    r"(?<=given: )((?:ARRAY<)*)OBJECT\)": "$1object)",
    r"(?<=given: )((?:ARRAY<)*)ARRAY\)": "$1array)",
    r"ARRAY<(?=(?:ARRAY<)*(?:number|string|boolean|object|array)\))": "array of ",
}


def wanted_at(path: Sequence[str], kind: DataType) -> Column:
    """Return a path and the wanted type there, for `unfit_values`."""
    wanted = _OBJECT if isinstance(kind, StructType) else kind.simpleString()
    steps = "".join(f"['{name}']" if '"' in name else f'["{name}"]' for name in path)
    return F.lit(f"{'.'.join(path)} {wanted}{_BEGIN}${steps}")


def unfit_values(given: Column, wanted: Sequence[Column]) -> Column:
    """Return a text with the paths, the wanted types and the given types of values.

    Values that are missing, or null, are left out, and so are objects where one is wanted.

    Args:
        given: The JSON object as a variant.
        wanted: Results of `wanted_at`, or null.
    """

    # One function for all columns: an expression for each of hundreds would take Spark minutes.
    def described(one: Column) -> Column:
        want, path = (F.split_part(one, F.lit(_BEGIN), F.lit(part)) for part in (1, 2))
        kind = F.schema_of_variant(F.try_variant_get(given, path, "variant"))
        is_object = F.endswith(want, F.lit(f" {_OBJECT}")) & F.startswith(kind, F.lit("OBJECT"))
        text = F.concat(want, F.lit(f" {_BEGIN}"), kind, F.lit(_END))
        return F.when((kind != "VOID") & ~is_object, text)

    # An array of two or more texts has the type of texts also if there is none.
    found = F.array_compact(F.array(F.lit(None).cast("string"), *wanted))
    text = F.array_join(F.transform(found, described), ", ")
    for pattern, words in _WORDS.items():
        text = F.regexp_replace(text, pattern, words)
    return text


def names_outside(text: Column, schema: StructType) -> Column:
    """Return the paths of the fields of a JSON object that a schema does not name.

    Arrays and maps are not looked into, nor are objects whose name has an apostrophe.
    """
    found = [_outside(text, schema, "")]
    for path, kind in paths(schema):
        if isinstance(kind, StructType) and not any("'" in name for name in path):
            inside = F.get_json_object(text, json_path(path))
            found.append(_outside(inside, kind, "".join(f"{name}." for name in path)))
    return F.concat(*found)


def _outside(text: Column, schema: StructType, prefix: str) -> Column:
    known = F.array(*map(F.lit, schema.fieldNames())).cast("array<string>")
    names = F.coalesce(F.array_except(F.json_object_keys(text), known), _no_names())
    return F.transform(names, lambda name: F.concat(F.lit(prefix), name)) if prefix else names


def _no_names() -> Column:
    return F.array().cast("array<string>")


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


def is_infinite(value: Column, made: Column, want: DataType) -> Column:
    """Return whether a number is infinite. A test for `places`."""
    return _is_infinite(value)


def any_of(conditions: Sequence[Column]) -> Column:
    """Return whether a condition is true; null counts as false."""
    # One expression of any length: hundreds of nested ones overflow Java's stack. It needs two
    # values or more.
    return F.greatest(F.lit(False), F.lit(False), *conditions)
