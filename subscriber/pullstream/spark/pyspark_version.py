"""The oldest PySpark for each use, and the error for an older one."""

from __future__ import annotations

import pyspark

from .errors import FailureCause, ingest_error

# Streams need `latestOffset(start, limit)` of data sources, which 4.2 has first.
STREAMS = (4, 2)
# Sessions, batch reads and the sink.
BATCHES = (4, 1)


def require_pyspark(least: tuple[int, int], use: str) -> None:
    """Check the version of PySpark.

    Args:
        least: The oldest version that will do.
        use: The use, as the subject of the error's sentence.

    Raises:
        IngestError: The installed PySpark is older.
    """
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    if (major, minor) < least:
        needed = ".".join(map(str, least))
        raise ingest_error(
            f"{use} needs PySpark {needed} or later, and this is {pyspark.__version__}; "
            f"pip install 'pyspark>={needed}'",
            FailureCause.SPARK,
        )
