"""Medians, spreads, ratios and met floors, computed from the figures of many rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .measure import Rounds
from .rows import Case, Row


@dataclass(frozen=True)
class Kind:
    """The name, unit and direction of a figure."""

    label: str
    form: str
    less_is_better: bool = True

    def text(self, value: float) -> str:
        return format(value, self.form)


KINDS = {
    "rate": Kind("messages/s", ",.0f", less_is_better=False),
    "megabytes": Kind("MB/s", ",.1f", less_is_better=False),
    "cpu_micros": Kind("µs CPU a message", ",.1f"),
    "client_cores": Kind("cores that the load client uses", ",.2f"),
    "p50_ms": Kind("p50, ms", ",.2f"),
    "p99_ms": Kind("p99, ms", ",.2f"),
    "longest_ms": Kind("longest call of another client, ms", ",.0f"),
    "served_ms": Kind("all served after, ms", ",.0f"),
    "threads": Kind("threads a subscription", ",.1f"),
    "mebibytes": Kind("MiB a subscription", ",.2f"),
    "growth": Kind("memory, last tenth by second", ".3f"),
    "miscounted": Kind("messages too many or too few", ",.0f"),
    "idle_percent": Kind("% of a core a subscription", ".3f"),
    "ready_ms": Kind("ready after, ms", ",.0f"),
    "resident_mebibytes": Kind("MiB at rest", ",.0f"),
    "bytes_each": Kind("bytes a message", ",.0f"),
    "peak_mebibytes": Kind("peak MiB", ",.0f"),
    "rows": Kind("rows/s", ",.0f", less_is_better=False),
    "batch_ms": Kind("ms a batch", ",.0f"),
    "driver_mebibytes": Kind("peak MiB of Spark's driver", ",.0f"),
    "upsert_s": Kind("s an upsert", ",.1f"),
    "commit_ms": Kind("ms a commit", ",.1f"),
    "commit_growth": Kind("time of a late commit, in early ones", ",.2f"),
    "commit_cpu_growth": Kind("CPU of a late commit, in early ones", ",.2f"),
    "late": Kind("p99, in linger time and three batches", ",.2f"),
    "restart_s": Kind("s until a killed query reads again", ",.1f"),
    "restart_beyond_lease_s": Kind("s until it reads again, less a lease", ",.1f"),
    "fixture_ms": Kind("ms of a fixture a test", ",.2f"),
    "fixture_cpu_ms": Kind("ms CPU of a fixture a test", ",.2f"),
    "plugin_ms": Kind("ms CPU to import the plugin", ",.2f"),
    "requests": Kind("requests to the store for a million messages", ",.0f"),
    "worker_micros": Kind("µs CPU of the source a row", ",.1f"),
    "broker_micros": Kind("µs CPU of the broker a row", ",.1f"),
    "executor_micros": Kind("µs CPU of driver and executors a row", ",.1f"),
    "receiver_micros": Kind("µs CPU of the receivers a row", ",.2f"),
}


@dataclass(frozen=True)
class Summary:
    """A figure over all rounds: the median, and half the range as a part of it."""

    median: float
    spread: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary | None:
        """Return the summary of the values, or None without values."""
        values = list(values)
        if not values:
            return None
        median = statistics.median(values)
        spread = (max(values) - min(values)) / 2 / median if median else 0.0
        return cls(median, spread)


def summary(rounds: Rounds, run: str, figure: str) -> Summary | None:
    return Summary.of(one[figure] for one in rounds.get(run, ()) if figure in one)


@dataclass(frozen=True)
class Outcome:
    """The result of a row. `met` is None without a floor or without the peer's figures."""

    row: Row
    ours: Summary | None
    peer: Summary | None
    ratio: Summary | None
    met: bool | None


def judge(row: Row, rounds: Rounds) -> Outcome:
    """Judge a row of a case by these rounds. A failed round counts as a missed floor."""
    ours = summary(rounds, row.run, row.figure)
    peer = summary(rounds, row.against, row.figure) if row.against else None
    ratio = Summary.of(_ratios(row, rounds)) if row.against else None
    met: bool | None = None
    if row.at_most is not None:
        complete = all(row.figure in one for one in rounds.get(row.run, ()))
        met = ours is not None and complete and ours.median <= row.at_most
    elif row.at_least is not None and row.against is None:
        complete = all(row.figure in one for one in rounds.get(row.run, ()))
        met = ours is not None and complete and ours.median >= row.at_least
    elif row.at_least is not None and row.against in rounds:
        both = [*rounds.get(row.run, ()), *rounds[row.against]]
        complete = all(row.figure in one for one in both)
        met = ratio is not None and complete and ratio.median >= row.at_least
    return Outcome(row, ours, peer, ratio, met)


def _ratios(row: Row, rounds: Rounds) -> Iterable[float]:
    """Yield for each round with both figures how many times better ours is."""
    kind = KINDS[row.figure]
    assert row.against is not None
    for ours, peer in zip(rounds.get(row.run, ()), rounds.get(row.against, ()), strict=False):
        better, worse = ours.get(row.figure), peer.get(row.figure)
        if kind.less_is_better:
            better, worse = worse, better
        if better is not None and worse:
            yield better / worse


def outcomes(case: Case, rounds: Rounds) -> list[Outcome]:
    return [judge(row, rounds) for row in case.rows]
