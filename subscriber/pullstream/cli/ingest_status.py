"""Output of `pullstream ingest status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .ingest_view import iso_time
from .top import age_of

if TYPE_CHECKING:
    from pullstream.spark.ingest.status import IngestStatus


def status_text(status: IngestStatus, *, as_json: bool, now: float) -> str:
    """Return the state of a job.

    Args:
        status: The state.
        as_json: Whether it is for machines.
        now: The time, in seconds since the epoch.
    """
    if as_json:
        return json.dumps(
            {
                "type": "result",
                "time": iso_time(now),
                "state": str(status.folder),
                "job": dict(status.job),
                "spool": status.spool,
                "planned": status.planned,
                "committed": status.committed,
                "sparkPlanned": status.spark_planned,
                "sparkCommitted": status.spark_committed,
                "segments": [
                    {
                        "plan": each.plan,
                        "segment": each.segment.path,
                        "messages": each.rows,
                        "bytes": each.size,
                        "oldest": None if each.oldest is None else iso_time(each.oldest),
                        "deliveryAttempts": each.attempts,
                    }
                    for each in status.segments
                ],
                "messages": status.rows,
                "oldestSeconds": _age(status.oldest, now),
            }
        )
    lines = [
        f"state: {status.folder}",
        *(f"{name}: {value}" for name, value in status.job.items() if value),
        f"spool: {status.spool or 'none yet'}",
        f"last planned batch: {_number(status.planned, status.spark_planned)}",
        f"last committed batch: {_number(status.committed, status.spark_committed)}",
        f"waiting segments: {len(status.segments)} with {status.rows:,} messages",
    ]
    for each in status.segments:
        age = "" if each.oldest is None else f", oldest {age_of(_age(each.oldest, now) or 0.0)}"
        plan = "not planned" if each.plan is None else f"batch {each.plan}"
        again = f", delivery attempt {each.attempts}" if each.attempts > 1 else ""
        lines.append(
            f"  {plan}: {each.rows:,} messages, {each.size:,} bytes{age}{again}, "
            f"receiver {each.segment.receiver}"
        )
    return "\n".join(lines)


def _age(oldest: float | None, now: float) -> float | None:
    return None if oldest is None else round(max(now - oldest, 0.0), 3)


def _number(batch: int | None, of_spark: int | None) -> str:
    return "none" if batch is None else f"{batch} (Spark's own number: {of_spark})"
