"""The simulated engine, which tests the core, makes the same calls as real Spark."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pullstream.spark.datasource.options import StreamOptions
from pullstream.spark.datasource.partition import PartitionReader
from pullstream.spark.datasource.stream_reader import PubSubStreamReader
from pullstream_emulator import Emulator
from tests.subscriber.streaming.fakes import eventually

from .engine import Checkpoint, Engine, Killed
from .engine import Sink as EngineSink
from .recorded import RecordedSource, calls_of, proofs_of, take
from .stage import Sink, Stage, publish

pytestmark = pytest.mark.spark

LIMIT = {"maxMessagesPerTrigger": "10"}


class Simulation:
    """The same query as a stage's, on the simulated engine."""

    def __init__(self, stage: Stage) -> None:
        given = {**stage.options(**LIMIT), "spoolDir": f"{stage.spool}.simulated"}
        self._options = StreamOptions.parse(given, files_are_shared=True)
        self._checkpoint = Checkpoint()
        self._sink = EngineSink()

    def drain(self, step: Callable[[str], None] = lambda name: None) -> list[str]:
        """Run once with "available now", and return the calls."""
        reader = PubSubStreamReader(self._options)
        engine = Engine(
            reader,
            self._checkpoint,
            self._sink,
            read=PartitionReader().read,
            step=step,
            available_now=True,
        )
        self._on_a_thread(engine.run)
        reader.stop()
        return engine.calls

    @staticmethod
    def _on_a_thread(run: Callable[[], None]) -> None:
        """Run in another thread, because the reader would take over the signals of the main one."""

        def mortal() -> None:
            try:
                run()
            except Killed:
                return

        thread = threading.Thread(target=mortal)
        thread.start()
        thread.join()


def dies_in(batch: int) -> Callable[[str], None]:
    """Return a step function that kills a simulated run before it writes batch `batch`, from 0."""
    written = itertools.count()

    def step(name: str) -> None:
        if name == "sink" and next(written) == batch:
            raise Killed

    return step


def test_spark_calls_the_source_in_the_order_that_the_simulation_of_spark_expects(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The calls are the same with their offsets.

    This holds in a new query, after the first batch failed, after another one did, and after
    neither. Each `latestOffset` begins at a committed offset.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    spark.dataSource.register(RecordedSource)
    real = Stage(spark, broker, tmp_path)
    real.format = "recorded"
    failing = {0, 1}

    def fail_once(batch: int) -> None:
        if batch in failing:
            failing.remove(batch)
            raise RuntimeError("not this one")

    sink = Sink(before=fail_once)
    with Emulator() as other:
        simulated = Stage(spark, other, tmp_path)
        simulation = Simulation(simulated)
        for stage in (real, simulated):
            publish(stage.broker, 25)
        for dies in (dies_in(0), dies_in(1)):
            with pytest.raises(StreamingQueryException, match="not this one"):
                real.drain(sink, **LIMIT)
            assert take(calls_of(real.spool)) == simulation.drain(dies)
        real.drain(sink, **LIMIT)
        assert take(calls_of(real.spool)) == simulation.drain()
        for stage in (real, simulated):
            publish(stage.broker, 5)
        real.drain(sink, **LIMIT)
        calls = simulation.drain()
        assert take(calls_of(real.spool)) == calls
    assert "commit 3" in calls
    assert len(sink.ids) == 30
    proofs = take(proofs_of(real.spool))
    assert proofs
    assert set(proofs) == {"True"}


def test_spark_asks_a_source_without_messages_for_the_same_committed_offset_again(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """Without messages Spark asks from the same committed offset, and commits nothing."""
    spark.dataSource.register(RecordedSource)
    stage = Stage(spark, broker, tmp_path)
    stage.format = "recorded"
    publish(broker, 5)
    sink = Sink()
    query = stage.start(sink, idleWaitMs="50")
    query.processAllAvailable()
    eventually(lambda: calls_of(stage.spool).read_text().count("latestOffset 1") >= 3)
    query.stop()
    calls = [each for each in take(calls_of(stage.spool)) if each != "reportLatestOffset"]
    polls = calls.index("latestOffset 1")
    assert calls[:polls].count("partitions 0 1") >= 1
    assert set(calls[polls:]) == {"latestOffset 1"}
    assert set(take(proofs_of(stage.spool))) == {"True"}
    assert len(sink.ids) == 5
