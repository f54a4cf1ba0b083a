"""The causes of an ingestion's errors, and queries that are started again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from pullstream.spark.errors import FailureCause, IngestError, caused_by
from pullstream.spark.ingest.failures import SLOW_START, errors_of_spark, failure_of
from pullstream.spark.ingest.report import IngestReport, Phase, Totals
from pullstream.spark.ingest.runner import _Run
from pullstream.spark.local.java import JavaNotFound
from pullstream.spark.spool.waiting_segments import WaitingSegments

SOURCE = "Traceback (most recent call last):\n  File 'a.py', line 1\n"


@pytest.mark.parametrize(
    ("text", "failure", "cause"),
    [
        (f"{SOURCE}pullstream_protocol.errors.NotFound: 404 no", None, FailureCause.SOURCE),
        (f"{SOURCE}pullstream_protocol.errors.Unavailable: away", None, FailureCause.SOURCE),
        (f"{SOURCE}pullstream.spark.errors.MissingSegment: 7", None, FailureCause.STATE),
        (f"{SOURCE}KeyError: 'a'", None, FailureCause.OTHER),
        ("batch failed", OSError("the disk is full"), FailureCause.TABLE),
        (
            "batch failed",
            RuntimeError(f"{SOURCE}pullstream.spark.errors.MissingSegment: 7"),
            FailureCause.STATE,
        ),
        (f"org.apache.spark.SparkException: {SLOW_START}", None, FailureCause.SPARK),
    ],
)
def test_the_error_of_an_ingest_job_has_the_part_that_has_failed(
    text: str, failure: Exception | None, cause: FailureCause
) -> None:
    """The command's exit code depends on it."""
    assert failure_of(RuntimeError(text), failure).cause is cause


def test_the_first_known_cause_of_an_ingest_error_is_kept() -> None:
    """The state is open while the table is written."""

    def fail() -> None:
        with caused_by(FailureCause.STATE), caused_by(FailureCause.TABLE):
            raise IngestError("no rights")

    with pytest.raises(IngestError) as caught:
        fail()
    assert caught.value.cause is FailureCause.TABLE


class Queries:
    """Queries whose first ones fail, in place of Spark's."""

    def __init__(self, folder: Path, *errors: str) -> None:
        self._errors = list(errors)
        self.started = 0
        self.handler = Mock(
            phase=Phase.WAITING, totals=Totals(), written=None, failure=None, refused=False
        )
        self.handler.offset, self.handler.reasons = 0, {}
        target = Mock(place="the table")
        self.run = _Run(self.handler, self.start, target, None, WaitingSegments(folder))

    def start(self) -> Any:
        self.started += 1
        query = Mock(lastProgress=None, isActive=False)
        query.status = {"message": "Initializing sources"}
        if self._errors:
            query.awaitTermination.side_effect = StreamingQueryException(self._errors.pop(0))
        else:
            query.awaitTermination.return_value = True
        return query


def test_an_ingest_job_starts_its_query_again_if_the_source_was_not_ready_in_time(
    tmp_path: Path,
) -> None:
    """Nothing was read. The report has a notice."""
    queries = Queries(tmp_path, SLOW_START, SLOW_START)
    told: list[IngestReport] = []
    queries.run.wait(threading.Event(), told.append)
    assert queries.started == 3
    assert told[0].notice.endswith("the query is started again (1 of 5)")
    assert told[-1].notice.endswith("the query is started again (2 of 5)")
    assert told[0].phase is Phase.CONNECTING
    assert told[-1].phase is Phase.ENDING


def test_an_ingest_job_gives_up_if_its_source_is_never_ready_in_time(tmp_path: Path) -> None:
    """The error has the remedy."""
    queries = Queries(tmp_path, *[SLOW_START] * 20)
    with pytest.raises(IngestError, match="Give the driver more processor time") as caught:
        queries.run.wait(threading.Event(), lambda report: None)
    assert queries.started == 6
    assert caught.value.cause is FailureCause.SPARK


def test_an_ingest_job_does_not_start_its_query_again_after_another_error(tmp_path: Path) -> None:
    """A batch that has failed would fail again."""
    queries = Queries(tmp_path, f"{SLOW_START} in a task")
    queries.handler.failure = OSError("the disk is full")
    with pytest.raises(IngestError, match="the disk is full"):
        queries.run.wait(threading.Event(), lambda report: None)
    assert queries.started == 1


@pytest.mark.parametrize(
    ("handler", "message", "written", "phase"),
    [
        (Phase.WRITING, "Processing new data", None, Phase.WRITING),
        (Phase.COMMITTING, "Processing new data", None, Phase.COMMITTING),
        (Phase.WAITING, "Getting offsets from PythonMicroBatchStream", None, Phase.WAITING),
        (Phase.WAITING, "Waiting for data to arrive", None, Phase.WAITING),
        (Phase.WAITING, "Initializing sources", None, Phase.CONNECTING),
        (Phase.WAITING, "Processing new data", 6, Phase.PLANNING),
        (Phase.WAITING, "Processing new data", 7, Phase.COMMITTING),
    ],
)
def test_the_phase_of_an_ingest_job_follows_its_batch_and_sparks_query(
    tmp_path: Path, handler: Phase, message: str, written: int | None, phase: Phase
) -> None:
    """Spark plans a batch before the job gets it, and commits it after the job has written it."""
    queries = Queries(tmp_path)
    queries.handler.phase, queries.handler.written = handler, written
    query: Any = queries.run._query
    query.status = {"message": message}
    query.lastProgress = MagicMock(sources=[Mock(latestOffset=None)])
    query.lastProgress.__getitem__.return_value = 6
    assert queries.run.report().phase is phase


@pytest.mark.parametrize("error", [JavaNotFound("no Java"), Py4JError("no answer")])
def test_an_error_of_java_is_the_ingest_jobs_error_with_spark_as_its_cause(
    error: Exception,
) -> None:
    """A JVM may be missing, or die."""
    with pytest.raises(IngestError, match=r"no Java|no answer") as caught, errors_of_spark():
        raise error
    assert caught.value.cause is FailureCause.SPARK
