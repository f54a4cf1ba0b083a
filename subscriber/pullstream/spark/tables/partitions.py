"""Partition expressions: `country`, `day(timestamp)`, `hour(timestamp)`, `bucket(16, customer)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from .data_files import PartitionField

_NAME = r"(?:`([^`]+)`|([^\W\d]\w*))"
_COLUMN = re.compile(_NAME)
_TIME = re.compile(rf"(day|hour)\s*\(\s*{_NAME}\s*\)", re.IGNORECASE)
_BUCKET = re.compile(rf"bucket\s*\(\s*(\d+)\s*,\s*{_NAME}\s*\)", re.IGNORECASE)

# Time comes first, so that a reader of one day lists one folder.
_ORDER = {"day": 0, "hour": 1, "identity": 2, "bucket": 3}

_FORMS = "COLUMN, day(COLUMN), hour(COLUMN), or for Iceberg bucket(NUMBER, COLUMN)"

_FEW_VALUES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
)
_BUCKETED: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_int32,
    pa.types.is_int64,
)


@dataclass(frozen=True)
class PartitionExpression:
    """An expression as the user wrote it, before the columns are known.

    Attributes:
        transform: "identity", "day", "hour" or "bucket".
        column: The column.
        buckets: Number of buckets; 0 for other transforms.
    """

    transform: str
    column: str
    buckets: int = 0

    @classmethod
    def parse(cls, text: str) -> PartitionExpression:
        """Parse an expression.

        Raises:
            ValueError: The text is not an expression.
        """
        text = text.strip()
        if match := _COLUMN.fullmatch(text):
            return cls("identity", match[1] or match[2])
        if match := _TIME.fullmatch(text):
            return cls(match[1].lower(), match[2] or match[3])
        if match := _BUCKET.fullmatch(text):
            if not 0 < int(match[1]) < 2**31:
                raise ValueError(f"partition_by has {text!r}; it must have 1 bucket or more")
            return cls("bucket", match[2] or match[3], int(match[1]))
        raise ValueError(f"partition_by has {text!r}; it must be {_FORMS}")

    @property
    def name(self) -> str:
        """Name of the value: the column's, with the name of the transform behind it."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        match self.transform:
            case "identity":
                return self.column
            case "bucket":
                return f"bucket({self.buckets}, {self.column})"
            case _:
                return f"{self.transform}({self.column})"


def partition_fields(
    expressions: Sequence[PartitionExpression], schema: pa.Schema
) -> tuple[PartitionField, ...]:
    """Return the values by which rows are divided, those of time first.

    Raises:
        ValueError: A column does not exist, has a type without a use for that, or has the name of
            a value.
    """
    fields = []
    for one in sorted(expressions, key=lambda each: _ORDER[each.transform]):
        if one.column not in schema.names:
            raise ValueError(
                f"partition_by has {str(one)!r}, but the table has no column {one.column!r}; its "
                f"columns are {', '.join(schema.names)}"
            )
        kind = schema.field(one.column).type
        allowed = _allowed(one.transform)
        if not any(test(kind) for test in allowed):
            raise ValueError(
                f"partition_by has {str(one)!r}, but the type of {one.column!r} is {kind}; "
                f"{_why(one.transform)}"
            )
        if one.name != one.column and one.name.lower() in {name.lower() for name in schema.names}:
            raise ValueError(
                f"partition_by has {str(one)!r}, which adds the column {one.name!r}, but the table "
                "has a column of this name; rename it"
            )
        transform = one.transform
        if transform == "identity" and pa.types.is_date(kind):
            transform = "date"
        fields.append(PartitionField(transform, one.column, one.buckets, one.name))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"partition_by has {name!r} more than once; remove all but one")
    return tuple(fields)


def with_values(schema: pa.Schema, fields: Sequence[PartitionField]) -> pa.Schema:
    """Return the columns, and those that partitioning adds where readers see folders as columns."""
    added = {"day": pa.date32(), "hour": pa.string()}
    for field in fields:
        if field.name not in schema.names:
            schema = schema.append(pa.field(field.name, added[field.transform]))
    return schema


def _allowed(transform: str) -> tuple[Callable[[pa.DataType], bool], ...]:
    match transform:
        case "day":
            return (pa.types.is_timestamp, pa.types.is_date)
        case "hour":
            return (pa.types.is_timestamp,)
        case "bucket":
            return _BUCKETED
        case _:
            return _FEW_VALUES


def _why(transform: str) -> str:
    match transform:
        case "day":
            return "it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"
        case "hour":
            return "it must be TIMESTAMP or TIMESTAMP_NTZ"
        case "bucket":
            return "it must be STRING, INT or BIGINT"
        case _:
            return "it must be STRING, BOOLEAN, DATE or an integer; for times, use day() or hour()"
