"""Metrics of `pullstream ingest`, made from the moments of its view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .ingest_view import Moment

if TYPE_CHECKING:
    from pullstream.telemetry.job_metrics import JobMetric

_PREFIX = "pullstream_ingest_"


def metrics_of(moment: Moment) -> Iterator[JobMetric]:
    """Yield the metrics of a job.

    Args:
        moment: The present moment.
    """
    from pullstream.spark.ingest.report import Phase

    report, totals = moment.report, moment.report.totals
    yield _counter("rows", "Messages written, good and bad.", totals.rows)
    yield _counter("bytes", "Bytes of their data.", totals.bytes)
    yield _counter("batches", "Batches written.", totals.batches)
    yield _counter("known_batches", "Batches that were in the table already.", totals.known)
    yield _counter("bad_rows", "Bad rows.", totals.bad)
    yield _counter("unknown_fields", "Fields outside the schema left out.", totals.unknown_fields)
    yield _counter("duplicates", "Redelivered messages left out.", report.duplicates)
    yield _metric(
        "bad_rows_by_reason",
        "Bad rows by reason, of the first 1,000 of each task.",
        dict(report.reasons),
        "reason",
        is_counter=True,
    )
    yield _metric(
        "lag_seconds",
        "Age of the oldest message that is in a batch and not in the table; 0 if there is none.",
        {"": report.lag},
    )
    yield _metric(
        "plan",
        "Number of the plan that the source has made last.",
        {"": report.source.get("plan", 0)},
    )
    yield _metric("waiting_segments", "Segments not in the table.", {"": report.waiting.segments})
    yield _metric("waiting_bytes", "Bytes of these segments.", {"": report.waiting.bytes})
    yield _metric(
        "delivery_attempts",
        "Highest delivery attempt of their messages; 0 if the server does not count attempts.",
        {"": report.waiting.attempts},
    )
    yield _counter(
        "long_committed",
        "Messages left out that were committed at least 10 minutes before.",
        report.source.get("longCommitted", 0),
    )
    if report.receivers is not None:
        yield _metric("receivers_wanted", "Receivers of the job.", {"": report.receivers.wanted})
        yield _metric("receivers", "Receivers that run.", {"": report.receivers.running})
        yield _counter(
            "receiver_restarts",
            "Times that the receivers' job was started again.",
            report.receivers.restarts,
        )
    if moment.waiting is not None:
        yield _metric(
            "unacknowledged_messages",
            "Unacknowledged messages of the subscription.",
            {"": moment.waiting},
        )
    since = moment.now if report.outage is None else report.outage.since
    yield _metric(
        "outage_seconds",
        "Seconds since the server cannot be reached; 0 if it can.",
        {"": max(moment.now - since, 0.0)},
    )
    yield _metric(
        "phase",
        "1 for what the job does now.",
        {phase.value: float(phase is report.phase) for phase in Phase},
        "phase",
    )
    yield _metric(
        "phase_seconds",
        "Seconds since the job began to do what it does now.",
        {"": max(moment.now - report.since, 0.0)},
    )


def _counter(name: str, description: str, value: float) -> JobMetric:
    return _metric(name, description, {"": value}, is_counter=True)


def _metric(
    name: str,
    description: str,
    values: dict[str, float],
    label: str = "",
    *,
    is_counter: bool = False,
) -> JobMetric:
    # Imported here, because most runs have no metrics and need no prometheus-client.
    from pullstream.telemetry.job_metrics import JobMetric

    return JobMetric(_PREFIX + name, description, values, label, is_counter)
