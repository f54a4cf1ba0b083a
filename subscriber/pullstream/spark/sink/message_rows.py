"""Conversion of rows to messages for publishing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullstream.publisher.encoding import (
    check_size,
    encode_attributes,
    encode_data,
    encode_message,
    encode_ordering_key,
)
from pullstream_protocol.message_limits import is_added_on_delivery

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


def encode_rows(batch: pa.RecordBatch, topic: str) -> dict[str, list[bytes]]:
    """Return the encoded messages of all rows by ordering key, "" for none.

    A null counts as an absent column.

    Raises:
        ValueError: A row has neither data nor attributes, an attribute without a value or one that
            is too long, or it is too large.
    """
    data = _values(batch, "data")
    attributes = _values(batch, "attributes")
    keys = _values(batch, "ordering_key")
    data = [one.encode() if isinstance(one, str) else one or b"" for one in data]
    messages: dict[str, list[bytes]] = {}
    for content, pairs, key in zip(data, attributes, keys, strict=True):
        suffix = encode_ordering_key(key or "")
        given = _attributes(pairs or [])
        if given:
            suffix = encode_attributes(given) + suffix
        elif not content:
            raise ValueError(
                "a row has neither data nor attributes, but Pub/Sub accepts no empty messages; "
                "filter such rows out: df.where('length(data) > 0')"
            )
        entry = encode_message(content, suffix) if suffix else encode_data(content)
        check_size(topic, entry)
        messages.setdefault(key or "", []).append(entry)
    return messages


def _values(batch: pa.RecordBatch, column: str) -> list[Any]:
    if column in batch.schema.names:
        values: list[Any] = batch.column(column).to_pylist()
        return values
    return [None] * batch.num_rows


def _attributes(pairs: list[tuple[str, str | None]]) -> dict[str, str]:
    """Convert an Arrow map, whose values may be null and whose keys may not.

    Rows that were read from a subscription have the attributes that its server added, such as the
    name of the topic's schema. They do not belong to the new message.
    """
    found: dict[str, str] = {}
    for key, value in pairs:
        if is_added_on_delivery(key):
            continue
        if value is None:
            raise ValueError(f"attribute {key!r} of a row is null; it must be a string")
        found[key] = value
    return found
