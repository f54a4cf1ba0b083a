"""`make spark-matrix`: other versions of Spark, and the formats' own jars as readers.

    python -m tests.spark_matrix.run [--missing]

Writes tables of each format, directly and by `pullstream ingest` with several versions of PySpark,
and reads them by Spark with Delta's and Iceberg's own jars. Runs batch read and sink with the
oldest PySpark that has them. Writes the table of tested versions into docs/spark-deploy.md if
everything is right, and exits with 1 otherwise. With --missing, only tests run that the table does
not have, and each line is added to it when it is right. Needs Java, Maven with its central
repository, and a package index.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
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
from tests.spark_matrix.report import (
    PAGE,
    Check,
    Key,
    terminal_table,
    write_docs,
    written_checks,
)
from tests.subscriber.spark.tables.test_tables import COLUMNS, SOURCE, rows, table
from tests.subscriber.spark.tables.test_tables import written as files_of

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
CONNECTED = "source, batch read and sink by Spark Connect"
CALLED = "the calls of a streaming source"
READ, WRITE, READ_STREAM, WRITE_STREAM = (
    f'`{one}.format("pubsub")`' for one in ("read", "write", "readStream", "writeStream")
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

    @property
    def key(self) -> Key:
        return self.format, self.what, self.by


# ---- tables that are written directly ------------------------------------------------------------


# A table, and the function that writes it and returns the problem.
Work = tuple[WrittenTable, Callable[[], str]]


def written(works: Iterable[Work], known: Set[Key]) -> Iterator[WrittenTable]:
    """Write the tables that are not known."""
    for one, write in works:
        if one.key not in known:
            yield replace(one, problem=write())


def direct_tables(place: str) -> Iterator[Work]:
    for format in READERS:
        for number, partition_by in enumerate(PARTITIONS):
            folder = f"{place}/{format}-{number}/orders"
            what = f"a table by {', '.join(partition_by)}" if partition_by else "a table"
            one = WrittenTable(format, what, version_of(LIBRARIES[format]), folder)
            yield one, partial(write, format, folder, partition_by)


def write(format: str, folder: str, partition_by: Sequence[str]) -> str:
    """Write a table in three batches, and return the problem."""
    to = table(format, folder, *partition_by)
    for number in range(BATCHES):
        batch = BatchName(SOURCE, number)
        some = rows(*range(number * ROWS, (number + 1) * ROWS))
        if not to.commit(files_of(to, some, batch), batch):
            return f"batch {number} was not committed"
    return ""


def version_of(library: str) -> str:
    return f"{library} {importlib.metadata.version(library)}"


# ---- tables in a REST catalog --------------------------------------------------------------------


def catalog_tables(place: str, url: str) -> Iterator[Work]:
    """Return tables in a catalog that are written by its protocol, directly and by jobs."""
    library = f"{version_of('pyiceberg')}, {rest_catalog.version()}"
    what = "REST catalog: create, append, and every batch twice"
    one = WrittenTable("iceberg", what, library, f"{url}#sales.replayed")
    yield one, partial(replay, f"{place}/replayed", url, "sales.replayed")
    for what, is_upsert in ((LOST, False), (UPSERTS, True)):
        own = f"sales.upserts{is_upsert}".lower()
        catalog = ("--table", own, "--catalog", "type=rest", "--catalog", f"uri={url}")
        one, write = by_job(Path(place, own), INGEST[-1], "iceberg", is_upsert, *catalog)
        by = f"{one.by}, {rest_catalog.version()}"
        yield replace(one, what=f"REST catalog: {what}", by=by, folder=f"{url}#{own}"), write


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
        results = [one.commit(files_of(one, some, batch), batch) for one in tables]
        if results != [True, False]:
            return f"the commits of batch {number} returned {results}"
    return ""


# ---- jobs ----------------------------------------------------------------------------------------


def tables_of_jobs(place: str) -> Iterator[Work]:
    """Return tables that `pullstream ingest` writes, with each version of PySpark."""
    for version in INGEST:
        for format in READERS:
            yield by_job(Path(place, f"{format}-{version}"), version, format)
    for format in ("delta", "iceberg"):
        yield by_job(Path(place, f"{format}-upserts"), INGEST[-1], format, True)
    for version, format in CONNECT.items():
        folder = Path(place, f"connect-job-{version}")
        one = WrittenTable(format, KILLED, versions(version, format), f"{folder}/orders")
        yield one, partial(write_over_connect, folder, version, format)


def versions(version: str, format: str) -> str:
    return f"PySpark {version}, {version_in(version, LIBRARIES[format])}"


def write_over_connect(folder: Path, version: str, format: str) -> str:
    """Write all rows to a table over Spark Connect, while parts of the job are killed."""
    with Emulator() as broker:
        prepare(broker, "orders")
        words = [*arguments(broker, folder), "--format", format, "--partition-by", "country"]
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | OURS
        state, subscription = folder / "state", name("subscriptions", "orders")
        job = ConnectJob(environment(version), own, broker, words, state, subscription)
        problem = run_with_kills(job, lambda *part: publish(broker, *part), BATCHES * ROWS)
        backlog = broker.backlog(subscription)
    return problem or left(backlog)


def by_job(folder: Path, version: str, format: str, is_upsert: bool = False, *more: str) -> Work:
    """Return a table that two runs of `pullstream ingest` write.

    The second run changes all rows of the first, or the checkpoint is lost in between.
    """
    what = UPSERTS if is_upsert else LOST
    one = WrittenTable(format, what, versions(version, format), f"{folder}/orders")
    return one, partial(write_by_job, folder, version, format, is_upsert, *more)


def write_by_job(folder: Path, version: str, format: str, is_upsert: bool, *more: str) -> str:
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
    return problem or left(backlog)


def left(backlog: int) -> str:
    return f"{backlog} messages are not acknowledged" if backlog else ""


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
    """Read tables of a format by Spark with the format's own jar."""
    if not tables:
        return
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


def batch_checks(place: str, known: Set[Key]) -> Iterator[Check]:
    """Run batch read and sinks with the oldest PySpark; a stream is refused there."""
    by = f"PySpark {BATCH}"
    if all(("", what, by) in known for what in (READ, WRITE, WRITE_STREAM, READ_STREAM)):
        return
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
    copied = [sorted(json.loads(data)["id"] for data in one) == [*range(ROWS)] for one in sent]
    checks = {
        READ: answer.get("acked") == ROWS and not backlog,
        WRITE: copied[0],
        WRITE_STREAM: copied[1],
    }
    for what, is_right in checks.items():
        text = "every message once" if is_right else run.stderr[-1500:]
        yield Check("", what, by, "", text, is_right)
    needed = "needs PySpark 4.2 or later"
    is_refused = needed in answer.get("stream", "")
    text = "one sentence" if is_refused else run.stderr[-1500:]
    yield Check("", READ_STREAM, by, "", f"refused: {text}", is_refused)


def connect_checks(place: str, known: Set[Key]) -> Iterator[Check]:
    """Run source, batch read and sink in sessions of Spark Connect."""
    for version in CONNECT:
        by = f"PySpark {version}"
        if ("", CONNECTED, by) in known:
            continue
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
        yield Check("", CONNECTED, by, "", text, is_right)


def call_checks(place: str, known: Set[Key]) -> Iterator[Check]:
    """Record the calls to a streaming source with each version."""
    for version in CALLS:
        by = f"PySpark {version}"
        if ("", CALLED, by) in known:
            continue
        folder = Path(place, f"calls-{version}")
        folder.mkdir()
        run = run_python(version, [HERE / "calls.py", folder])
        found = json.loads(run.stdout.splitlines()[-1]) if not run.returncode else []
        is_right = found == recorded(version)
        text = "as recorded" if is_right else f"{found} {run.stderr[-500:]}"
        yield Check("", CALLED, by, "", text, is_right)


def checked(place: str, known: Set[Key]) -> Iterator[Check]:
    """Run the tests that are not known, the short ones first."""
    yield from batch_checks(place, known)
    yield from connect_checks(place, known)
    yield from call_checks(place, known)
    works = [*direct_tables(place), *tables_of_jobs(place)]
    tables = list(written(works, known))
    with ExitStack() as stack:
        if any(one.key not in known for one, _ in catalog_tables(place, "")):
            url = stack.enter_context(rest_catalog.running(Path(place, "rest")))
            tables += written(catalog_tables(place, url), known)
        for format in READERS:
            yield from read([one for one in tables if one.format == format])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--missing", action="store_true", help="only what the table lacks")
    chosen = parser.parse_args()
    console = Console()
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            sys.exit(f"make spark-matrix needs {tool}, for the server of Iceberg's REST catalog")
    earlier = written_checks(PAGE) if chosen.missing else []
    day = datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc).date()
    python = f"Python {platform.python_version()} on {platform.system()}"
    what = "The newest lines were tested" if earlier else "Tested"
    told = f"{what} on {day}, with {python} and {version_of('pyarrow')}"
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as place:
        for check in checked(place, {check.key for check in earlier}):
            checks.append(check)
            if earlier and check.is_right:
                # Now, because the others may take an hour.
                write_docs(PAGE, [*earlier, *(one for one in checks if one.is_right)], told)
    console.print(terminal_table(checks))
    if not all(check.is_right for check in checks):
        sys.exit(1)
    write_docs(PAGE, [*earlier, *checks], told)
    console.print(f"The table is in {PAGE.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
