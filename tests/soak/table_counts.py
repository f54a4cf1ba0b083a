"""The rows of a table, as each engine finds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as PyIcebergTable

from tests.spark_matrix.readers import Unavailable, ids_by_polars, ids_by_spark
from tests.spark_matrix.run import READERS

from .ingestion import Place


@dataclass(frozen=True)
class Count:
    """The rows that an engine finds.

    Attributes:
        engine: Its name.
        ids: The id of each row. None: the engine was skipped.
        why: Why it was skipped.
    """

    engine: str
    ids: list[int] | None
    why: str = ""


def counts(place: Place) -> Iterator[Count]:
    """Yield the rows of each engine, the independent ones first.

    Raises:
        Unreadable: An engine cannot read the table.
    """
    if place.server is not None:
        yield Count("psql", [*map(int, place.server.query(f"SELECT id FROM {place.name}"))])
        return
    format, table = place.format, place.table
    yield _unless_skipped(f"PySpark {READERS[format]}", lambda: ids_by_spark(format, table))
    yield _unless_skipped("polars", lambda: ids_by_polars(format, table))
    libraries = {"delta": "deltalake", "iceberg": "pyiceberg"}
    yield Count(libraries.get(format, "pyarrow"), _ids_by_library(place))


def _unless_skipped(engine: str, read: Callable[[], list[int]]) -> Count:
    try:
        return Count(engine, read())
    except Unavailable as error:
        return Count(engine, None, str(error))


def _ids_by_library(place: Place) -> list[int]:
    """Return the ids by the library that also writes the table."""
    match place.format:
        case "delta":
            engine = QueryBuilder().register("t", DeltaTable(str(place.table)))
            rows = pa.table(engine.execute("SELECT id FROM t").read_all())
        case "iceberg":
            rows = iceberg_table(place.table).scan(selected_fields=("id",)).to_arrow()
        case _:
            named, replaced = set[str](), set[str]()
            for path in (place.table / "_batches").glob("*.json"):
                known = json.loads(path.read_text())
                named.update(known["files"])
                replaced.update(known.get("replaces", ()))
            files = [str(place.table / name) for name in named - replaced]
            rows = ds.dataset(files, format=place.format).to_table(columns=["id"])
    found: list[int] = rows.column("id").to_pylist()
    return found


def iceberg_table(folder: Path) -> PyIcebergTable:
    """Return a table of the catalog in the parent folder."""
    uri = f"sqlite:///{folder.parent}/catalog.db"
    return load_catalog("default", type="sql", uri=uri).load_table(("default", folder.name))
