"""A killed driver loses no message and doubles none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .chaos import Chaos

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_spark_query_loses_no_message_when_its_driver_is_killed(tmp_path: Path) -> None:
    """The kill comes in the middle of a batch.

    `make soak` does much more, because a start takes half a minute.
    """
    chaos = Chaos(tmp_path / "ingestion", per_batch=500, dice=random.Random(4))
    try:
        chaos.publish(3000)
        chaos.start()
        chaos.progress(2, more=0.5)
        chaos.expire_leases()
        chaos.kill_driver()
        batches = chaos.finish()
    finally:
        chaos.close()
    assert sum(len(ids) for ids in batches.values()) == 3000
