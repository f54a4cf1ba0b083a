"""The configuration, saved state and reports of an ingestion job, tested without Spark."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from pullstream.spark.errors import IngestError
from pullstream.spark.ingest.columns import kinds
from pullstream.spark.ingest.config import IngestJob
from pullstream.spark.ingest.state import IngestState
from pullstream.spark.protocol.layout import Owner
from pullstream.spark.stores import LocalFolder
from pullstream.spark.tables.batch import BatchName
from tests.subscriber.command_line import failure, usage_error

SUBSCRIPTION = "projects/p/subscriptions/rows"
ROWS = pa.schema([("message_id", pa.string()), ("publish_time", pa.timestamp("us", "UTC"))])
DATABASE = "jdbc:postgresql://db/shop?password=secret"


def job(**arguments: Any) -> IngestJob:
    return IngestJob(**{"subscription": SUBSCRIPTION, "to": "/data/rows", **arguments})


def test_the_ingest_job_requires_only_a_subscription_and_a_target_table() -> None:
    """The defaults are Parquet, undecoded messages, and a state folder inside the table."""
    made = job()
    assert made.format == "parquet"
    assert made.state_folder == Path("/data/rows/_state")
    assert made.target(ROWS).place == "/data/rows"
    assert made.bad_target(ROWS) is None


def test_by_default_the_ingest_job_writes_bad_records_to_a_second_table_beside_the_target() -> None:
    """Bad records go to a second table of the same kind unless another one is configured."""
    decoding = {"decode": "json", "schema": "id BIGINT"}
    lake = {"format": "iceberg", "table": "shop.rows"}
    database = {"to": DATABASE, "table": "rows", "state": "/state"}
    for arguments, place in (
        ({}, "/data/rows-deadletter"),
        ({"bad_to": "/bad"}, "/bad"),
        (lake, "shop.rows_deadletter in /data/rows-deadletter"),
        (database, "rows_deadletter in jdbc:postgresql://db/shop"),
    ):
        bad = job(**decoding, **arguments).bad_target(ROWS)
        assert bad is not None
        assert bad.place == place


@pytest.mark.parametrize(
    ("to", "bad_to"),
    [
        ("/data/rows", "/data/rows"),
        ("/data/rows", "/data//rows/"),
        ("/data/rows", "file:///data/rows"),
        ("/data/rows", "file:/data/other/../rows/"),
        ("rows", f"{Path.cwd()}/rows"),
        ("/data/rows", "/data/rows/bad"),
        ("/data/bad/rows", "/data/bad"),
        ("gs://bucket/rows", "gs://bucket/rows/"),
        ("gs://bucket/rows", "gs://bucket//rows/bad"),
    ],
)
def test_the_ingest_job_refuses_one_folder_as_target_and_as_bad_records_folder(
    to: str, bad_to: str
) -> None:
    """The two folders must differ, however they are written.

    Otherwise bad records would replace the good rows of their batch.
    """
    arguments = {"to": to, "state": "/state", "decode": "json", "schema": "id BIGINT"}
    with pytest.raises(ValueError, match="they must be different folders, and neither may"):
        job(**arguments, bad_to=bad_to)
    assert job(**arguments).bad_target(ROWS) is not None
    assert job(**arguments, bad_to=f"{to}-bad").bad_target(ROWS) is not None


@pytest.mark.parametrize(
    ("table", "bad_to"), [("rows", "Rows"), ("rows", "rows_BATCHES"), ("rows_batches", "rows")]
)
def test_the_ingest_job_refuses_its_target_or_batch_table_as_the_bad_records_table(
    table: str, bad_to: str
) -> None:
    """Bad records must not go to the main table or to the table that records the batches."""
    arguments = {"to": DATABASE, "state": "/state", "decode": "json", "schema": "id BIGINT"}
    with pytest.raises(ValueError, match="they must be different tables"):
        job(**arguments, table=table, bad_to=bad_to)
    assert job(**arguments, table=table, bad_to="others").bad_target(ROWS) is not None


def test_the_ingest_job_refuses_table_names_that_leave_no_room_for_derived_names() -> None:
    """Table names are limited so that the derived names fit.

    PostgreSQL truncates long names, possibly to the name of the table itself, which the job would
    then drop.
    """
    arguments = {"to": DATABASE, "state": "/state"}
    longest, decoding = "ö" * 23, {"decode": "json", "schema": "id BIGINT"}
    own = {
        f"{longest}{end}".encode()[:63] for end in ("", "_batches", f"_{'0' * 16}", f"_{'0' * 15}1")
    }
    assert len(own) == 4
    assert job(**arguments, table=f"schema.{longest}").target(ROWS)
    text = "a name of 47 bytes; in PostgreSQL it must have at most 46"
    with pytest.raises(ValueError, match=text):
        job(**arguments, table=f"{longest}x")
    with pytest.raises(ValueError, match=text):
        job(**arguments, **decoding, table="x" * 36)
    assert job(**arguments, **decoding, table="x" * 36, bad_to="bad").bad_target(ROWS)
    assert job(to="jdbc:oracle:thin:@//db/shop", state="/state", table="x" * 60).target(ROWS)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (DATABASE, "jdbc:postgresql://db/shop"),
        ("jdbc:sqlserver://db:1433;password=secret", "jdbc:sqlserver://db:1433"),
        ("jdbc:oracle:thin:me/secret@//db:1521/shop", "jdbc:oracle:thin://db:1521/shop"),
        ("jdbc:mysql://me:secret@db/shop", "jdbc:mysql://db/shop"),
        ("jdbc:derby:/data/me@home/shop", "jdbc:derby:/data/me@home/shop"),
    ],
)
def test_the_ingest_job_shows_and_stores_its_database_url_without_the_password(
    url: str, told: str
) -> None:
    """A database URL is shown to people and kept on disk without its password."""
    made = job(to=url, table="rows", state="/state")
    assert made.format == "jdbc"
    assert made.target(ROWS).place == made.identity["to"] == f"rows in {told}"


def test_the_ingest_job_accepts_a_file_url_as_its_target_folder() -> None:
    """A file URL with percent escapes becomes a local folder."""
    assert job(to="file:///data/the%20rows").state_folder == Path("/data/the rows/_state")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"format": "csv"}, "format is 'csv'; it must be one of parquet, json, delta, iceb"),
        ({"format": "jdbc"}, "to must be the URL of a database, jdbc:..."),
        ({"to": DATABASE, "format": "parquet"}, "to must be the URL of a database"),
        ({"to": DATABASE, "state": "/s"}, "table is missing"),
        ({"table": "rows"}, "table is 'rows', but only the formats jdbc and"),
        ({"partition_by": ("day(a",)}, "partition_by has 'day(a'; it must be COLUMN, day(COLUMN)"),
        ({"partition_by": ("bucket(0, a)",)}, "it must have 1 bucket or more"),
        ({"partition_by": ("bucket(4, a)",)}, "format is 'parquet'; only Iceberg has buckets"),
        ({"catalog": {"type": "rest"}}, "catalog is given, but format is 'parquet'"),
        ({"storage": {"aws_region": "x"}}, "storage is given, but to is '/data/rows', a folder"),
        (
            {"to": "s3://b/rows", "format": "iceberg", "state": "/s"},
            "catalog is missing; an Iceberg table in 's3://b/rows' needs one",
        ),
        ({"to": DATABASE, "table": "t", "partition_by": ("a",)}, "partition_by is only for"),
        ({"available_now": True, "every": 5.0}, "`available_now` and `every` exclude"),
        ({"every": 0.0}, "every is 0.0; it must be more than 0 seconds"),
        ({"to": "gs://bucket/rows"}, "state is missing; if to is not a local folder (gs)"),
        ({"decode": "avro", "schema": "id INT"}, "decode is 'avro'; it must be json"),
        ({"decode": "json"}, "`decode` and `schema` go together"),
        ({"schema": "id INT"}, "`decode` and `schema` go together"),
        ({"bad_to": "/bad"}, "bad_to is only used together with `decode`; give that too"),
        ({"options": {"spooldir": "/s"}}, "option 'spooldir' is not allowed: it is the argument"),
        ({"options": {"subscription": "s"}}, "option 'subscription' is not allowed: it is an"),
    ],
)
def test_the_ingest_job_refuses_mutually_exclusive_options(
    arguments: dict[str, Any], text: str
) -> None:
    """Options that exclude each other are refused, and the error names the allowed combination."""
    with pytest.raises(ValueError, match=re.escape(text)):
        job(**arguments)


SPOOL = "c40bbb8e3f4b4b7c9a8e4c1df0e9a1f3"


@contextmanager
def state_in(
    folder: Path,
    columns: Mapping[str, str] | None = None,
    newest: Callable[[str], int] = lambda source: 1_000,
    **arguments: Any,
) -> Iterator[IngestState]:
    one = job(**arguments)
    with IngestState.open(folder, one.identity) as state:
        state.begin(columns or {}, one.reading, newest)
        yield state


def spark_logs(folder: Path, *, planned: int, committed: int, offset: int = 0) -> None:
    """Create the log files that Spark's checkpoint keeps for its last two batches.

    Args:
        folder: The state folder.
        planned: Number of the last planned batch.
        committed: Number of the last committed batch.
        offset: The source's offset at the end of batch 0. Each batch has one segment.
    """
    for name, last in (("offsets", planned), ("commits", committed)):
        log = folder / "checkpoint" / name
        shutil.rmtree(log, ignore_errors=True)
        log.mkdir(parents=True)
        for number in range(max(0, last - 1), last + 1):
            content = f'v1\n{{"batchWatermarkMs":0}}\n{{"plan": {offset + number}, "chain": "c"}}\n'
            (log / str(number)).write_text(content)
            (log / f".{number}.crc").touch()
    founder = Owner(0, "projects/p/subscriptions/s", "", 0, SPOOL)
    LocalFolder(folder / "spool").create("owner/000000000000.json", founder.text())


def test_settings_of_stores_go_to_the_table_and_to_the_spool_of_their_kind(tmp_path: Path) -> None:
    """Each store refuses names that it does not know."""
    aws = {"aws_region": "eu-west-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    azure = {"azure_storage_account_name": "c", "azure_storage_account_key": "ZA=="}
    both = {**aws, **azure}
    given: dict[str, Any] = {"subscription": "s", "state": tmp_path}
    one = IngestJob(**given, to="az://lake/t", spool="s3://lake/spool", storage=both)
    assert one.storage_of("az://lake/t") == azure
    options = one.source_options()
    assert options["spoolDir"] == "s3://lake/spool"
    # Spark redacts options of this name.
    found = {name for name in options if name.startswith("storage")}
    assert found == {f"storageSecret.{name}" for name in aws}
    # A folder gets none, and then the spool has all of them.
    one = IngestJob(**given, to=str(tmp_path / "t"), spool="s3://lake/spool", storage=aws)
    assert one.storage_of(one.to) == {}
    assert "obstore" in one.modules_of_tasks
    with pytest.raises(ValueError, match=r"storage is given, but to is .*, and spool is '/spool'"):
        IngestJob(**given, to="/t", spool="/spool", storage=aws)
    with pytest.raises(ValueError, match="spool is 'hdfs://x'; it must be a folder, or a URL"):
        IngestJob(**given, to="/t", spool="hdfs://x")


def test_the_state_folder_of_an_ingest_job_contains_checkpoint_and_spool(tmp_path: Path) -> None:
    """The state folder has a checkpoint, given as a URI, and a spool."""
    with state_in(tmp_path) as state:
        assert state.checkpoint == (tmp_path / "checkpoint").as_uri()
        assert isinstance(state.spool, LocalFolder)
        assert state.spool.folder == tmp_path / "spool"


def test_a_batch_of_an_ingest_job_is_named_after_the_spool_and_the_sources_offset(
    tmp_path: Path,
) -> None:
    """The name is the same in each run, and does not depend on Spark's number of the batch.

    A new checkpoint counts from 0, and its first batch has the offset 43 of the same spool.
    """
    spark_logs(tmp_path, planned=7, committed=6, offset=30)
    for _ in range(2):
        with state_in(tmp_path) as state:
            assert state.batch(7) == BatchName(SPOOL, 37)
            assert state.batch(6) == BatchName(SPOOL, 36)
    spark_logs(tmp_path, planned=0, committed=-1, offset=43)
    with state_in(tmp_path) as state:
        assert state.batch(0) == BatchName(SPOOL, 43)


@pytest.mark.parametrize("content", [None, "", "v1\n{}\n-\n", 'v1\n{}\n{"other": 1}\n'])
def test_the_ingest_job_fails_if_it_cannot_read_the_offset_that_spark_has_written(
    tmp_path: Path, content: str | None
) -> None:
    """Without the offset the batch has no name, and the table could get its rows twice."""
    spark_logs(tmp_path, planned=7, committed=7)
    path = tmp_path / "checkpoint" / "offsets" / "7"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with state_in(tmp_path) as state, pytest.raises(IngestError, match="offsets/7, which Spark"):
        state.batch(7)


def test_the_state_folder_of_an_ingest_job_is_locked_for_one_run_at_a_time(tmp_path: Path) -> None:
    """Only one run at a time can use a state. The next run can use it afterwards."""
    text = "in use by another run of the job; wait for its end"
    with state_in(tmp_path), pytest.raises(IngestError, match=text), state_in(tmp_path):
        pass
    with state_in(tmp_path):
        pass


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"to": "/data/others"}, "whose to is '/data/rows', not '/data/others'"),
        ({"partition_by": ("a", "b")}, "whose partition_by is 'a', not 'a, b'"),
        ({"partition_by": ()}, "whose partition_by is 'a', not ''"),
    ],
)
def test_the_ingest_job_refuses_the_state_folder_of_another_table_or_partitioning(
    tmp_path: Path, other: dict[str, Any], text: str
) -> None:
    """A state belongs to one table: another table or another partitioning is refused."""
    with state_in(tmp_path, partition_by=("a",)):
        pass
    arguments = {"partition_by": ("a",), **other}
    with pytest.raises(IngestError, match=re.escape(text)), state_in(tmp_path, **arguments):
        pass


STRICT: dict[str, Any] = {"decode": "json", "schema": "id BIGINT NOT NULL"}
LOOSE: dict[str, Any] = {"decode": "json", "schema": "id BIGINT"}


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (LOOSE, "started with schema 'id BIGINT NOT NULL'"),
        ({}, "started with decode 'json', so decode cannot be '' yet"),
    ],
)
def test_an_ingest_batch_in_the_table_can_be_repeated_only_with_its_old_decoding_settings(
    tmp_path: Path, other: dict[str, Any], text: str
) -> None:
    """A repeated batch must be decoded with the same settings as before.

    Otherwise a row that was bad and is good now would be in neither table: the main table already
    has the batch, and the other one does not get the row. The error asks the user to run the job as
    it was before.
    """
    with state_in(tmp_path, **STRICT):
        pass
    spark_logs(tmp_path, planned=7, committed=6)
    for _ in range(2):
        with pytest.raises(IngestError, match=re.escape(text)), state_in(tmp_path, **other):
            pass
    with state_in(tmp_path, **STRICT):
        pass
    spark_logs(tmp_path, planned=7, committed=7)
    with state_in(tmp_path, **other):
        pass


def test_an_ingest_batch_not_yet_in_the_table_may_be_decoded_with_other_settings(
    tmp_path: Path,
) -> None:
    """A batch that the table does not have may be decoded with other settings.

    It was planned and not begun, or the table refused it because of a wrong schema.
    """
    asked: list[str] = []

    def before(source: str) -> int:
        asked.append(source)
        return 6

    with state_in(tmp_path, **STRICT):
        pass
    spark_logs(tmp_path, planned=7, committed=6)
    with state_in(tmp_path, newest=before, **LOOSE):
        assert asked == [SPOOL]
    # Then it was written with the new schema.
    with pytest.raises(IngestError, match="started with schema 'id BIGINT',"):
        state_in(tmp_path, **STRICT).__enter__()


@pytest.mark.parametrize("to", ["/data/rows/", "/data//rows", "file:///data/rows"])
def test_an_ingest_job_accepts_its_state_if_its_target_path_is_only_spelled_differently(
    to: str,
) -> None:
    """A trailing slash or another spelling of a folder does not change the job's identity."""
    assert job(to=to).identity == job().identity
    assert job(to="gs://b/rows/", state="/s").identity == job(to="gs://b/rows", state="/s").identity


def test_an_ingest_schema_may_gain_columns_but_may_not_change_the_type_of_a_known_column(
    tmp_path: Path,
) -> None:
    """Columns may be added, but a known column keeps its type.

    This also holds if a run in between left the column out.
    """
    for columns in ({"id": "int"}, {"id": "int", "n": "struct", "n.a": "int"}, {"id": "int"}):
        with state_in(tmp_path, columns):
            pass
    columns, text = {"n": "struct", "n.a": "string"}, r"in which n\.a is int, but the schema now"
    with pytest.raises(IngestError, match=text), state_in(tmp_path, columns):
        pass


def test_columns_of_an_ingest_schema_are_compared_with_the_types_of_all_nested_fields() -> None:
    """A column is identified by its full nested type.

    Names are in lower case, as Spark compares them.
    """
    inner = StructType().add("Item", StringType()).add("price", DecimalType(9, 2))
    schema = (
        StructType()
        .add("ID", IntegerType())
        .add("lines", ArrayType(inner))
        .add("tags", MapType(StringType(), StringType()))
    )
    assert kinds(schema) == {
        "id": "int",
        "lines": "array",
        "lines[]": "struct",
        "lines[].item": "string",
        "lines[].price": "decimal(9,2)",
        "tags": "map",
        "tags{key}": "string",
        "tags{value}": "string",
    }


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_the_ingest_job_fails_on_an_unreadable_state_file_and_does_not_replace_it(
    tmp_path: Path, content: str
) -> None:
    """An unreadable state file is an error and is not replaced."""
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(IngestError, match="cannot be used"), state_in(tmp_path):
        pass
    assert (tmp_path / "job.json").read_text() == content


def test_the_ingest_command_without_pyspark_prints_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without pyspark, the command names the extra to install in one line."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    error = failure("ingest", "--subscription", SUBSCRIPTION, "--to", "/data/rows")
    assert error == "Error: ingest needs pyspark: pip install 'pullstream[cli,spark]'\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--decode", "json"],
            "--decode and --schema go together: give --decode json and "
            "--schema 'id BIGINT, name STRING'",
        ),
        (
            ["--to", "s3://b/x", "--format", "iceberg"],
            "--catalog is missing; an Iceberg table in 's3://b/x' needs one, such as "
            "--catalog type=rest --catalog uri=https://...; only",
        ),
        (["--no-metadata"], "--no-metadata is given, but --decode is missing; without"),
        (["--event-range", "1h"], "--event-range is the distance of --partition-by's times"),
        (["--available-now", "--every", "1m"], "--available-now and --every exclude each other"),
        (["--latest-by", "to is"], "--latest-by is only used together with --merge-on"),
        (
            ["--partition-by", "to is; day_of"],
            "--partition-by has 'to is; day_of'; it must be COLUMN, day(COLUMN)",
        ),
        (["--subscription", "x", "--project", "p"], "an id has 3 to 255 characters: letters"),
        (
            ["--batch-rows", "5", "--option", "maxmessagespertrigger=9"],
            "--batch-rows and --option maxMessagesPerTrigger are the same; give",
        ),
    ],
)
def test_the_ingest_command_reports_usage_errors_before_spark_starts(
    options: list[str], text: str
) -> None:
    """Wrong usage is reported before Spark starts, which takes many seconds."""
    assert text in usage_error("ingest", "--subscription", SUBSCRIPTION, "--to", "x", *options)
