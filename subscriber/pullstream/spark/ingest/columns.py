"""Columns of an ingestion's table: conflicts of names, and types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pullstream.spark.datasource.source import PubSubDataSource

from .config import IngestJob
from .decoding import DERIVED, Decoding
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_schema(
    session: SparkSession, job: IngestJob, decoding: Decoding, target: Target
) -> StructType:
    """Return the columns of the rows that the job will write, without the derived ones.

    Args:
        session: The Spark session.
        job: The configuration.
        decoding: Decoding of the messages.
        target: The table.

    Raises:
        ValueError: A column has a name that the job needs itself, `partition_by` names a column
            that does not exist, or an option is unknown.
    """
    messages = PubSubDataSource(CaseInsensitiveDict(job.options)).schema()
    schema = decoding.good(decoding.read(session.createDataFrame([], messages))).schema
    columns = schema.fieldNames()
    for name in job.partition_by:
        if name not in (*columns, *DERIVED):
            raise ValueError(
                f"partition_by has {name!r}, which is not a column of the table; the columns are "
                f"{', '.join((*columns, *DERIVED))}"
            )
    derived = [name for name in job.partition_by if name in DERIVED]
    for name in columns:
        # Spark ignores case, as most readers of tables do.
        if name.lower() in derived:
            raise ValueError(
                f"schema has the column {name!r}, but in partition_by this name means the publish "
                "time; remove it from one of them"
            )
        if name.lower() in target.reserved:
            raise ValueError(
                f"schema has the column {name!r}, whose name is reserved: with the format "
                f"{job.format!r} the job adds {' and '.join(target.reserved)} itself; remove it"
            )
    return schema


def kinds(schema: StructType) -> dict[str, str]:
    """Return the type of each column and its parts, by paths such as `n`, `n.field`, `n[]`."""
    return dict(_parts("", schema))


def _parts(path: str, kind: DataType) -> Iterator[tuple[str, str]]:
    match kind:
        case StructType():
            dot = "." if path else ""
            parts = {f"{dot}{field.name.lower()}": field.dataType for field in kind.fields}
        case ArrayType():
            parts = {"[]": kind.elementType}
        case MapType():
            parts = {"{key}": kind.keyType, "{value}": kind.valueType}
        case _:
            yield path, kind.simpleString()
            return
    if path:
        yield path, kind.typeName()
    for name, part in parts.items():
        yield from _parts(path + name, part)
