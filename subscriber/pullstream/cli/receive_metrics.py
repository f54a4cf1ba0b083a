"""Metrics of `pullstream receive`, made from the reports of its receiver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullstream.spark.receiver_processes.report import ReceiverReport
    from pullstream.telemetry.job_metrics import JobMetric

_PREFIX = "pullstream_receive_"


def metrics_of(report: ReceiverReport) -> Iterator[JobMetric]:
    """Yield the metrics of a receiver."""
    # Imported here, because most runs have no metrics and need no prometheus-client.
    from pullstream.spark.receiver_processes.report import Activity
    from pullstream.telemetry.job_metrics import JobMetric

    for name, description, value in (
        ("messages", "Messages in written segments.", report.rows),
        ("bytes", "Bytes of written segments.", report.bytes),
        ("segments", "Written segments.", report.segments),
        ("abandoned_segments", "Segments that were abandoned.", report.abandoned),
        ("acknowledged", "Acknowledged messages.", report.acknowledged),
        ("returned", "Messages that were returned to the server.", report.returned),
        ("redelivered", "Received messages with a delivery attempt above 1.", report.redelivered),
        ("lost_leases", "Lost leases.", report.expired),
        ("repeated_calls", "Calls of the storage that were repeated.", report.repeated),
    ):
        yield JobMetric(_PREFIX + name, description, {"": float(value)}, is_counter=True)
    for name, description, value in (
        ("waiting_segments", "Segments not known to be committed.", report.waiting_segments),
        ("waiting_bytes", "Bytes of these segments.", report.waiting_bytes),
        ("leased_messages", "Messages that are received and not settled.", report.leased),
    ):
        yield JobMetric(_PREFIX + name, description, {"": float(value)})
    yield JobMetric(
        f"{_PREFIX}activity",
        "1 for what the receiver does now.",
        {each.value: float(each is report.activity) for each in Activity},
        "activity",
    )
