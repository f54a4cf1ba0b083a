"""The oldest PySpark for each use, and the error for an older one."""

from __future__ import annotations

import pyspark

from .errors import FailureCause, ingest_error

# Sessions, and all uses of the data source except the sink.
LEAST = (4, 0)
# The writers of columns of data sources.
SINK = (4, 1)
# `latestOffset(start, limit)` of data sources, and their AvailableNow.
_WITH_START = (4, 2)
# The Java package of checkpoints, which was another one before.
_CHECKPOINTING = (4, 1)


def require_pyspark(least: tuple[int, int], use: str) -> None:
    """Check the version of PySpark.

    Args:
        least: The oldest version that will do.
        use: The use, as the subject of the error's sentence.

    Raises:
        IngestError: The installed PySpark is older.
    """
    if _installed() < least:
        needed = ".".join(map(str, least))
        raise ingest_error(
            f"{use} needs PySpark {needed} or later, and this is {pyspark.__version__}; "
            f"pip install 'pyspark>={needed}'",
            FailureCause.SPARK,
        )


def passes_start() -> bool:
    """Return whether PySpark passes the start of a batch, and knows AvailableNow of data sources.

    Without that, only the order of calls says that a batch is committed, and AvailableNow processes
    one batch.
    """
    return _installed() >= _WITH_START


def checkpoint_package() -> str:
    """Return the Java package of the managers of a checkpoint's files."""
    package = "org.apache.spark.sql.execution.streaming"
    return f"{package}.checkpointing" if _installed() >= _CHECKPOINTING else package


def _installed() -> tuple[int, int]:
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    return major, minor
