"""Drivers that are killed at each step of a batch: the table has the batch once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from pullstream.spark.tables.iceberg import IcebergTable

from .killed_driver import KINDS, STEPS, UPSERTS, Drivers, ids_of, key_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# The first driver dies when the files are there, and the second one after the commit. Then nothing
# is left to do for the third one, except for the files of the first one.
TWICE = (
    "executors have written the files",
    "the list or the version is there",
    "the catalog has the metadata",
)


@pytest.fixture(scope="module")
def drivers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    running = Drivers(spark, tmp_path_factory.mktemp("drivers") / "log")
    yield running
    running.end()
    # Killed drivers have left some.
    spark.catalog.clearCache()


def rows_in(kind: str, folder: Path) -> pa.Table:
    """Return the rows that a reader finds, without our code where that is possible."""
    match kind.partition(" ")[0]:
        case "delta":
            return DeltaTable(str(folder)).to_pyarrow_table()
        case "iceberg":
            return IcebergTable(str(folder)).existing().scan().to_arrow()
        case _:
            # A plain reader knows no lists.
            return ds.dataset(folder, format="parquet").to_table()


def expected(kind: str, batches: int) -> list[int]:
    """Return the ids in the table after all batches up to a number."""
    ids = [id for number in range(batches) for id in ids_of(number)]
    if kind in UPSERTS:
        ids = list({key_of(id): id for id in ids}.values())
    return sorted(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_in_the_table_once_when_its_driver_is_killed_at_any_step(
    drivers: Drivers, tmp_path: Path, kind: str
) -> None:
    """A new driver writes each batch again. Bad records follow the same rule."""
    folder = tmp_path / "rows"
    names = [step.name for step in STEPS if kind in step.places]
    deaths = [*([name] for name in names), [name for name in TWICE if name in names]]
    for number, steps in enumerate(deaths):
        for step in steps:
            # The driver first writes the batch of the last one that was killed.
            last = [(number - 1, None)] if number and step == steps[0] else []
            assert drivers.run(kind, folder, [*last, (number, step)]), step
            if kind != "parquet":
                found = sorted(rows_in(kind, folder)["id"].to_pylist())
                assert found in (expected(kind, number), expected(kind, number + 1)), step
    assert not drivers.run(kind, folder, [(len(deaths) - 1, None)])
    assert sorted(rows_in(kind, folder)["id"].to_pylist()) == expected(kind, len(deaths))
    bad = rows_in(kind, tmp_path / "rows-deadletter")["data"].to_pylist()
    assert sorted(bad) == sorted(f"bad {number}".encode() for number in range(len(deaths)))
