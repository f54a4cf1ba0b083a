"""The commands of docs/spark-tables.md and its neighbours work as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from tests.completed import run_command
from tests.optional_tools import missing
from tests.subscriber.command_line import pullstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[4] / "docs"
TOPIC = "projects/shop/topics/orders"
SUBSCRIPTION = "projects/shop/subscriptions/orders"
DRIVER = Path("/usr/share/java/postgresql.jar")


def command(page: str, title: str) -> list[str]:
    """Return the arguments of the command in a section, which is continued over several lines."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    found = re.search(rf"^##? {title}.*?^\$ pullstream (ingest .*?[^\\])$", text, re.M | re.S)
    assert found is not None
    return shlex.split(found[1].replace("\\\n", ""))


def placed(arguments: list[str], folder: Path) -> list[str]:
    """Return the arguments with a folder of the test instead of /data."""
    return [re.sub("^/data", str(folder), each) for each in arguments]


@pytest.fixture
def orders() -> Iterator[Emulator]:
    """Yield a broker with the subscription of the examples."""
    with (
        Emulator() as broker,
        TopicAdminClient(endpoint=broker.endpoint) as topics,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        yield broker


def publish_orders(broker: Emulator, first: int, last: int) -> None:
    """Publish orders with these ids, and a message that does not decode."""
    orders = [
        {"id": id, "item": "tea", "price": 2.5, "country": "DE", "at": "2026-11-27T05:00:00Z"}
        for id in range(first, last)
    ]
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.publish(TOPIC, [{"data": json.dumps(each).encode()} for each in orders])
        topics.publish(TOPIC, [{"data": b"not an order"}])


def run_once(broker: Emulator, arguments: list[str]) -> None:
    """Run the command until its messages are in the table."""
    given = [*arguments, "--available-now", "--endpoint", broker.endpoint]
    result = pullstream(*given, "--option", "drainWaitMs=300")
    assert result.code == 0, result.stderr


def ids_in(spark: SparkSession, format: str, folder: Path) -> list[int]:
    """Return the sorted ids of a table."""
    match format:
        case "parquet":
            found = [row.id for row in spark.read.parquet(str(folder)).select("id").collect()]
        case "delta":
            from deltalake import DeltaTable

            found = DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist()
        case _:
            from pyiceberg.catalog import load_catalog

            uri = f"sqlite:///{folder.parent / 'catalog.db'}"
            table = load_catalog("default", type="sql", uri=uri).load_table("default.orders")
            found = table.scan().to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_the_documented_ingest_commands_write_each_message_once_also_after_a_lost_checkpoint(
    spark: SparkSession, orders: Emulator, tmp_path: Path, format: str
) -> None:
    """The second run finds the batches of the first one in the table."""
    arguments = placed(command("spark-tables", format.capitalize()), tmp_path)
    folder = Path(arguments[arguments.index("--to") + 1])
    publish_orders(orders, 0, 20)
    run_once(orders, arguments)
    assert ids_in(spark, format, folder) == list(range(20))
    shutil.rmtree(folder / "_state" / "checkpoint")
    publish_orders(orders, 20, 30)
    run_once(orders, arguments)
    assert ids_in(spark, format, folder) == list(range(30))
    assert orders.backlog(SUBSCRIPTION) == 0


def test_the_documented_lines_register_an_iceberg_table_again_after_its_catalog_is_lost(
    spark: SparkSession, orders: Emulator, tmp_path: Path
) -> None:
    """The table has all rows, and the job continues with it."""
    arguments = placed(command("spark-tables", "Iceberg"), tmp_path)
    publish_orders(orders, 0, 5)
    run_once(orders, arguments)
    folder = tmp_path / "iceberg" / "orders"
    (folder.parent / "catalog.db").unlink()
    text = (DOCS / "spark-tables.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(from pyiceberg.*?)^```$", text, re.M | re.S)
    newest = max(folder.glob("metadata/*.metadata.json"), key=lambda path: path.name)
    program = program.replace("/data", str(tmp_path)).replace("NEWEST.metadata.json", newest.name)
    exec(compile(program, "spark-tables.md", "exec"), {})
    publish_orders(orders, 5, 8)
    run_once(orders, arguments)
    assert ids_in(spark, "iceberg", folder) == list(range(8))


@pytest.mark.parametrize(
    ("page", "title"),
    [("spark", "Spark"), ("spark-partitions", "Partitions"), ("spark-schema", "Schema")],
)
def test_the_other_documented_ingest_commands_write_the_messages_of_the_subscription(
    spark: SparkSession, orders: Emulator, tmp_path: Path, page: str, title: str
) -> None:
    """The first command of each page works as printed."""
    publish_orders(orders, 0, 3)
    run_once(orders, placed(command(page, title), tmp_path))
    assert orders.backlog(SUBSCRIPTION) == 0
    assert list((tmp_path / "orders").rglob("*.parquet"))


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server with the database `shop`."""

    port: int
    programs: Path

    def query(self, sql: str) -> list[str]:
        """Return the lines of a result."""
        program = [
            str(self.programs / "psql"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "etl",
        ]
        return run_command([*program, "-Atc", sql, "shop"], check=True).stdout.split()


@pytest.fixture
def postgresql() -> Iterator[Server]:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed or not DRIVER.exists():
        missing("postgresql", "no PostgreSQL server, or no JDBC driver")
    programs = installed[-1].parent
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # A server does not run as root, and pytest's folders are private.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        if user is not None:
            shutil.chown(folder, user)

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), *arguments]
            subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=folder)

        data = f"{folder}/data"
        run("initdb", "-D", data, "-U", "etl", "--auth=trust")
        settings = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off"
        run("pg_ctl", "-D", data, "-o", settings, "-l", f"{folder}/log", "-w", "start")
        try:
            run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "etl", "shop")
            yield Server(port, programs)
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_documented_ingest_command_writes_each_message_once_to_postgresql(
    orders: Emulator, postgresql: Server, tmp_path: Path
) -> None:
    """The command starts its own Spark, because the driver's file is a setting of the start."""
    arguments = placed(command("spark-tables", "PostgreSQL"), tmp_path)
    place = arguments.index("--to") + 1
    arguments[place] = f"jdbc:postgresql://127.0.0.1:{postgresql.port}/shop"
    program = [sys.executable, "-m", "pullstream", *arguments, "--available-now"]
    environment = {**os.environ, "PULLSTREAM_JDBC_USER": "etl", "PULLSTREAM_JDBC_PASSWORD": "x"}
    for first, last in ((0, 20), (20, 30)):
        publish_orders(orders, first, last)
        done = run_command([*program, "--endpoint", orders.endpoint], env=environment)
        assert done.returncode == 0, done.stderr
        shutil.rmtree(tmp_path / "orders-state" / "checkpoint")
    ids = sorted(map(int, postgresql.query("SELECT id FROM orders")))
    assert ids == list(range(30))
    assert postgresql.query("SELECT count(*) FROM orders_deadletter") == ["2"]
    assert orders.backlog(SUBSCRIPTION) == 0
