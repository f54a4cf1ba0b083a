"""Spark on Pub/Sub: a streaming source, a batch read, a sink and an ingestion job.

Needs Python 3.11 and the extra `pullstream[spark]`. Importing this package is cheap: the modules
behind a name, above all pyspark and pyarrow, are imported when the name is first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

# A direct comparison of sys.version_info would make type checkers, which check for Python 3.10,
# treat the rest of the module as unreachable.
if tuple(sys.version_info) < (3, 11):
    raise ImportError(
        "pullstream.spark needs Python 3.11 or later, as PySpark 4.2 does; this is "
        f"{sys.version_info[0]}.{sys.version_info[1]}"
    )

if TYPE_CHECKING:
    from .datasource.batch_read import BatchRead
    from .datasource.registration import register
    from .ingest.config import IngestJob
    from .ingest.report import IngestReport
    from .ingest.runner import run_ingest
    from .local.session_builder import local_session
    from .receiver_processes.spark_job import receivers

# Public name to module.
_PLACES = {
    "BatchRead": "datasource.batch_read",
    "IngestJob": "ingest.config",
    "IngestReport": "ingest.report",
    "local_session": "local.session_builder",
    "receivers": "receiver_processes.spark_job",
    "register": "datasource.registration",
    "run_ingest": "ingest.runner",
}

__all__ = [
    "BatchRead",
    "IngestJob",
    "IngestReport",
    "local_session",
    "receivers",
    "register",
    "run_ingest",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name in ("pyspark", "pyarrow"):
            raise ModuleNotFoundError(
                f"pullstream.spark.{name} needs {error.name}: pip install 'pullstream[spark]'",
                name=error.name,
            ) from error
        raise
    value = globals()[name] = getattr(module, name)
    return value
