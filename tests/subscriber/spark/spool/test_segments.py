"""The end of an "available now" run: all messages of a batch are younger than the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullstream.message import MessageBatch
from pullstream.spark.session.message_buffer import MessageBuffer
from pullstream.spark.session.settings import IngestSettings
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.segments import Segments
from pullstream_protocol.clock import ManualClock
from tests.subscriber.spark.session.messages import batch

HOUR = 3600.0


@pytest.mark.parametrize(
    ("published", "is_last"),
    [
        ([-10.0, 3.0], False),
        ([1.0, 4.0], True),
        # From a driver whose clock is an hour behind: before the run began, and since.
        ([HOUR - 600, HOUR - 10], False),
        ([HOUR + 1, HOUR + 4.9], True),
    ],
)
def test_a_spark_available_now_run_ends_if_all_received_messages_are_newer_than_the_run(
    tmp_path: Path, published: list[float], is_last: bool
) -> None:
    """A run ends when all received messages are younger than it is.

    The server's times count, five seconds after the run began. This also holds with a slow clock of
    the driver, to which all messages seem to be from the future.
    """
    clock = ManualClock()
    begun = clock.now()
    settings = IngestSettings(subscription="projects/p/subscriptions/one", spool_dir=tmp_path)
    segments = Segments(settings, AtomicFiles(), clock)
    segments.open()
    buffer = MessageBuffer(segments.done, clock, None)
    buffer(MessageBatch(batch(["a", "b"], published=[begun + each for each in published])))
    clock.advance(5)
    cut = segments.cut(buffer, 0, (10, 10_000), begun)
    assert cut is not None
    assert cut.is_last == is_last
    buffer.close()
    segments.close()
