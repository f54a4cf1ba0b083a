"""Reads tables with Spark and the jars of their format, and prints the found ids as JSON.

    python read.py delta FOLDER [FOLDER ...]

Prints a line for each table. An Iceberg table may also be in a REST catalog: URL#NAMESPACE.TABLE.
Runs in an environment that has PySpark: nothing of pullstream is imported.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

PACKAGES = {
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    },
    "parquet": {},
}
# A query for each way to find rows: counts, and the filters of readers.
QUERIES = {
    "rows": "true",
    "country = 'DE'": "country = 'DE'",
    "country is null": "country IS NULL",
    "at of one day": "at >= TIMESTAMP '2026-03-02' AND at < TIMESTAMP '2026-03-03'",
    "at is null": "at IS NULL",
    "id = 7": "id = 7",
    "before": "at < TIMESTAMP '2026-03-02'",
}


def session(format: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("matrix")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.ui.enabled", "false"
    )
    # The tables are small.
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    if format in PACKAGES:
        builder = builder.config("spark.jars.packages", PACKAGES[format])
    for name, value in SETTINGS.get(format, {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    format, *folders = sys.argv[1:]
    spark = session(format)
    for folder in folders:
        load(spark, format, folder).createOrReplaceTempView("t")
        found = {
            name: sorted(row.id for row in spark.sql(f"SELECT id FROM t WHERE {where}").collect())
            for name, where in QUERIES.items()
        }
        print(json.dumps({"spark": spark.version, "found": found}), flush=True)
    spark.stop()


def load(spark: SparkSession, format: str, folder: str) -> DataFrame:
    url, _, name = folder.partition("#")
    if name:
        spark.conf.set("spark.sql.catalog.rest", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set("spark.sql.catalog.rest.type", "rest")
        spark.conf.set("spark.sql.catalog.rest.uri", url)
        return spark.table(f"rest.{name}")
    place = current_metadata(folder) if format == "iceberg" else folder
    return spark.read.format(format).load(place)


def current_metadata(folder: str) -> str:
    """Return the current metadata file by the catalog in the parent folder.

    The newest file may be one of a killed commit.
    """
    with closing(sqlite3.connect(Path(folder).parent / "catalog.db")) as catalog:
        (found,) = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?",
            [Path(folder).name],
        ).fetchone()
    return str(found)


if __name__ == "__main__":
    main()
