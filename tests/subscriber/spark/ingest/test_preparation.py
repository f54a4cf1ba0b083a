"""The checks of an ingestion job before Spark starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pullstream.spark import IngestJob, IngestReport
from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.ingest.report import Phase
from pullstream.spark.ingest.runner import run_in
from pullstream_emulator import Emulator
from tests.subscriber.spark.stage import SUBSCRIPTION, subscribed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkStarted(Exception):
    """Everything that needs no Spark was right."""


@contextmanager
def no_spark() -> Iterator[SparkSession]:
    raise SparkStarted
    yield


@pytest.fixture(autouse=True)
def subscription(broker: Emulator) -> None:
    subscribed(broker)


def start(broker: Emulator, to: Path, **arguments: Any) -> list[IngestReport]:
    """Run a job up to the start of Spark, and return its reports."""
    told: list[IngestReport] = []
    fields = {
        "subscription": SUBSCRIPTION,
        "to": str(to),
        "format": "delta",
        "decode": "json",
        "schema": "id BIGINT NOT NULL, name STRING, at TIMESTAMP",
        "options": {"endpoint": broker.endpoint},
        **arguments,
    }
    with pytest.raises(SparkStarted):
        run_in(no_spark, IngestJob(**fields), None, told.append)
    return told


def made(folder: Path, *partition_by: str, **types: str) -> None:
    """Make a Delta table."""
    names = {"id": "bigint", "name": "string", **types}
    kinds = {"bigint": pa.int64(), "string": pa.string(), "int": pa.int32()}
    schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in names.items()])
    DeltaTable.create(str(folder), schema, partition_by=list(partition_by))


def test_the_ingest_job_opens_its_tables_before_spark_starts(
    broker: Emulator, tmp_path: Path
) -> None:
    """The phases follow each other, and the tables have the columns."""
    told = start(broker, tmp_path / "rows", partition_by=("day(at)",))
    assert [one.phase for one in told] == [Phase.CHECKING, Phase.OPENING, Phase.STARTING]
    table = DeltaTable(str(tmp_path / "rows"))
    assert [field.name for field in table.schema().fields] == [
        *("id", "name", "at", "pubsub_message_id", "pubsub_attributes", "pubsub_ordering_key"),
        *("pubsub_publish_time", "pubsub_delivery_attempt", "pubsub_batch", "at_day"),
    ]
    assert DeltaTable(str(tmp_path / "rows-deadletter")).schema().fields[-1].name == "reason"


@pytest.mark.parametrize(
    ("types", "arguments", "text"),
    [
        ({"id": "string"}, {}, "'id'"),
        ({}, {}, "has no column 'at'"),
        ({}, {"partition_by": ("name",)}, "is partitioned by"),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_before_spark_starts(
    broker: Emulator, tmp_path: Path, types: dict[str, str], arguments: dict[str, Any], text: str
) -> None:
    """The start of Spark takes ten seconds."""
    made(tmp_path / "rows", **types)
    with pytest.raises(IngestError, match=text) as caught:
        start(broker, tmp_path / "rows", **arguments)
    assert caught.value.cause is FailureCause.TABLE


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"partition_by": ("nothing",)}, "partition_by has 'nothing'"),
        ({"schema": "pubsub_id INT"}, "'pubsub_id', whose name is reserved"),
        ({"merge_on": ("nothing",)}, "merge_on has 'nothing'"),
        ({"options": {"lingerMs": "long"}}, "option 'lingerMs' is 'long'"),
        ({"options": {"maxOutstandingMessages": "5"}}, "maxOutstandingMessages is 5"),
    ],
)
def test_an_option_that_does_not_fit_is_an_error_before_anything_is_created(
    broker: Emulator, tmp_path: Path, arguments: dict[str, Any], text: str
) -> None:
    """Nothing is left behind."""
    with pytest.raises(ValueError, match=text):
        start(broker, tmp_path / "rows", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_subscription_is_an_error_before_anything_is_created(
    broker: Emulator, tmp_path: Path
) -> None:
    """A correction of the name finds no table with nothing in it."""
    with pytest.raises(IngestError, match=r"NotFound: 404 .*resource=nowhere") as caught:
        start(broker, tmp_path / "rows", subscription="projects/p/subscriptions/nowhere")
    assert caught.value.cause is FailureCause.SOURCE
    assert list(tmp_path.iterdir()) == []


def test_a_state_in_use_or_of_another_job_is_an_error_before_spark_starts(
    broker: Emulator, tmp_path: Path
) -> None:
    """The second job creates no table."""
    state = tmp_path / "state"

    @contextmanager
    def second() -> Iterator[SparkSession]:
        with pytest.raises(IngestError, match="in use by another run") as caught:
            start(broker, tmp_path / "others", state=state)
        assert caught.value.cause is FailureCause.STATE
        raise SparkStarted
        yield

    job = IngestJob(
        subscription=SUBSCRIPTION,
        to=str(tmp_path / "rows"),
        state=state,
        options={"endpoint": broker.endpoint},
    )
    with pytest.raises(SparkStarted):
        run_in(second, job, None, lambda report: None)
    with pytest.raises(IngestError, match="belongs to a job whose to is") as caught:
        start(broker, tmp_path / "others", state=state)
    assert caught.value.cause is FailureCause.STATE
    assert not (tmp_path / "others").exists()


def test_a_place_that_cannot_be_written_is_an_error_of_the_table(
    broker: Emulator, tmp_path: Path
) -> None:
    """Also if the state is in its default folder inside the table's."""
    (tmp_path / "file").write_text("")
    for more in ({}, {"state": tmp_path / "state"}):
        with pytest.raises(IngestError, match=r"ot a directory") as caught:
            start(broker, tmp_path / "file" / "rows", **more)
        assert caught.value.cause is FailureCause.TABLE


@pytest.mark.parametrize("arguments", [{"schema": "id VARCHAR(5)"}, {"time_zone": "CET"}])
def test_what_only_spark_can_read_is_left_to_spark(
    broker: Emulator, tmp_path: Path, arguments: dict[str, str]
) -> None:
    """The table is opened later, with the columns that Spark tells."""
    start(broker, tmp_path / "rows", **arguments)
    assert not (tmp_path / "rows" / "_delta_log").exists()


def test_a_job_that_is_stopped_before_it_starts_starts_no_spark(
    broker: Emulator, tmp_path: Path
) -> None:
    """It has done nothing."""
    stop = threading.Event()
    stop.set()
    job = IngestJob(
        subscription=SUBSCRIPTION,
        to=str(tmp_path / "rows"),
        options={"endpoint": broker.endpoint},
    )
    report = run_in(no_spark, job, stop, lambda report: None)
    assert (report.stopped, report.totals.batches, report.to) == (True, 0, str(tmp_path / "rows"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["rows", "rows-deadletter"])
def test_a_folder_with_a_table_of_another_format_is_refused_before_anything_is_created(
    broker: Emulator, tmp_path: Path, name: str
) -> None:
    """The rows would be in a table whose readers never see them. Bad rows too."""
    made(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(IngestError, match=rf"{name} is a Delta table, .*--format delta") as caught:
        start(broker, tmp_path / "rows", format="parquet")
    assert caught.value.cause is FailureCause.TABLE
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refused_job_leaves_no_state(broker: Emulator, tmp_path: Path) -> None:
    """Neither in the folder of the table nor in a folder with new parents."""
    made(tmp_path / "rows", id="string")
    before = sorted(tmp_path.rglob("*"))
    for more in ({}, {"state": tmp_path / "states" / "rows"}):
        with pytest.raises(IngestError, match="'id'"):
            start(broker, tmp_path / "rows", **more)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_refused_job_leaves_folders_that_were_there(broker: Emulator, tmp_path: Path) -> None:
    """Also an empty one."""
    made(tmp_path / "rows", id="string")
    (tmp_path / "state").mkdir()
    with pytest.raises(IngestError, match="'id'"):
        start(broker, tmp_path / "rows", state=tmp_path / "state")
    assert (tmp_path / "state").is_dir()


def test_with_a_condition_of_deletions_nothing_is_created_before_spark_has_checked_it(
    broker: Emulator, tmp_path: Path
) -> None:
    """The corrected command starts from nothing."""
    start(broker, tmp_path / "rows", merge_on=("id",), delete_when="op = 'D'")
    assert list(tmp_path.iterdir()) == []
