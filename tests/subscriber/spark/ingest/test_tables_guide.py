"""The commands of docs/spark-tables.md and its neighbours work as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from tests.completed import run_command
from tests.optional_tools import missing
from tests.subscriber.command_line import pullstream
from tests.subscriber.spark.postgresql import (
    DRIVER,
    PostgresqlServer,
    postgresql_server,
    server_programs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[4] / "docs"
TOPIC = "projects/shop/topics/orders"
SUBSCRIPTION = "projects/shop/subscriptions/orders"


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


def test_the_documented_lines_read_an_iceberg_table_and_register_it_again_after_its_catalog_is_lost(
    spark: SparkSession, orders: Emulator, tmp_path: Path
) -> None:
    """The table has all rows, and the job continues with it."""
    arguments = placed(command("spark-tables", "Iceberg"), tmp_path)
    publish_orders(orders, 0, 5)
    run_once(orders, arguments)
    folder = tmp_path / "iceberg" / "orders"
    reading, program = (
        each.replace("/data", str(tmp_path))
        for each in re.findall(
            r"^```python\n(from pyiceberg.*?)^```$",
            (DOCS / "spark-tables.md").read_text("utf-8"),
            re.M | re.S,
        )
    )
    names: dict[str, Any] = {}
    exec(compile(reading, "spark-tables.md", "exec"), names)
    assert sorted(names["rows"]["id"].to_pylist()) == list(range(5))
    (folder.parent / "catalog.db").unlink()
    newest = max(folder.glob("metadata/*.metadata.json"), key=lambda path: path.name)
    program = program.replace("NEWEST.metadata.json", newest.name)
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


LOG_ENTRY = {
    "insertId": "1x2y",
    "timestamp": "2026-11-27T05:00:00.123456789Z",
    "receiveTimestamp": "2026-11-27T05:00:01.2Z",
    "severity": "ERROR",
    "logName": "projects/shop/logs/checkout",
    "resource": {"type": "k8s_container", "labels": {"pod_name": "checkout-1"}},
    "labels": {"version": "7"},
    "jsonPayload": {"message": "no stock", "order": 5},
}
STORED_OBJECT = {
    "kind": "storage#object",
    "id": "shop-images/tea.png/1700000000000000",
    "name": "tea.png",
    "bucket": "shop-images",
    "generation": "1700000000000000",
    "contentType": "image/png",
    "timeCreated": "2026-11-27T05:00:00.123Z",
    "updated": "2026-11-27T05:00:00.123Z",
    "size": "1024",
    "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg==",
    "metadata": {"owner": "shop"},
}


def test_the_documented_schemas_of_log_entries_and_stored_objects_read_every_field(
    spark: SparkSession, orders: Emulator, tmp_path: Path
) -> None:
    """The fields have the forms of Google's documentation."""
    text = (DOCS / "spark-schema.md").read_text("utf-8").partition("## Cloud Logging")[2]
    commands = re.findall(r"^\$ pullstream (ingest .*?)^```$", text, re.M | re.S)
    values: dict[str, Any] = {}
    for published, line in zip((LOG_ENTRY, STORED_OBJECT), commands, strict=True):
        with TopicAdminClient(endpoint=orders.endpoint) as topics:
            topics.publish(TOPIC, [{"data": json.dumps(published).encode()}])
        arguments = placed(shlex.split(line.replace("\\\n", "")), tmp_path)
        run_once(orders, arguments)
        folder = arguments[arguments.index("--to") + 1]
        (row,) = spark.read.parquet(folder).collect()
        values |= row.asDict(recursive=True)
    assert values["jsonPayload"] == {"message": "no stock"}
    assert values["resource"] == LOG_ENTRY["resource"]
    assert values["size"] == 1024
    assert values["metadata"] == {"owner": "shop"}
    missing = {name for name, value in values.items() if value is None}
    assert missing == {"textPayload", "pubsub_delivery_attempt"}


def test_the_documented_program_publishes_bad_messages_again(
    spark: SparkSession, orders: Emulator, tmp_path: Path
) -> None:
    """Messages with another reason are not published."""
    with TopicAdminClient(endpoint=orders.endpoint) as topics:
        message = {"data": b'{"tags": []}', "attributes": {"a": "b"}}
        topics.publish(TOPIC, [message, {"data": b"not an order"}])
    run_once(orders, placed(command("spark-schema", "Schema"), tmp_path))
    assert orders.backlog(SUBSCRIPTION) == 0
    text = (DOCS / "spark-schema.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    program = program.replace("/data", str(tmp_path))
    # The workers of the running Spark have no environment with the server.
    program = program.replace(".option(", f'.option("endpoint", "{orders.endpoint}").option(')
    exec(compile(program, "spark-schema.md", "exec"), {})
    with SubscriberClient(endpoint=orders.endpoint) as client:
        (received,) = client.pull(subscription=SUBSCRIPTION, max_messages=9).received_messages
    assert received.message.data == b'{"tags": []}'
    assert dict(received.message.attributes) == {"a": "b"}


@pytest.fixture
def postgresql() -> Iterator[PostgresqlServer]:
    programs = server_programs()
    if programs is None or not DRIVER.exists():
        missing("postgresql", "no PostgreSQL server, or no JDBC driver")
    assert programs is not None
    with postgresql_server(programs) as server:
        yield server


@pytest.mark.slow
def test_the_documented_ingest_command_writes_each_message_once_to_postgresql(
    orders: Emulator, postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """The command starts its own Spark, because the driver's file is a setting of the start."""
    arguments = placed(command("spark-tables", "PostgreSQL"), tmp_path)
    place = arguments.index("--to") + 1
    arguments[place] = postgresql.url
    program = [sys.executable, "-m", "pullstream", *arguments, "--available-now"]
    environment = os.environ | postgresql.credentials
    for first, last in ((0, 20), (20, 30)):
        publish_orders(orders, first, last)
        done = run_command([*program, "--endpoint", orders.endpoint], env=environment)
        assert done.returncode == 0, done.stderr
        shutil.rmtree(tmp_path / "orders-state" / "checkpoint")
    ids = sorted(map(int, postgresql.query("SELECT id FROM orders")))
    assert ids == list(range(30))
    assert postgresql.query("SELECT count(*) FROM orders_deadletter") == ["2"]
    assert orders.backlog(SUBSCRIPTION) == 0
