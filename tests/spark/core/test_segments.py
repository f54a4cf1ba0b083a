"""The end of an "available now" run: all that a batch has is younger than the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.clock import ManualClock
from subscriber.message import MessageBatch
from subscriber.spark.disk import Disk
from subscriber.spark.intake import Intake
from subscriber.spark.segments import Segments
from subscriber.spark.settings import IngestSettings
from tests.spark.core.messages import batch

HOUR = 3600.0


@pytest.mark.parametrize(
    ("published", "is_last"),
    [
        ([-10.0, 3.0], False),
        ([1.0, 4.0], True),
        # Of a driver whose clock is an hour behind: before the run began, and since.
        ([HOUR - 600, HOUR - 10], False),
        ([HOUR + 1, HOUR + 4.9], True),
    ],
)
def test_a_run_ends_when_all_that_comes_is_younger(
    tmp_path: Path, published: list[float], is_last: bool
) -> None:
    """By the server's times, five seconds after the run began; also where the driver's clock is
    slow, by which all is still to be published."""
    clock = ManualClock()
    begun = clock.now()
    settings = IngestSettings(subscription="projects/p/subscriptions/one", spool_dir=tmp_path)
    segments = Segments(settings, Disk(), clock)
    segments.open()
    intake = Intake(segments.done, clock, segments.rows)
    intake(MessageBatch(batch(["a", "b"], published=[begun + each for each in published])))
    clock.advance(5)
    cut = segments.cut(intake, 0, (10, 10_000), begun)
    assert cut is not None
    assert cut.is_last == is_last
    intake.close()
    segments.close()
