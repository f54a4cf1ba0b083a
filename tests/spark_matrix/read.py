"""Reads a table with Spark and the jars of its format, and prints what it finds as JSON.

    python read.py delta FOLDER

Runs in an environment that has PySpark alone: nothing of pullstream is imported.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

PACKAGES = {
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
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


def main() -> None:
    format, folder = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").appName("matrix")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.ui.enabled", "false"
    )
    if format in PACKAGES:
        builder = builder.config("spark.jars.packages", PACKAGES[format])
    for name, value in SETTINGS[format].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if format == "iceberg":
        # The newest metadata, without a catalog.
        rows = spark.read.format("iceberg").load(newest_metadata(folder))
    else:
        rows = spark.read.format(format).load(folder)
    rows.createOrReplaceTempView("t")
    found = {
        name: sorted(row.id for row in spark.sql(f"SELECT id FROM t WHERE {where}").collect())
        for name, where in QUERIES.items()
    }
    print(json.dumps({"spark": spark.version, "columns": rows.columns, "found": found}))
    spark.stop()


def newest_metadata(folder: str) -> str:
    from pathlib import Path

    return str(max(Path(folder, "metadata").glob("*.metadata.json")))


if __name__ == "__main__":
    main()
