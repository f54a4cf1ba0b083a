"""Columns of a table, compared with those of the rows that a job writes."""

from __future__ import annotations

import pyarrow as pa

from pullstream.spark.errors import IngestError


def check_columns(table: pa.Schema, rows: pa.Schema, place: str) -> None:
    """Check that a table has exactly the columns of the rows, with types that fit.

    Args:
        table: Columns of the table.
        rows: Columns of the rows, with those that partitioning adds.
        place: Description of the table.

    Raises:
        IngestError: A column is missing, has another type, or must not be null in the table.
    """
    for field in rows:
        if field.name not in table.names:
            raise IngestError(
                f"{place} has no column {field.name!r}, which the rows have as "
                f"{type_name(field.type)}; add it to the table, or leave it out of the job"
            )
        known = table.field(field.name)
        if not fits(field.type, known.type):
            raise IngestError(
                f"the column {field.name!r} of {place} is {type_name(known.type)}, and the rows "
                f"have {type_name(field.type)}; give the job the type of the table, or write to "
                "another table"
            )
        if field.nullable and not known.nullable:
            raise IngestError(
                f"the column {field.name!r} of {place} must not be null, but it may be null in "
                "the rows; declare it as NOT NULL in the schema of the job"
            )
    for known in table:
        if known.name not in rows.names and not known.nullable:
            raise IngestError(
                f"the column {known.name!r} of {place} must not be null, and the rows do not have "
                "it; add it to the schema of the job"
            )


def fits(rows: pa.DataType, table: pa.DataType) -> bool:
    """Return whether values of the one type can be stored in columns of the other unchanged."""
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        known = {field.name: field for field in table}
        return all(
            field.name in known
            and fits(field.type, known[field.name].type)
            and (known[field.name].nullable or not field.nullable)
            for field in rows
        ) and all(field.nullable or field.name in {one.name for one in rows} for field in table)
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return fits(rows.key_type, table.key_type) and fits(rows.item_type, table.item_type)
    if _is_list(rows) and _is_list(table):
        return fits(rows.value_type, table.value_type)
    return bool(_plain(rows) == _plain(table))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without the difference between Arrow's layouts of the same values."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    return kind


def type_name(kind: pa.DataType) -> str:
    """Return a type as Spark's SQL names it, where that is a plain type."""
    names = {
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.bool_(): "BOOLEAN",
        pa.string(): "STRING",
        pa.binary(): "BINARY",
        pa.date32(): "DATE",
        pa.timestamp("us", "UTC"): "TIMESTAMP",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
    }
    return names.get(_plain(kind), str(kind))
