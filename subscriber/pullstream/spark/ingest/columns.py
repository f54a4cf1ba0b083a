"""Columns of an ingestion's table: conflicts of names, and types."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pullstream.spark.datasource.source import message_columns
from pullstream.spark.pyspark_version import passes_start

from .config import IngestJob
from .decoding import Decoding
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def decoded_schemas(
    session: SparkSession, job: IngestJob, decoding: Decoding
) -> tuple[StructType, StructType]:
    """Return the columns of the good and of the bad rows, without columns of partitioning.

    Spark finds them by an analysis of the decoding, which takes a few tenths of a second.

    Args:
        session: The Spark session.
        job: The configuration.
        decoding: Decoding of the messages.
    """
    read = decoding.read(session.createDataFrame([], message_schema(job)), "")
    return decoding.good(read).schema, decoding.bad(read).schema


def message_schema(job: IngestJob) -> StructType:
    """Return the columns of the source."""
    return message_columns(CaseInsensitiveDict(job.options))


def arrow_schema(schema: StructType, required: Collection[str]) -> pa.Schema:
    """Return the Arrow schema of rows, with the columns that are never null.

    Args:
        schema: The columns of the rows.
        required: Names of columns that the decoding never leaves null.

    Raises:
        ValueError: A column has a type that tables do not have.
    """
    try:
        # The argument is new in 4.2. Before, UTC was the only zone.
        zone: Any = {"timezone": "UTC"} if passes_start() else {}
        columns = to_arrow_schema(schema, **zone)
    except PySparkException as error:
        raise ValueError(f"the schema has a type that tables do not have: {error}") from None
    return pa.schema([field.with_nullable(field.name not in required) for field in columns])


def check_names(schema: StructType, target: Target, format: str) -> None:
    """Raise ValueError if a column has a name that the target needs itself."""
    for name in schema.fieldNames():
        if name.lower() in target.reserved:
            raise ValueError(
                f"schema has the column {name!r}, whose name is reserved: with the format "
                f"{format!r} the job adds {' and '.join(target.reserved)} itself; remove it"
            )


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
