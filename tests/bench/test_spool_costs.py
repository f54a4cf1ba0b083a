"""The tables of docs/spark-limits.md are computed from the rules of the protocol."""

from __future__ import annotations

import pytest

from pullstream.spark.protocol.acknowledge import Acknowledge
from tests.written_block import comments

from .spool_costs import BLOCKS, PAGE, markdown, simulate


@pytest.mark.parametrize("name", BLOCKS)
def test_the_page_on_limits_has_the_output_of_the_simulation(name: str) -> None:
    """Write it again with `python -m tests.bench.spool_costs --write-docs`."""
    begin, end = comments(name)
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(begin)[2].partition(end)[0].strip() == markdown(BLOCKS[name]())


def test_a_segment_and_its_batch_take_at_least_the_requests_of_their_files() -> None:
    """Segment, manifest, plan, mark and ids are put, and later deleted, except marks."""
    costs = simulate(1, 5_000, 10_000, Acknowledge.COMMITTED)
    segments = 100
    assert costs.requests["put"] >= 4 * segments
    assert costs.requests["delete"] >= 3 * segments
    assert costs.is_enough
    assert costs.rate == pytest.approx(5_000, rel=0.1)


def test_a_query_that_cannot_keep_up_is_noticed() -> None:
    assert not simulate(10, 100_000, 50_000).is_enough
