"""Spark's process for the source of a stream, without a trace if Spark waits for it no longer.

Spark gives up after 10 s and closes the socket to which the process connects. The ingestion job
then starts its query again.

This file runs as a separate module: pullstream is imported when it is needed.
"""

from __future__ import annotations

import runpy
import sys

from pyspark.errors import PySparkRuntimeError

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def main() -> None:
    """Run pyspark's module as the main program."""
    try:
        runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)
    except PySparkRuntimeError as error:
        if error.getCondition() != "CANNOT_OPEN_SOCKET":
            raise
        sys.exit(1)


if __name__ == "__main__":
    main()
