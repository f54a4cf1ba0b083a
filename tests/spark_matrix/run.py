"""`make spark-matrix`: our tables, read by Spark with the formats' own jars.

    python -m tests.spark_matrix.run

Writes a table of each format, partitioned and not, and reads it in environments with other versions
of PySpark, with Delta's and Iceberg's own jars. Prints the versions that read every row and answer
every filter correctly. Needs Maven's central repository and a package index. Exits with 1 if a
reader finds other rows.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as View

from pullstream.spark.tables.batch import BatchName
from tests.spark_matrix.read import PACKAGES, QUERIES
from tests.subscriber.spark.tables.test_tables import SOURCE, rows, table, written

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "spark-matrix"

# The newest PySpark for which the format has jars; Parquet needs none.
READERS = {"delta": "4.2.1", "iceberg": "4.1.4", "parquet": "4.2.1"}
PARTITIONS: Sequence[tuple[str, ...]] = ((), ("country",), ("day(at)",), ("hour(at)", "country"))
BATCHES, ROWS = 3, 60


def environment(version: str) -> Path:
    """Return the Python of an environment with a version of PySpark; create it if necessary."""
    python = ENVIRONMENTS / version / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENTS / version)], check=True)
        packages = [f"pyspark=={version}", "pyarrow", "pandas<3"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def expected() -> dict[str, list[int]]:
    """Return the ids that each query must find."""
    day = datetime(2026, 3, 2, tzinfo=timezone.utc)
    everything: list[dict[str, Any]] = rows(*range(BATCHES * ROWS)).to_pylist()
    tests: dict[str, Callable[[dict[str, Any]], bool]] = {
        "rows": lambda row: True,
        "country = 'DE'": lambda row: row["country"] == "DE",
        "country is null": lambda row: row["country"] is None,
        "at of one day": lambda row: (
            row["at"] is not None and day <= row["at"] < day + timedelta(days=1)
        ),
        "at is null": lambda row: row["at"] is None,
        "id = 7": lambda row: row["id"] == 7,
        "before": lambda row: row["at"] is not None and row["at"] < day,
    }
    assert set(tests) == set(QUERIES)
    return {
        name: [row["id"] for row in everything if is_found(row)] for name, is_found in tests.items()
    }


def write(format: str, folder: str, partition_by: Sequence[str]) -> None:
    """Write a table in three batches."""
    to = table(format, folder, *partition_by)
    for number in range(BATCHES):
        batch = BatchName(SOURCE, number)
        some = rows(*range(number * ROWS, (number + 1) * ROWS))
        assert to.commit(written(to, some, batch), batch)


def main() -> None:
    console = Console()
    view = View("format", "partitioned by", "written by", "read by", "result")
    is_right = True
    for format, version in READERS.items():
        library = {"delta": "deltalake", "iceberg": "pyiceberg", "parquet": "pyarrow"}[format]
        writer = f"{library} {importlib.metadata.version(library)}"
        reader = f"PySpark {version}" + (f", {PACKAGES[format]}" if format in PACKAGES else "")
        for partition_by in PARTITIONS:
            with tempfile.TemporaryDirectory() as place:
                folder = f"{place}/orders"
                write(format, folder, partition_by)
                script = ROOT / "tests" / "spark_matrix" / "read.py"
                result = subprocess.run(
                    [environment(version), script, format, folder],
                    capture_output=True,
                    text=True,
                    check=False,
                )
            differences = _differences(result)
            is_right &= not differences
            text = differences or "every row, every filter"
            view.add_row(format, ", ".join(partition_by), writer, reader, text)
    console.print(view)
    sys.exit(0 if is_right else 1)


def _differences(result: subprocess.CompletedProcess[str]) -> str:
    if result.returncode:
        return result.stderr[-1500:]
    found = json.loads(result.stdout.splitlines()[-1])["found"]
    return ", ".join(name for name, ids in expected().items() if sorted(found[name]) != ids)


if __name__ == "__main__":
    main()
