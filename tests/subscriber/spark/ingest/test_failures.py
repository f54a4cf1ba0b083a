"""The causes of an ingestion's errors, and queries that are started again."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from pullstream.spark.errors import FailureCause, IngestError, caused_by
from pullstream.spark.ingest.failures import SLOW_START, errors_of_spark, failure_of
from pullstream.spark.ingest.preparation import Prepared
from pullstream.spark.ingest.query_run import FilesHere, QueryRun
from pullstream.spark.ingest.report import IngestReport, Phase, Totals
from pullstream.spark.ingest.state import IngestState
from pullstream.spark.local.java import JavaNotFound
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.protocol.waiting_segments import WaitingSegment
from pullstream.spark.receiving.outage_note import Outage
from pullstream.spark.stores import LocalFolder
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.spark.protocol.files import write_segment

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

    def __init__(self, folder: Path, *errors: str, refused_starts: int = 0) -> None:
        self._errors = list(errors)
        self.refused_starts = refused_starts
        self.started = 0
        self.handler = Mock(
            phase=Phase.WAITING, totals=Totals(), written=None, failure=None, refused=False
        )
        self.handler.offset, self.handler.reasons = 0, {}
        state = IngestState(folder, "run", {}, LocalFolder(folder))
        self.run = QueryRun(self.handler, self.start, "the table", None, FilesHere(state), "host:1")

    def start(self) -> Any:
        self.started += 1
        if self.refused_starts:
            self.refused_starts -= 1
            raise PySparkException(SLOW_START)
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


def test_an_ingest_job_over_connect_starts_its_query_again_if_its_process_was_not_ready(
    tmp_path: Path,
) -> None:
    """Spark Connect starts the process of the handler before the query."""
    queries = Queries(tmp_path, refused_starts=5)
    queries.run.wait(threading.Event(), lambda report: None)
    assert queries.started == 6
    with pytest.raises(IngestError, match="Give the driver more processor time"):
        Queries(tmp_path, refused_starts=6)


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


def test_a_stopped_ingest_job_waits_until_spark_has_committed_its_last_batch(
    tmp_path: Path,
) -> None:
    """The progress of an idle query has the number of its next batch, which is not committed."""
    queries = Queries(tmp_path)
    commits = tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    (commits / "6").touch()
    queries.handler.written = 7
    progress = MagicMock(sources=[Mock(latestOffset="{}")])
    progress.__getitem__.return_value = 7
    query = Mock(isActive=True, lastProgress=progress)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            (commits / "7").touch()
        return False

    query.awaitTermination.side_effect = wait
    query.status = {"message": "Processing new data"}
    queries.run._query = query
    stop = threading.Event()
    stop.set()
    queries.run.wait(stop, lambda report: None)
    assert len(waits) == 3


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
    commits = tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    (commits / "6").touch()
    assert queries.run.report().phase is phase


@pytest.mark.parametrize(
    ("message", "phase"),
    [
        ("Getting offsets from PythonMicroBatchStream", Phase.PLANNING),
        ("Waiting for next trigger", Phase.WAITING),
    ],
)
def test_an_ingest_job_plans_while_spark_asks_its_source_and_segments_wait(
    tmp_path: Path, message: str, phase: Phase
) -> None:
    """Many receivers may have written more than one list and one plan take in a moment."""
    write_segment(LocalFolder(tmp_path), 1, 4.0)
    queries = Queries(tmp_path)
    query: Any = queries.run._query
    query.status = {"message": message}
    assert queries.run.report().phase is phase


def test_an_ingest_job_that_another_run_has_replaced_fails_unless_it_was_stopped(
    tmp_path: Path,
) -> None:
    """Spark ends its query as if the work was done."""
    queries = Queries(tmp_path)
    files: Any = queries.run._files
    files.is_replaced = True
    stop = threading.Event()
    with pytest.raises(IngestError, match="another run of the job has begun") as caught:
        queries.run.wait(stop, lambda report: None)
    assert caught.value.cause is FailureCause.STATE
    stop.set()
    queries.run.wait(stop, lambda report: None)


def test_an_emptied_ingest_job_ends_when_the_last_segments_are_written_that_it_did_not_know(
    tmp_path: Path,
) -> None:
    """Over Spark Connect, it knows the segments as they were at its last look."""
    queries = Queries(tmp_path)
    last = WaitingSegment(None, Segment("r", 1), 1, 10, 4.0, 0)
    files = Mock(segments=Mock(return_value=[]))
    files.refresh.side_effect = lambda: files.segments.configure_mock(return_value=[last])
    run: Any = queries.run
    run._files, run._tasks = files, Mock(is_over=True)
    assert not run._is_emptied()
    files.segments.return_value = []
    assert run._is_emptied()


@pytest.mark.parametrize(
    ("ago", "handler", "phase"),
    [
        (0.0, Phase.WAITING, Phase.CONNECTING),
        (2.0, Phase.WAITING, Phase.UNREACHABLE),
        (2.0, Phase.WRITING, Phase.WRITING),
    ],
)
def test_the_ingest_job_tells_that_its_source_waits_for_the_server(
    tmp_path: Path, ago: float, handler: Phase, phase: Phase
) -> None:
    """A stream that breaks and comes back at once is normal."""
    queries = Queries(tmp_path)
    queries.handler.phase = handler
    since = SYSTEM_CLOCK.now() - ago
    (tmp_path / "OUTAGE").write_text(json.dumps({"since": since, "error": "UNAVAILABLE: gone"}))
    report = queries.run.report()
    assert report.phase is phase
    assert report.outage == (Outage(since, "UNAVAILABLE: gone") if ago else None)
    assert report.server == "host:1"
    if phase is Phase.UNREACHABLE:
        assert report.since == since


def test_an_ingest_job_ignores_the_outage_that_a_killed_run_has_noted(tmp_path: Path) -> None:
    """Its source is another one."""
    (tmp_path / "OUTAGE").write_text(json.dumps({"since": 0.0, "error": "gone"}))
    state = IngestState(tmp_path, "run", {}, LocalFolder(tmp_path))
    opened = Mock(), Mock(target=Mock())
    assert Prepared(Mock(), state, Mock(), opened).begin(None) == 0
    assert Queries(tmp_path).run.report().outage is None


@pytest.mark.parametrize("error", [JavaNotFound("no Java"), Py4JError("no answer")])
def test_an_error_of_java_is_the_ingest_jobs_error_with_spark_as_its_cause(
    error: Exception,
) -> None:
    """A JVM may be missing, or die."""
    with pytest.raises(IngestError, match=r"no Java|no answer") as caught, errors_of_spark():
        raise error
    assert caught.value.cause is FailureCause.SPARK
