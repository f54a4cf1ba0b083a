"""The cases of a spool in a bucket: requests to the store."""

from __future__ import annotations

from dataclasses import dataclass

from pullstream.spark.protocol.acknowledge import Acknowledge

from .peers import OURS
from .rows import Case, Row


@dataclass(frozen=True)
class SpoolWork:
    """A simulation by tests/bench/spool_costs.py.

    Attributes:
        acknowledge: When the receiver acknowledges.
        rows: Rows of a segment.
    """

    acknowledge: Acknowledge
    rows: int


def _case(acknowledge: Acknowledge, rows: int, most: int) -> Case:
    return Case(
        f"spool in a bucket, {acknowledge.value}, {rows:,} rows a segment",
        "Spark",
        {OURS: SpoolWork(acknowledge, rows)},
        (Row("requests", at_most=most),),
        once=True,
    )


SPOOL_CASES = (
    _case(Acknowledge.COMMITTED, 10_000, 2_000),
    _case(Acknowledge.COMMITTED, 50_000, 700),
    _case(Acknowledge.STORED, 10_000, 1_600),
    _case(Acknowledge.STORED, 50_000, 500),
)
