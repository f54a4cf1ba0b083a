"""Columns of a table, compared with those of the rows that a job writes."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pullstream.spark.errors import IngestError

from .merge import DELETED

# Types that a table may change to without a change of its files, if its format allows that.
_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


class ColumnCheck:
    """Compares the columns of a table with those of the rows.

    Args:
        place: Description of the table.
        may_add: Whether columns may be added to the table.
        may_widen: Whether types may be widened then: INT to BIGINT, FLOAT to DOUBLE.
    """

    def __init__(self, place: str, *, may_add: bool = False, may_widen: bool = False) -> None:
        self._place = place
        self._may_add = may_add
        self._may_widen = may_add and may_widen

    def must_change(self, table: pa.Schema, rows: pa.Schema) -> bool:
        """Return whether the table must get columns or wider types before it can take the rows.

        Args:
            table: Columns of the table.
            rows: Columns of the rows, with those that partitioning adds.

        Raises:
            IngestError: The table cannot take the rows, or must not be changed like that.
        """
        return self._fields(table, rows, "")

    def _fields(self, table: Iterable[pa.Field], rows: Iterable[pa.Field], path: str) -> bool:
        known = {field.name: field for field in table}
        by_lower = {name.lower(): name for name in known}
        given = {field.name for field in rows}
        changes = False
        for field in rows:
            name = path + field.name
            if field.name in known:
                column = known[field.name]
                if field.nullable and not column.nullable:
                    raise IngestError(
                        f"the column {name!r} of {self._place} must not be null, but it may be "
                        "null in the rows; declare it as NOT NULL in the schema of the job"
                    )
                changes |= self._types(column.type, field.type, name)
            elif field.name.lower() in by_lower:
                raise IngestError(
                    f"{self._place} has the column {path + by_lower[field.name.lower()]!r}, and "
                    f"the rows have {name!r}; give both the same name, because most readers ignore "
                    "case"
                )
            else:
                self._add(field, name)
                changes = True
        for column in known.values():
            if column.name not in given and column.name == DELETED:
                raise IngestError(
                    f"{self._place} keeps one row for each key (--merge-on), and this job appends "
                    "rows, so a key would get a second row; give the job the options of the table, "
                    "or write to another table"
                )
            if column.name not in given and not column.nullable:
                raise IngestError(
                    f"the column {path + column.name!r} of {self._place} must not be null, and the "
                    "rows do not have it; add it to the schema of the job"
                )
        return changes

    def _add(self, field: pa.Field, name: str) -> None:
        if not self._may_add:
            raise IngestError(
                f"{self._place} has no column {name!r}, which the rows have as "
                f"{type_name(field.type)}; let the job add it (--evolve add), or leave it out of "
                "the job's schema"
            )
        if not field.nullable:
            raise IngestError(
                f"{self._place} has no column {name!r}, which is NOT NULL in the job's schema; a "
                "column that is added to a table must be nullable, because the rows before do not "
                "have it"
            )

    def _types(self, table: pa.DataType, rows: pa.DataType, name: str) -> bool:
        if pa.types.is_struct(rows) and pa.types.is_struct(table):
            return self._fields(list(table), list(rows), f"{name}.")
        if pa.types.is_map(rows) and pa.types.is_map(table):
            changes = self._types(table.key_type, rows.key_type, f"{name}.key")
            return self._types(table.item_type, rows.item_type, f"{name}.value") or changes
        if _is_list(rows) and _is_list(table):
            return self._types(table.value_type, rows.value_type, f"{name}.element")
        before, now = _plain(table), _plain(rows)
        if before == now:
            return False
        if self._may_widen and _WIDER.get(before) == now:
            return True
        raise IngestError(
            f"the column {name!r} of {self._place} is {type_name(before)}, and the rows have "
            f"{type_name(now)}; give the job the type of the table, or write to another table"
        )


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
    """Return a type as Spark's SQL names it."""
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{field.name} {type_name(field.type)}" for field in kind)
        return f"STRUCT<{fields}>"
    if pa.types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if _is_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
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
