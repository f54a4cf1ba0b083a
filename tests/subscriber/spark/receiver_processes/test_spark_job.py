"""Receivers as tasks of Spark: they are started again, and end with their job and their driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.receiver_processes import receiver_task, spark_job
from pullstream.spark.receiver_processes.cores import check_cores
from pullstream.spark.receiver_processes.options import for_other_machines
from pullstream.spark.receiver_processes.spark_job import ReceiverTasks, receivers
from pullstream.spark.receiver_processes.stop_line import StopLine
from tests.subscriber.spark.processes import receiver_programs, wait_until_gone
from tests.subscriber.spark.receiver_processes.world import LEASE, SUBSCRIPTION, World
from tests.subscriber.streaming.fakes import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Seconds in which receivers end.
END = 10.0


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def options(world: World, **others: str) -> dict[str, str]:
    quick = {"lingerMs": "10", "drainWaitMs": "300"}
    return {"endpoint": world.broker.endpoint, **quick, **others}


def test_receivers_run_as_tasks_until_the_end_of_the_block(
    spark: SparkSession, world: World
) -> None:
    """The block ends after them. They have returned the messages that are not acknowledged."""
    world.publish(b"1", b"2", b"3")
    more = options(world, maxMessagesPerTrigger="2", lingerMs="100000")
    with receivers(spark, SUBSCRIPTION, str(world.spool), options=more) as found:
        eventually(lambda: len(world.broker.history.deliveries()) == 3 and world.manifests == 1)
        running = receiver_programs()
        assert len(running) == 1
    assert wait_until_gone(running, 0.05)
    assert len(world.returned) == 3
    assert found == {
        **more,
        "subscription": SUBSCRIPTION,
        "spoolDir": str(world.spool),
        "acknowledge": "committed",
        "receivers": "outside",
    }


def test_receivers_whose_worker_is_killed_are_started_again(
    spark: SparkSession, world: World
) -> None:
    """Nothing is lost, and nothing is there twice."""
    published = world.publish(b"1", b"2")
    query = world.query()
    given = {**options(world), "subscription": SUBSCRIPTION, "spoolDir": str(world.spool)}
    with ReceiverTasks(spark, given, count=1) as tasks:
        eventually(lambda: world.manifests > 0)
        (program,) = receiver_programs()
        os.kill(parent(program), signal.SIGKILL)
        assert wait_until_gone([program], END)
        world.broker.clock.advance(LEASE + 1)
        published += world.publish(b"3")

        def is_read() -> bool:
            query.step()
            world.broker.clock.advance(0.5)
            return world.acked == set(published)

        eventually(is_read)
        assert tasks.restarts == 1
        # Spark reports a task some time after it has begun.
        eventually(lambda: tasks.running == 1)
    assert sorted(query.ids) == published
    assert wait_until_gone(receiver_programs(), END)


def test_receivers_for_the_available_messages_end_their_job(
    spark: SparkSession, world: World
) -> None:
    """The job is not started again."""
    published = world.publish(b"1", b"2")
    given = {**options(world), "subscription": SUBSCRIPTION, "spoolDir": str(world.spool)}
    given["acknowledge"] = "stored"
    with ReceiverTasks(spark, given, count=1, available_now=True) as tasks:
        eventually(lambda: tasks.is_over)
        tasks.check()
    assert world.acked == set(published)
    assert tasks.restarts == 0


def test_the_error_of_receivers_is_raised_at_the_end_of_the_block(
    spark: SparkSession, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged at once. An error that does not pass is not tried again."""
    other = "projects/p/subscriptions/other"
    with (
        pytest.raises(IngestError, match=r"receivers have failed: NotFound: .*/other") as failure,
        receivers(spark, other, str(world.spool), options=options(world)),
    ):
        eventually(lambda: "the receivers have failed: NotFound" in caplog.text)
    assert failure.value.cause is FailureCause.SOURCE


def test_receivers_that_cannot_connect_to_the_driver_end_when_their_job_is_cancelled(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may end some seconds after the block."""

    class Unreachable(StopLine):
        def __init__(self, host: str) -> None:
            super().__init__(host)
            self.port = 1

    monkeypatch.setattr(spark_job, "StopLine", Unreachable)
    with receivers(spark, SUBSCRIPTION, str(world.spool), options=options(world)):
        eventually(lambda: len(receiver_programs()) == 1)
        running = receiver_programs()
    assert wait_until_gone(running, END)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_receivers_end_with_their_driver(world: World, number: signal.Signals) -> None:
    """They return their messages. Speculation and FAIR scheduling do not disturb them."""
    published = world.publish(b"1", b"2", b"3")
    program = str(Path(__file__).with_name("driver.py"))
    command = [sys.executable, program, world.broker.endpoint]
    with subprocess.Popen(
        [*command, str(world.spool), SUBSCRIPTION], stdout=subprocess.PIPE
    ) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == b"started\n"
            eventually(lambda: len(world.broker.history.deliveries()) == 3)
            running = receiver_programs(driver.pid)
            assert len(running) == 2
            driver.send_signal(number)
            assert wait_until_gone(running, END)
        finally:
            driver.kill()
    assert world.returned == set(published)


def test_receivers_without_enough_cores_are_refused_before_their_start(
    spark: SparkSession, world: World
) -> None:
    """Each one needs a core, and the query one more."""
    with (
        pytest.raises(ValueError, match=r"^2 receivers need a core each.* has 2; .* 3 cores"),
        receivers(spark, SUBSCRIPTION, str(world.spool), count=2, options=options(world)),
    ):
        pass
    assert not world.spool.exists()


@pytest.mark.parametrize(
    ("conf", "most"),
    [
        ({"spark.dynamicAllocation.maxExecutors": "2", "spark.executor.cores": "4"}, 8),
        ({"spark.dynamicAllocation.maxExecutors": "2", "spark.executor.cores": "1"}, 2),
        ({}, None),
    ],
)
def test_dynamic_allocation_has_as_many_cores_as_its_limits_allow(
    conf: dict[str, str], most: int | None
) -> None:
    """Without limits, it starts an executor for each receiver."""

    class Session:
        """A session whose executors are not started yet."""

        @property
        def sparkContext(self) -> Session:  # noqa: N802
            return self

        def getConf(self) -> dict[str, str]:  # noqa: N802
            return {"spark.dynamicAllocation.enabled": "true", **conf}

    session: Any = Session()
    if most is not None and most < 4:
        with pytest.raises(ValueError, match=f"this session has {most}"):
            check_cores(session, 3)
    else:
        check_cores(session, 3)


def test_several_receivers_with_order_by_key_are_refused(spark: SparkSession, world: World) -> None:
    """One receiver with more streams keeps the order."""
    by_key = options(world, partitionBy="orderingKey")
    with (
        pytest.raises(ValueError, match="partitionBy is orderingKey and there are 2 receivers"),
        receivers(spark, SUBSCRIPTION, str(world.spool), count=2, options=by_key),
    ):
        pass


def test_an_executor_without_pullstream_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with its host and its Python."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    task = receiver_task.task_of("{}", "stopped")
    with pytest.raises(RuntimeError, match=r"has no pullstream; install pullstream\[spark\]"):
        list(task([1]))


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("kill -9 $$", "^a receiver on .* was killed by signal 9$"),
        ("echo SpoolError: full; exit 1", "^the receiver has failed: SpoolError: full \\(on "),
        ("exit 3", "^the receiver has failed: OSError: the program has ended with 3 "),
    ],
)
def test_a_task_tells_a_killed_receiver_from_one_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, error: str
) -> None:
    """Only the second kind may be final."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nread settings\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(RuntimeError, match=error):
        list(receiver_task.task_of("{}", "stopped")([1]))


def test_receivers_need_neither_the_environment_nor_the_token_file_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other machines may have neither."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "broker:8085")
    monkeypatch.setenv("PULLSTREAM_TOKEN", "other")
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert for_other_machines({"TokenFile": str(file), "lingerMs": "1"}) == {
        "token": "secret",
        "endpoint": "broker:8085",
        "lingerMs": "1",
    }
    assert for_other_machines({"endpoint": "here:1"})["token"] == "other"
