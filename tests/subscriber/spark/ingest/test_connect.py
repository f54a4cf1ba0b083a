"""Ingestion jobs over Spark Connect: the parts on the server, and a job whose parts are killed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pullstream import TopicAdminClient
from pullstream.spark import IngestJob
from pullstream.spark.errors import FailureCause, IngestError, ingest_error
from pullstream.spark.ingest.batch_handler import BatchHandler, Refused
from pullstream.spark.ingest.connect import ServerSide, check_for_server
from pullstream.spark.ingest.failures import SLOW_START
from pullstream.spark.ingest.preparation import Rows
from pullstream.spark.ingest.report import Phase
from pullstream.spark.ingest.server_job import ServerBatches, ServerJob
from pullstream.spark.ingest.server_object import ServerGone, ServerObject
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.stores import LocalFolder
from pullstream.spark.tables.batch import BatchName
from pullstream_emulator import Emulator
from tests.optional_tools import missing
from tests.spark_matrix.connect_job import ConnectJob, run_with_kills
from tests.subscriber.spark.protocol.files import segment, write_plan, write_segment
from tests.subscriber.spark.receiver_processes.test_spark_connect import PACKAGES
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC, subscribed

ROWS = 120


class FakeSpark:
    """Asks a registered source for its columns, as a server of Spark Connect does.

    Args:
        errors: The errors of the first calls.
    """

    def __init__(self, *errors: Exception) -> None:
        self.dataSource = self
        self.read = self
        self._errors = list(errors)
        self._options: dict[str, str] = {}
        self._source: Any = None

    def register(self, source: Any) -> None:
        self._source = source

    def format(self, name: str) -> FakeSpark:
        assert name == self._source.name()
        return self

    def option(self, name: str, value: str) -> FakeSpark:
        self._options[name] = value
        return self

    def load(self) -> FakeSpark:
        return self

    @property
    def schema(self) -> StructType:
        if self._errors:
            raise self._errors.pop(0)
        columns: StructType = self._source(self._options).schema()
        return StructType.fromJson(json.loads(columns.json()))


class Calls:
    """An object with a method of each outcome."""

    def double(self, number: int) -> list[int]:
        return [number, number]

    def fail(self) -> NoReturn:
        raise ingest_error("no rights", FailureCause.TABLE)

    def refuse(self) -> NoReturn:
        raise ValueError("spool is 1")


def server_object(*errors: Exception) -> ServerObject:
    return ServerObject(FakeSpark(*errors), "calls", Calls())  # type: ignore[arg-type]


def test_a_method_on_the_server_returns_its_result_or_raises_its_error() -> None:
    """An error keeps its cause, on which the exit code of the command depends."""
    server = server_object()
    assert server.call("double", number=7) == [7, 7]
    with pytest.raises(IngestError, match="no rights") as caught:
        server.call("fail")
    assert caught.value.cause is FailureCause.TABLE
    with pytest.raises(ValueError, match="spool is 1"):
        server.call("refuse")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ModuleNotFoundError: No module named 'pullstream'", "lacks pullstream; install it there"),
        ("no answer", "the server of Spark Connect has failed: no answer"),
        (SLOW_START, "the 10 s that Spark waits; give the driver more processor time"),
    ],
)
def test_a_server_that_cannot_call_a_method_is_an_error_of_spark(text: str, told: str) -> None:
    with pytest.raises(IngestError, match=told) as caught:
        server_object(*[PySparkException(text)] * 6).call("double", number=7)
    assert caught.value.cause is FailureCause.SPARK
    assert not isinstance(caught.value, ServerGone)


def test_a_method_is_called_again_if_its_process_on_the_server_was_not_ready_in_time() -> None:
    """The server is there, and its machine is busy."""
    server = server_object(*[PySparkException(f"SparkException: {SLOW_START}")] * 5)
    assert server.call("double", number=7) == [7, 7]


def test_a_server_that_does_not_answer_is_told_in_one_line() -> None:
    """The error of the client has the whole call."""
    call = (
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "Connection refused"\n\tdebug_error_string = "UNAVAILABLE:"\n>'
    )
    with pytest.raises(ServerGone) as caught:
        server_object(PySparkException(call)).call("double", number=7)
    assert caught.value.cause is FailureCause.SPARK
    assert str(caught.value) == (
        "the server of Spark Connect does not answer: UNAVAILABLE: Connection refused. Its query "
        "may run on; start the job again when the server can be reached"
    )


def job_in(folder: Path, **others: Any) -> IngestJob:
    fields: dict[str, Any] = {"to": str(folder / "rows"), "state": str(folder), **others}
    return IngestJob(subscription=SUBSCRIPTION, **fields)


def test_a_job_into_a_database_is_refused_over_spark_connect() -> None:
    """The transaction with the rows and the batch's name needs Java."""
    job = job_in(Path("/state"), to="jdbc:postgresql://host/shop", table="orders")
    with pytest.raises(IngestError, match="over Spark Connect a job reaches no database") as caught:
        check_for_server(job)
    assert caught.value.cause is FailureCause.TABLE


@pytest.mark.parametrize("name", ["to", "state", "spool", "bad_to"])
def test_a_relative_folder_has_no_meaning_on_the_server_of_spark_connect(name: str) -> None:
    job = job_in(Path("/state"), decode="text", **{name: "orders"})
    with pytest.raises(ValueError, match=f"{name} is 'orders'; over Spark Connect it is a folder"):
        check_for_server(job)


def test_folders_of_the_server_and_urls_are_accepted_over_spark_connect() -> None:
    check_for_server(job_in(Path("/state"), to="s3://lake/orders", spool="gs://lake/spool"))


class Direct:
    """The job on the server, without a server: arguments and results pass as JSON."""

    def __init__(self, target: ServerJob) -> None:
        self._target = target

    def call(self, method: str, **arguments: Any) -> Any:
        result = getattr(self._target, method)(**json.loads(json.dumps(arguments)))
        return json.loads(json.dumps(result))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerJob:
    """A job on the server whose table has each batch already, so that no Spark is needed."""
    found = ServerJob(job_in(tmp_path), Rows(StructType(), None, None), "run")
    target = Mock()
    target.newest.return_value = 1_000_000

    def name(number: int) -> BatchName:
        return BatchName("a" * 16, number + 7)

    handler = BatchHandler(Mock(), target, None, name=name)
    monkeypatch.setattr(ServerJob, "handler", lambda self, decoding: handler)
    return found


def test_the_client_learns_what_the_handler_on_the_server_has_done(server: ServerJob) -> None:
    batches = ServerBatches(server, Mock(), 5)
    side = ServerSide(Direct(server), 5)  # type: ignore[arg-type]
    side.refresh()
    assert (side.offset, side.written, side.totals.batches) == (5, None, 0)
    batches(Mock(), 3)
    side.refresh()
    assert (side.offset, side.written, side.totals.known) == (10, 3, 1)
    assert (side.phase, side.failure, side.refused) == (Phase.WAITING, None, False)
    assert side.committed() == -1
    assert side.outage() is None


def test_a_handler_on_the_server_starts_no_batch_after_the_client_has_closed_it(
    server: ServerJob,
) -> None:
    batches = ServerBatches(server, Mock(), 0)
    side = ServerSide(Direct(server), 0)  # type: ignore[arg-type]
    batches(Mock(), 0)
    assert side.close()
    with pytest.raises(Refused):
        batches(Mock(), 1)
    side.refresh()
    assert (side.refused, side.written, side.failure) == (True, 0, None)


def test_a_handler_on_the_server_starts_no_batch_after_a_later_run_has_begun(
    server: ServerJob,
) -> None:
    """Otherwise it could write while the later run, with other columns, opens the tables."""
    batches = ServerBatches(server, Mock(), 0)
    side = ServerSide(Direct(server), 0)  # type: ignore[arg-type]
    server.state.begin({}, {}, lambda source: 0)
    batches(Mock(), 0)
    side.refresh()
    assert not side.is_replaced
    replace(server, run="later").state.begin({}, {}, lambda source: 0)
    with pytest.raises(Refused):
        batches(Mock(), 1)
    side.refresh()
    assert side.is_replaced
    assert (side.refused, side.written) == (True, 0)


def test_the_results_of_a_run_on_the_server_stay_when_a_later_run_deletes_its_note(
    server: ServerJob,
) -> None:
    """The client reports them at its end."""
    side = ServerSide(Direct(server), 0)  # type: ignore[arg-type]
    ServerBatches(server, Mock(), 0)(Mock(), 3)
    side.refresh()
    (server.state.folder / "batches-run").unlink()
    side.refresh()
    assert (side.written, side.totals.known) == (3, 1)


def test_before_its_first_batch_the_segments_of_a_run_on_the_server_are_those_not_committed(
    server: ServerJob, tmp_path: Path
) -> None:
    """The run before has committed plan 5, and its files are still there."""
    spool = LocalFolder(tmp_path / "spool")
    write_segment(spool, 1, 4.0)
    write_plan(spool, 5, 1)
    assert not ServerSide(Direct(server), 5).segments(0)  # type: ignore[arg-type]
    assert ServerSide(Direct(server), 4).segments(0)  # type: ignore[arg-type]


def test_each_look_at_the_server_reads_only_new_manifests(
    server: ServerJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process for each look has no memory, and the spool may be in a bucket."""
    spool = LocalFolder(tmp_path / "spool")
    for number in range(1, 101):
        write_segment(spool, number, 4.0)
    read: list[str] = []
    get = LocalFolder.get

    def record(folder: LocalFolder, path: str) -> bytes | None:
        read.append(path)
        return get(folder, path)

    monkeypatch.setattr(LocalFolder, "get", record)
    side = ServerSide(Direct(server), 0)  # type: ignore[arg-type]
    side.refresh()
    assert len([path for path in read if path.startswith("man/")]) == 100
    read.clear()
    write_segment(spool, 101, 4.0)
    side.refresh()
    assert len(side.segments(0)) == 101
    assert [path for path in read if path.startswith("man/")] == [segment(101).manifest]


def test_the_client_waits_for_a_batch_of_the_server_that_is_under_way(server: ServerJob) -> None:
    side = ServerSide(Direct(server), 0)  # type: ignore[arg-type]
    closed: list[bool] = []

    def name(number: int) -> BatchName:
        closed.append(side.close())
        return BatchName("a" * 16, 1)

    server.handler(Mock())._name = name
    ServerBatches(server, Mock(), 0)(Mock(), 0)
    assert closed == [False]
    assert side.close()


def test_the_failure_of_a_batch_on_the_server_reaches_the_client(server: ServerJob) -> None:
    handler = server.handler(Mock())
    handler._target.newest.side_effect = OSError("the disk is full")  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="the disk is full"):
        ServerBatches(server, Mock(), 0)(Mock(), 0)
    side = ServerSide(Direct(server), 0)  # type: ignore[arg-type]
    side.refresh()
    assert str(side.failure) == "the disk is full"


def test_the_client_sees_the_segments_and_the_outage_of_the_server() -> None:
    """It looks again only after some seconds."""
    told: dict[str, Any] = {
        "note": {},
        "segments": [[None, ["r", 3], 10, 1000, 17.5, 2]],
        "outage": [17.5, "UNAVAILABLE: gone"],
        "committed": 4,
    }
    call = Mock(return_value=json.loads(json.dumps(told)))
    side = ServerSide(Mock(call=call), 0)
    (one,) = side.segments(0)
    assert (one.plan, one.segment, one.rows, one.oldest) == (None, Segment("r", 3), 10, 17.5)
    outage = side.outage()
    assert outage is not None
    assert outage.error == "UNAVAILABLE: gone"
    assert side.committed() == 4
    call.assert_called_once_with("look", stop=False, offset=0)


def test_the_client_looks_again_if_a_look_has_failed() -> None:
    """The results of an earlier look may be too old for a decision."""
    told: dict[str, Any] = {"note": {}, "segments": [], "outage": None, "isReplaced": False}
    failure = ingest_error("no answer", FailureCause.SPARK)
    looks = [{**told, "committed": 1}, failure, {**told, "committed": 2}]
    side = ServerSide(Mock(call=Mock(side_effect=looks)), 0)
    assert side.committed() == 1
    side.refresh()
    assert not side.is_lost
    assert side.committed() == 2


def publish_numbers(broker: Emulator, begin: int, end: int) -> None:
    """Publish the numbers of a range as texts."""
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.publish(TOPIC, [{"data": b"%d" % number} for number in range(begin, end)])


def test_a_client_that_has_lost_the_server_asks_it_only_once() -> None:
    """Each attempt to reach it takes minutes."""
    call = Mock(side_effect=ServerGone("away"))
    side = ServerSide(Mock(call=call), 3)
    side.refresh()
    assert side.is_lost
    assert (side.outage(), list(side.segments(0)), side.offset) == (None, [], 3)
    assert call.call_count == 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_job_over_spark_connect_writes_each_message_once_whatever_is_killed(
    tmp_path: Path,
) -> None:
    """Its client, the process of its handler and the server; its checkpoint is lost, too."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        missing("spark-connect", f"Spark Connect needs {', '.join(absent)}")
    with Emulator() as broker:
        subscribed(broker)
        words = [
            *("--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint, "--decode", "text"),
            *("--to", str(tmp_path / "rows"), "--state", str(tmp_path / "state")),
            *("--option", "drainWaitMs=300", "--option", "lingerMs=50"),
        ]
        job = ConnectJob(
            sys.executable, os.environ, broker, words, tmp_path / "state", SUBSCRIPTION
        )
        problem = run_with_kills(
            job,
            lambda begin, end: publish_numbers(broker, begin, end),
            ROWS,
        )
        assert problem == ""
        assert broker.backlog(SUBSCRIPTION) == 0
    found = pq.read_table(tmp_path / "rows", columns=["text"]).column("text").to_pylist()
    assert sorted(map(int, found)) == list(range(ROWS))
