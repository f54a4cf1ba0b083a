"""Queries in sequence on one checkpoint, with failures other than a kill of the driver.

No message is lost or doubled.
"""

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

from pullstream_emulator import Emulator

from .processes import source_workers
from .stage import SUBSCRIPTION, Sink, Stage, publish

pytestmark = [pytest.mark.slow, pytest.mark.spark]

LIMIT = {"maxMessagesPerTrigger": "100"}


def test_a_spark_query_delivers_each_message_once_despite_server_and_task_failures(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """No message is lost or doubled.

    The failures are a killed source worker, a full disk, a stop in the middle of a batch, expired
    leases, and a restarted broker.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    stage = Stage(spark, broker, tmp_path)
    ids = publish(broker, 1500)
    begun, may_go_on = threading.Event(), threading.Event()

    def wait(batch: int) -> None:
        begun.set()
        assert may_go_on.wait(30)

    def in_a_batch() -> int:
        """Wait until the next batch is running, and return its source worker."""
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
    # A larger file fails as it does on a full disk.
    resource.prlimit(in_a_batch(), resource.RLIMIT_FSIZE, (2000, 2000))
    may_go_on.set()
    with pytest.raises(
        StreamingQueryException, match=r"cannot (write \d+ messages|use .* as a spool)"
    ):
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
    with Emulator(broker=broker.broker, port=broker.port) as again:
        again.wait_until_acked(SUBSCRIPTION, timeout=60)
        query.stop()
    assert sorted(sink.ids, key=int) == ids
    assert all(sink.replays)
