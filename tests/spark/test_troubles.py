"""One query after the other on one checkpoint, with everything that goes wrong without a kill of
the driver: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import logging
import os
import resource
import signal
import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from emulator import Emulator

from .processes import source_workers
from .stage import SUBSCRIPTION, Sink, Stage, publish

pytestmark = [pytest.mark.slow, pytest.mark.spark]

LIMIT = {"maxMessagesPerTrigger": "100"}


def test_nothing_is_lost_or_there_twice(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """A source worker that is killed, a full disk, a stop in the middle of a batch, leases that
    expire, and a broker that restarts."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    stage = Stage(spark, broker, tmp_path)
    ids = publish(broker, 1500)
    begun, may_go_on = threading.Event(), threading.Event()

    def wait(batch: int) -> None:
        begun.set()
        assert may_go_on.wait(30)

    def in_a_batch() -> int:
        """Wait until the next one is in hand; returns its source worker."""
        begun.clear()
        assert begun.wait(60)
        (worker,) = source_workers()
        return worker

    sink = Sink(before=wait)

    query = stage.start(sink, **LIMIT)
    os.kill(in_a_batch(), signal.SIGKILL)
    may_go_on.set()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()

    may_go_on.clear()
    query = stage.start(sink, **LIMIT)
    # A file larger than this fails as it does on a disk that is full.
    resource.prlimit(in_a_batch(), resource.RLIMIT_FSIZE, (2000, 2000))
    may_go_on.set()
    with pytest.raises(StreamingQueryException, match=r"cannot write a batch of \d+ messages"):
        query.awaitTermination()

    may_go_on.clear()
    query = stage.start(sink, **LIMIT)
    in_a_batch()
    broker.clock.advance(700)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    may_go_on.set()
    stopping.join()

    query = stage.start(sink, **LIMIT)
    in_a_batch()
    broker.stop()
    with Emulator(engine=broker.engine, port=broker.port) as again:
        again.wait_until_acked(SUBSCRIPTION, timeout=60)
        query.stop()
    assert sorted(sink.ids, key=int) == ids
    assert all(sink.replays)
