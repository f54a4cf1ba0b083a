"""`make spark-matrix`: other versions of Spark, and the formats' own jars as readers.

    python -m tests.spark_matrix.run

Writes tables of each format, directly and by `pullstream ingest` with several versions of PySpark,
and reads them by Spark with Delta's and Iceberg's own jars. Runs batch read and sink with the
oldest PySpark that has them. Writes the table of tested versions into docs/spark-deploy.md if
everything is right, and exits with 1 otherwise. Needs Java, Maven with its central repository, and
a package index.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from rich.console import Console

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.spark_matrix import rest_catalog
from tests.spark_matrix.connect_job import ConnectJob, run_with_kills
from tests.spark_matrix.read import PACKAGES, QUERIES
from tests.spark_matrix.recorded_calls import CALLS, recorded
from tests.spark_matrix.report import PAGE, Check, terminal_table, write_docs
from tests.subscriber.spark.tables.test_tables import COLUMNS, SOURCE, rows, table, written

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "spark_matrix"
ENVIRONMENTS = ROOT / "build" / "spark-matrix"
# The code under test, in an environment that has only its requirements.
OURS = {"PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in ("subscriber", "protocol"))}

# The newest PySpark for which the format has jars; Parquet needs none.
READERS = {"delta": "4.2.1", "iceberg": "4.1.4", "parquet": "4.2.1"}
LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg", "parquet": "pyarrow"}
# The versions of PySpark that run ingestion jobs, and the oldest with sinks.
INGEST = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
BATCH = "4.1.4"
# Those with Spark Connect, and the formats of the jobs there.
CONNECT = {"4.2.1": "parquet", "4.3.0": "delta"}

PARTITIONS: Sequence[tuple[str, ...]] = ((), ("country",), ("day(at)",), ("hour(at)", "country"))
BATCHES, ROWS = 3, 60
LOST = "`pullstream ingest`, the checkpoint lost between two runs"
KILLED = (
    "`pullstream ingest` by Spark Connect; client, worker and server killed, the checkpoint lost"
)
UPSERTS = "`pullstream ingest --merge-on`, a change of every row"
TOPICS = ("orders", "copy", "stream-copy")
SCHEMA = "id BIGINT NOT NULL, country STRING, at TIMESTAMP"
GOOD = "every row once, every filter"


def environment(version: str) -> Path:
    """Return the Python of an environment with a version of PySpark; create it if necessary.

    It has the requirements of pullstream, and not pullstream.
    """
    folder = ENVIRONMENTS / version
    python, stamp = folder / "bin" / "python", folder / "packages"
    packages = "\n".join([f"pyspark=={version}", "pandas<3", *sorted(set(_requirements()))])
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != packages:
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *packages.splitlines()], check=True)
        stamp.write_text(packages, encoding="utf-8")
    return python


def _requirements() -> Iterator[str]:
    """Yield the packages that pullstream needs for the command and for tables, except PySpark."""
    wanted = [f"extra == '{extra}'" for extra in ("cli", "spark", "delta", "iceberg")]
    for one in importlib.metadata.requires("pullstream") or ():
        package, _, condition = one.partition(";")
        is_needed = "extra ==" not in condition or any(text in condition for text in wanted)
        if is_needed and not package.startswith(("pullstream", "pyspark")):
            yield package.strip()


def expected() -> dict[str, list[int]]:
    """Return the ids that each query must find."""
    day = datetime(2026, 3, 2, tzinfo=timezone.utc)
    everything: list[dict[str, Any]] = rows(*range(BATCHES * ROWS)).to_pylist()
    tests: dict[str, Callable[[dict[str, Any]], bool]] = {
        "rows": lambda row: True,
        "country = 'DE'": lambda row: row["country"] == "DE",
        "country is null": lambda row: row["country"] is None,
        "at of one day": lambda row: (
            row["at"] is not None and day <= row["at"] < day + timedelta(days=1)
        ),
        "at is null": lambda row: row["at"] is None,
        "id = 7": lambda row: row["id"] == 7,
        "before": lambda row: row["at"] is not None and row["at"] < day,
    }
    assert set(tests) == set(QUERIES)
    return {
        name: [row["id"] for row in everything if is_found(row)] for name, is_found in tests.items()
    }


@dataclass(frozen=True)
class WrittenTable:
    """A table that a reader must find complete.

    Attributes:
        format: Its format.
        what: How it was written.
        by: The versions that have written it.
        folder: Its location, for read.py.
        problem: Why it is not complete, if writing has failed.
    """

    format: str
    what: str
    by: str
    folder: str
    problem: str = ""


# ---- tables that are written directly ------------------------------------------------------------


def written_tables(place: str) -> Iterator[WrittenTable]:
    for format in READERS:
        for number, partition_by in enumerate(PARTITIONS):
            folder = f"{place}/{format}-{number}/orders"
            write(format, folder, partition_by)
            what = f"a table by {', '.join(partition_by)}" if partition_by else "a table"
            yield WrittenTable(format, what, version_of(LIBRARIES[format]), folder)


def write(format: str, folder: str, partition_by: Sequence[str]) -> None:
    """Write a table in three batches."""
    to = table(format, folder, *partition_by)
    for number in range(BATCHES):
        batch = BatchName(SOURCE, number)
        some = rows(*range(number * ROWS, (number + 1) * ROWS))
        assert to.commit(written(to, some, batch), batch)


def version_of(library: str) -> str:
    return f"{library} {importlib.metadata.version(library)}"


# ---- tables in a REST catalog --------------------------------------------------------------------


def written_to_catalog(place: str, url: str) -> Iterator[WrittenTable]:
    """Write tables into a catalog by its protocol, directly and by jobs."""
    library = f"{version_of('pyiceberg')}, {rest_catalog.version()}"
    problem = replay(f"{place}/replayed", url, "sales.replayed")
    what = "REST catalog: create, append, and every batch twice"
    yield WrittenTable("iceberg", what, library, f"{url}#sales.replayed", problem)
    for what, is_upsert in ((LOST, False), (UPSERTS, True)):
        own = f"sales.upserts{is_upsert}".lower()
        catalog = ("--table", own, "--catalog", "type=rest", "--catalog", f"uri={url}")
        one = written_by_job(Path(place, own), INGEST[-1], "iceberg", is_upsert, *catalog)
        by = f"{one.by}, {rest_catalog.version()}"
        yield replace(one, what=f"REST catalog: {what}", by=by, folder=f"{url}#{own}")


def replay(folder: str, url: str, own: str) -> str:
    """Commit each batch by two jobs that do not know of each other, and return the problem."""
    fields = partition_fields([PartitionExpression.parse("country")], COLUMNS)
    catalog = {"type": "rest", "uri": url}
    tables = [IcebergTable(folder, fields, None, catalog, own) for _ in range(2)]
    for one in tables:
        one.open(COLUMNS)
    for number in range(BATCHES):
        batch = BatchName(SOURCE, number)
        some = rows(*range(number * ROWS, (number + 1) * ROWS))
        results = [one.commit(written(one, some, batch), batch) for one in tables]
        if results != [True, False]:
            return f"the commits of batch {number} returned {results}"
    return ""


# ---- jobs ----------------------------------------------------------------------------------------


def written_by_jobs(place: str) -> Iterator[WrittenTable]:
    """Run `pullstream ingest` with each version of PySpark into each format."""
    for version in INGEST:
        for format in READERS:
            yield written_by_job(Path(place, f"{format}-{version}"), version, format)
    for format in ("delta", "iceberg"):
        yield written_by_job(Path(place, f"{format}-upserts"), INGEST[-1], format, True)
    for version, format in CONNECT.items():
        yield written_over_connect(Path(place, f"connect-job-{version}"), version, format)


def written_over_connect(folder: Path, version: str, format: str) -> WrittenTable:
    """Write all rows to a table over Spark Connect, while parts of the job are killed."""
    by = f"PySpark {version}, {version_in(version, LIBRARIES[format])}"
    with Emulator() as broker:
        prepare(broker, "orders")
        words = [*arguments(broker, folder), "--format", format, "--partition-by", "country"]
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | OURS
        state, subscription = folder / "state", name("subscriptions", "orders")
        job = ConnectJob(environment(version), own, broker, words, state, subscription)
        problem = run_with_kills(job, lambda *part: publish(broker, *part), BATCHES * ROWS)
        backlog = broker.backlog(subscription)
    left = f"{backlog} messages are not acknowledged" if backlog else ""
    return WrittenTable(format, KILLED, by, f"{folder}/orders", problem or left)


def written_by_job(
    folder: Path, version: str, format: str, is_upsert: bool = False, *more: str
) -> WrittenTable:
    """Write all rows to a table in two runs of `pullstream ingest`.

    The second run changes all rows of the first, or the checkpoint is lost in between.
    """
    by = f"PySpark {version}, {version_in(version, LIBRARIES[format])}"
    table = WrittenTable(format, UPSERTS if is_upsert else LOST, by, f"{folder}/orders")
    words = ["--format", format, "--partition-by", "country", *more]
    total = BATCHES * ROWS
    half = total if is_upsert else total // 2
    with Emulator() as broker:
        prepare(broker, "orders")
        publish(broker, 0, half, **({"country": "old"} if is_upsert else {}))
        if is_upsert:
            words += ["--merge-on", "id"]
        problem = ingest(version, broker, folder, *words)
        if not is_upsert:
            shutil.rmtree(folder / "state" / "checkpoint", ignore_errors=True)
        publish(broker, half % total, total)
        problem = problem or ingest(version, broker, folder, *words)
        backlog = broker.backlog(name("subscriptions", "orders"))
    left = f"{backlog} messages are not acknowledged" if backlog else ""
    return replace(table, problem=problem or left)


def version_in(version: str, library: str) -> str:
    """Return the version of a library in the environment of a PySpark."""
    script = f"from importlib.metadata import version; print(version({library!r}))"
    return f"{library} {run_python(version, ['-c', script]).stdout.strip()}"


def name(kind: str, own: str) -> str:
    return f"projects/p/{kind}/{own}"


def prepare(broker: Emulator, *subscriptions: str) -> None:
    """Create the topics, and subscriptions to the first one."""
    with (
        TopicAdminClient(endpoint=broker.endpoint) as topics,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        for topic in TOPICS:
            topics.create_topic(name=name("topics", topic))
        for own in subscriptions:
            client.create_subscription(
                name=name("subscriptions", own), topic=name("topics", TOPICS[0])
            )


def publish(broker: Emulator, begin: int, end: int, **changed: str) -> None:
    """Publish the rows with these ids as JSON, with other values of some columns."""
    messages = [
        {
            "id": row["id"],
            "country": row["country"],
            "at": row["at"] and row["at"].isoformat(),
            **changed,
        }
        for row in rows(*range(begin, end)).to_pylist()
    ]
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        data = [{"data": json.dumps(one).encode()} for one in messages]
        topics.publish(name("topics", TOPICS[0]), data)


def ingest(version: str, broker: Emulator, folder: Path, *more: str) -> str:
    """Run the command to its end, and return its error."""
    run = run_ingest(version, broker, folder, *more)
    return errors_of(run) if run.returncode else ""


def run_ingest(
    version: str, broker: Emulator, folder: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = ["-m", "pullstream", "ingest", *arguments(broker, folder), "--available-now"]
    return run_python(version, [*command, "--json", *more], OURS)


def arguments(broker: Emulator, folder: Path) -> list[str]:
    """Return the arguments of `pullstream ingest` for a table in a folder."""
    return [
        *("--subscription", name("subscriptions", "orders"), "--endpoint", broker.endpoint),
        *("--to", f"{folder}/orders", "--state", f"{folder}/state"),
        *("--decode", "json", "--schema", SCHEMA),
        *("--option", "drainWaitMs=300", "--option", "lingerMs=50"),
    ]


def errors_of(run: subprocess.CompletedProcess[str]) -> str:
    """Return the end of the output of a program."""
    return run.stdout[-1500:] + run.stderr[-1500:]


def run_python(
    version: str, arguments: Sequence[str | Path], variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command: list[str | Path] = [environment(version), *arguments]
    return subprocess.run(
        command,
        env=own | (variables or {}),
        capture_output=True,
        text=True,
        check=False,
    )


# ---- readers -------------------------------------------------------------------------------------


def read(tables: Sequence[WrittenTable]) -> Iterator[Check]:
    """Read all tables of a format by Spark with the format's own jar."""
    format = tables[0].format
    version = READERS[format]
    reader = f"PySpark {version}" + (f", {PACKAGES[format]}" if format in PACKAGES else "")
    complete = [one for one in tables if not one.problem]
    result = run_python(version, [HERE / "read.py", format, *(one.folder for one in complete)])
    lines = iter(result.stdout.splitlines())
    for one in tables:
        problem = one.problem or differences(next(lines, ""), result.stderr)
        yield Check(format, one.what, one.by, reader, problem or GOOD, not problem)


def differences(line: str, errors: str) -> str:
    """Return the queries whose result is wrong, or the reader's error."""
    if not line:
        return errors[-1500:]
    found = json.loads(line)["found"]
    return ", ".join(name for name, ids in expected().items() if sorted(found[name]) != ids)


# ---- batch read and sink -------------------------------------------------------------------------


def batch_checks(place: str) -> Iterator[Check]:
    """Run batch read and sinks with the oldest PySpark; a stream is refused there."""
    folder = Path(place, BATCH)
    folder.mkdir()
    with Emulator() as broker:
        prepare(broker, "read")
        publish(broker, 0, ROWS)
        topics = [name("topics", one) for one in TOPICS[1:]]
        where = [broker.endpoint, name("subscriptions", "read"), *topics, str(folder)]
        run = run_python(BATCH, [HERE / "batches.py", *where], OURS)
        sent = [[message.data for message in broker.messages(one)] for one in topics]
        backlog = broker.backlog(name("subscriptions", "read"))
    answer = json.loads(run.stdout.splitlines()[-1]) if not run.returncode else {}
    by = f"PySpark {BATCH}"
    copied = [sorted(json.loads(data)["id"] for data in one) == [*range(ROWS)] for one in sent]
    checks = {
        '`read.format("pubsub")`': answer.get("acked") == ROWS and not backlog,
        '`write.format("pubsub")`': copied[0],
        '`writeStream.format("pubsub")`': copied[1],
    }
    for what, is_right in checks.items():
        text = "every message once" if is_right else run.stderr[-1500:]
        yield Check("", what, by, "", text, is_right)
    needed = "needs PySpark 4.2 or later"
    is_refused = needed in answer.get("stream", "")
    text = "one sentence" if is_refused else run.stderr[-1500:]
    yield Check("", '`readStream.format("pubsub")`', by, "", f"refused: {text}", is_refused)


def connect_checks(place: str) -> Iterator[Check]:
    """Run source, batch read and sink in sessions of Spark Connect."""
    for version in CONNECT:
        folder = Path(place, f"connect-{version}")
        folder.mkdir()
        with Emulator() as broker:
            prepare(broker, "streamed", "read")
            publish(broker, 0, ROWS)
            subscriptions = [name("subscriptions", own) for own in ("streamed", "read")]
            where = [broker.endpoint, *subscriptions, name("topics", TOPICS[1]), str(folder)]
            run = run_python(version, [HERE / "connect.py", *where], OURS)
            sent = [json.loads(message.data)["id"] for message in broker.messages(where[3])]
        found = json.loads(run.stdout.splitlines()[-1]) if not run.returncode else []
        is_right = found == [ROWS, ROWS] and sorted(sent) == [*range(ROWS)]
        text = "every message once" if is_right else f"{found} {run.stderr[-500:]}"
        by = f"PySpark {version}"
        yield Check("", "source, batch read and sink by Spark Connect", by, "", text, is_right)


def call_checks(place: str) -> Iterator[Check]:
    """Record the calls to a streaming source with each version."""
    for version in CALLS:
        folder = Path(place, f"calls-{version}")
        folder.mkdir()
        run = run_python(version, [HERE / "calls.py", folder])
        found = json.loads(run.stdout.splitlines()[-1]) if not run.returncode else []
        is_right = found == recorded(version)
        text = "as recorded" if is_right else f"{found} {run.stderr[-500:]}"
        yield Check("", "the calls of a streaming source", f"PySpark {version}", "", text, is_right)


def main() -> None:
    console = Console()
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            sys.exit(f"make spark-matrix needs {tool}, for the server of Iceberg's REST catalog")
    with tempfile.TemporaryDirectory() as place:
        with rest_catalog.running(Path(place, "rest")) as url:
            tables = [
                *(*written_tables(place), *written_by_jobs(place)),
                *written_to_catalog(place, url),
            ]
            checks = [
                check
                for format in READERS
                for check in read([one for one in tables if one.format == format])
            ]
        checks += batch_checks(place)
        checks += connect_checks(place)
        checks += call_checks(place)
    console.print(terminal_table(checks))
    if not all(check.is_right for check in checks):
        sys.exit(1)
    day = datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc).date()
    python = f"Python {platform.python_version()} on {platform.system()}"
    write_docs(PAGE, checks, f"Tested on {day}, with {python} and {version_of('pyarrow')}")
    console.print(f"The table is in {PAGE.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
