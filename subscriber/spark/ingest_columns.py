"""The columns of an ingestion's table: whether they go together, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from .decoding import DERIVED, Decoding
from .ingest_job import IngestJob
from .source import PubSubDataSource
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_schema(
    session: SparkSession, job: IngestJob, decoding: Decoding, target: Target
) -> StructType:
    """The columns of the rows that the job will write, without the derived ones.

    Raises:
        ValueError: the job needs the name of one for a column of its own, `partition_by` has a
            column that is not there, or an option is not one.
    """
    messages = PubSubDataSource(CaseInsensitiveDict(job.options)).schema()
    schema = decoding.good(decoding.read(session.createDataFrame([], messages))).schema
    columns = schema.fieldNames()
    for name in job.partition_by:
        if name not in (*columns, *DERIVED):
            raise ValueError(
                f"partition_by has {name!r}, which is no column of the table; there are "
                f"{', '.join((*columns, *DERIVED))}"
            )
    derived = [name for name in job.partition_by if name in DERIVED]
    for name in columns:
        # Spark, as most readers of tables, makes no difference by case.
        if name.lower() in derived:
            raise ValueError(
                f"schema has the column {name!r}, a name that is taken: by it partition_by means "
                "the time of publishing; leave the one or the other out"
            )
        if name.lower() in target.reserved:
            raise ValueError(
                f"schema has the column {name!r}, a name that is taken: with the format "
                f"{job.format!r} the job has {' and '.join(target.reserved)} itself; leave it out"
            )
    return schema


def kinds(schema: StructType) -> dict[str, str]:
    """What each column holds, and each part of it, by paths such as `n`, `n.field`, `n[]`."""
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
