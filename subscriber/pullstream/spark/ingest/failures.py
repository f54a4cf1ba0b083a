"""The error of an ingestion job whose query has failed, with the part that is the cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pullstream.spark.errors import FailureCause, IngestError, SpoolError, ingest_error
from pullstream.spark.local.java import JavaNotFound
from pullstream.spark.local.java_error import reason_of
from pullstream_protocol.errors import RpcError

# Spark's text for a Python process that does not connect within 10 s.
SLOW_START = "Python worker failed to connect back"


def failure_of(error: BaseException, failure: BaseException | None) -> IngestError:
    """Return the error of a job.

    Args:
        error: The error with which Spark has ended the query.
        failure: The error of the batch that has failed; None: no batch has.
    """
    reason = reason_of(failure or error)
    if failure is None and SLOW_START in str(error):
        text = (
            f"the job failed: {reason}. A Python process of the query needs more than the 10 s "
            "that Spark waits; nothing was read. Give the driver more processor time"
        )
        return ingest_error(text, FailureCause.SPARK)
    cause = _cause(reason.partition(":")[0], is_batch=failure is not None)
    return ingest_error(f"the job failed: {reason}", cause)


@contextmanager
def errors_of_spark() -> Iterator[None]:
    """Convert the errors of Spark and Java in this block, which starts Spark and uses it.

    Raises:
        IngestError: Java is missing, or Spark cannot start or has ended.
    """
    try:
        yield
    except JavaNotFound as error:
        raise ingest_error(str(error), FailureCause.SPARK) from error
    except (PySparkException, Py4JError) as error:
        text = f"Spark has failed: {reason_of(error)}"
        raise ingest_error(text, FailureCause.SPARK) from error


def _cause(kind: str, *, is_batch: bool) -> FailureCause:
    """Return the cause of an error whose class has this name."""
    if kind in _names(SpoolError):
        return FailureCause.STATE
    if is_batch:
        return FailureCause.TABLE
    return FailureCause.SOURCE if kind in _names(RpcError) else FailureCause.OTHER


def _names(kind: type[BaseException]) -> Iterator[str]:
    yield kind.__name__
    for each in kind.__subclasses__():
        yield from _names(each)
