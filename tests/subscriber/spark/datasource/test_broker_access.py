"""Spark on a broker that requires TLS, a client certificate and a token (docs/security.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal, Tls
from tests.emulator.certificates import new_identity
from tests.subscriber.command_line import pullstream
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC
from tests.subscriber.worker.program import python_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOKEN = "b81e55c09d23"
COPIES = "projects/p/topics/copies"
COPIED = "projects/p/subscriptions/copies"


class Secured:
    """The broker, and the options of its clients."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.emulator = emulator
        certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
        self.connection = {
            "endpoint": emulator.endpoint.replace("localhost", "127.0.0.1"),
            "ca": certificate,
            "cert": certificate,
            "key": key,
        }
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN, encoding="ascii")
        self.client: dict[str, Any] = {**self.connection, "token": TOKEN}

    def prepare(self) -> None:
        with TopicAdminClient(**self.client) as topics, SubscriberClient(**self.client) as client:
            for topic, subscription in ((TOPIC, SUBSCRIPTION), (COPIES, COPIED)):
                topics.create_topic(name=topic)
                client.create_subscription(name=subscription, topic=topic)
            topics.publish(TOPIC, [{"data": str(number).encode()} for number in range(20)])


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    identity = new_identity("broker")
    certificate, key = identity.write(tmp_path)
    tls = Tls(certificate, key, certificate)
    access = Access({TOKEN: Principal("spark")})
    with Emulator(access=access, server_credentials=tls.credentials()) as emulator:
        secured = Secured(emulator, tmp_path)
        secured.prepare()
        yield secured


def command_lines() -> str:
    """Return the command lines of all processes, if the system shows them."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes())
        except OSError:
            continue
    return b"\n".join(found).decode(errors="replace")


def test_no_spark_plan_or_command_line_shows_the_access_token_of_a_spark_query(
    spark: SparkSession, secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The token is an option or a file, and no command line or plan shows it."""
    shown: list[str] = []
    frame = (
        spark.readStream.format("pubsub")
        .options(**secured.connection, token=TOKEN, subscription=SUBSCRIPTION)
        .options(spoolDir=str(tmp_path / "spool"), drainWaitMs="300")
        .load()
    )

    def copy(rows: DataFrame, batch: int) -> None:
        shown.append(command_lines())
        rows.select("data").write.format("pubsub").options(
            **secured.connection, tokenFile=str(secured.token_file), topic=COPIES
        ).mode("append").save()

    query = (
        frame.writeStream.foreachBatch(copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    frame.explain(True)
    query.explain(True)
    assert secured.emulator.backlog(SUBSCRIPTION) == 0
    assert secured.emulator.backlog(COPIED) == 20
    out, err = capfd.readouterr()
    assert "pubsub" in out
    assert TOKEN not in out + err + "".join(shown)


def ingest(secured: Secured, table: Path) -> list[str]:
    """Return the arguments except for the token."""
    certificate, key = secured.connection["cert"], secured.connection["key"]
    return [
        *("ingest", "--subscription", SUBSCRIPTION, "--to", str(table)),
        *("--available-now", "--option", "drainWaitMs=300", "--json"),
        *("--endpoint", secured.connection["endpoint"]),
        *("--ca", certificate, "--cert", certificate, "--key", key),
    ]


@pytest.mark.parametrize("options", [("--token", TOKEN), ("--token-file", "token")])
def test_the_ingest_command_connects_with_a_token_file_and_a_ca_file_from_its_options(
    options: tuple[str, str],
    spark: SparkSession,
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """File names may be relative, and no file kept for the next run has the token."""
    monkeypatch.chdir(tmp_path)
    result = pullstream(*options, *ingest(secured, tmp_path / "rows"))
    assert result.code == 0, result.stderr
    assert result.objects[-1]["messages"] == 20
    kept = [path for path in (tmp_path / "rows").rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if TOKEN.encode() in path.read_bytes()] == []


def test_the_ingest_command_finds_the_access_token_in_the_environment(
    secured: Secured, tmp_path: Path
) -> None:
    """The processes that Spark starts inherit it."""
    environment = {**os.environ, "PULLSTREAM_TOKEN": TOKEN, "PYTHONPATH": python_path()}
    ran = subprocess.run(
        [sys.executable, "-m", "pullstream", *ingest(secured, tmp_path / "rows")],
        env=environment,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert b'"messages": 20' in ran.stdout
