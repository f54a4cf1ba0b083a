"""Conversion of rows to messages for publishing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pullstream_protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# By column: the allowed types, in Spark's simple form.
COLUMNS: dict[str, tuple[str, ...]] = {
    "data": ("binary", "string"),
    "attributes": ("map<string,string>",),
    "ordering_key": ("string",),
}
_SELECT = ", ".join(repr(column) for column in COLUMNS)


def check_columns(schema: StructType) -> None:
    """Check that rows with this schema can be published.

    Raises:
        ValueError: There is another column, a column has another type, or there is neither data nor
            attributes.
    """
    for field in schema.fields:
        types = COLUMNS.get(field.name)
        found = field.dataType.simpleString()
        if types is None:
            raise ValueError(
                f"column {field.name!r} is not part of a message; the allowed columns are "
                f"{', '.join(COLUMNS)}: df.select({_SELECT})"
            )
        if found not in types:
            raise ValueError(
                f"column {field.name!r} has the type {found}; it must be {' or '.join(types)}"
            )
    if not {"data", "attributes"} & set(schema.fieldNames()):
        raise ValueError("the rows have neither a column 'data' nor 'attributes'; add one of them")


def messages_of(batch: pa.RecordBatch) -> Iterator[pubsub.PubsubMessage]:
    """Yield a message for each row. A null counts as an absent column.

    Raises:
        ValueError: A row has neither data nor attributes, or an attribute without a value.
    """
    columns = [
        batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        for name in COLUMNS
    ]
    for data, attributes, ordering_key in zip(*columns, strict=True):
        if not data and not attributes:
            raise ValueError(
                "a row has neither data nor attributes, but Pub/Sub accepts no empty messages; "
                "filter such rows out: df.where('length(data) > 0')"
            )
        yield pubsub.PubsubMessage(
            data=data.encode() if isinstance(data, str) else data,
            attributes=_attributes(attributes) if attributes else None,
            ordering_key=ordering_key,
        )


def _attributes(pairs: list[tuple[str, str | None]]) -> dict[str, str]:
    """Convert an Arrow map, whose values may be null and whose keys may not."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if value is None:
            raise ValueError(f"attribute {key!r} of a row is null; it must be a string")
        found[key] = value
    return found
