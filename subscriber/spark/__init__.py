"""Spark on Pub/Sub: a streaming source, a batch read, a sink, and a ready ingestion job.

Needs Python 3.11 and the extra `pullstream[spark]`. Importing this package costs nothing: what a
name needs, pyspark and pyarrow above all, is imported when the name is first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

# Not compared as such: type checkers, which work for 3.10, would take the rest for unreachable.
if tuple(sys.version_info) < (3, 11):
    raise ImportError(
        "subscriber.spark needs Python 3.11 or later, as PySpark 4.2 does; this is "
        f"{sys.version_info[0]}.{sys.version_info[1]}"
    )

if TYPE_CHECKING:
    from .batch_read import BatchRead
    from .ingest_job import IngestJob
    from .job import IngestReport, run_ingest
    from .registration import register
    from .session_builder import local_session

# Each public name, and its module.
_PLACES = {
    "BatchRead": "batch_read",
    "IngestJob": "ingest_job",
    "IngestReport": "job",
    "local_session": "session_builder",
    "register": "registration",
    "run_ingest": "job",
}

__all__ = ["BatchRead", "IngestJob", "IngestReport", "local_session", "register", "run_ingest"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name in ("pyspark", "pyarrow"):
            raise ModuleNotFoundError(
                f"subscriber.spark.{name} needs {error.name}: pip install 'pullstream[spark]'",
                name=error.name,
            ) from error
        raise
    value = globals()[name] = getattr(module, name)
    return value
