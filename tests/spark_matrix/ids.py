"""Prints the values of a table's column `id`, by Spark with the format's jars or by polars.

    python -m tests.spark_matrix.ids spark delta FOLDER

Ends with the exit code 3 if Spark does not start, which is mostly because its jars cannot be
fetched. Runs in a separate environment: nothing of pullstream is imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark_matrix.read import current_metadata, session

NO_SPARK = 3


def by_spark(format: str, place: str) -> list[int]:
    try:
        spark = session(format)
    except Exception as error:
        # Java has printed the cause before.
        print(error, file=sys.stderr)
        sys.exit(NO_SPARK)
    return [row.id for row in spark.read.format(format).load(place).select("id").collect()]


def by_polars(format: str, place: str) -> list[int]:
    import polars as pl

    if format == "delta":
        rows = pl.scan_delta(place)
    elif format == "iceberg":
        rows = pl.scan_iceberg(place)
    else:
        rows = pl.scan_parquet(list(Path(place).rglob("*.parquet")))
    found: list[int] = rows.select("id").collect()["id"].to_list()
    return found


def main() -> None:
    engine, format, folder = sys.argv[1:]
    place = current_metadata(folder) if format == "iceberg" else folder
    print(json.dumps((by_spark if engine == "spark" else by_polars)(format, place)))


if __name__ == "__main__":
    main()
