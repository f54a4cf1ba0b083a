"""Results of an ingestion job while it runs. Importing them does not import Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """The activity of a job."""

    STARTING = "starting Spark"
    OPENING = "opening the table"
    CONNECTING = "starting the source"
    WAITING = "waiting for messages"
    PLANNING = "planning"
    WRITING = "writing"
    COMMITTING = "committing"
    ENDING = "stopping Spark"


@dataclass(frozen=True)
class Totals:
    """Numbers of written rows.

    Attributes:
        batches: Number of complete batches.
        rows: Number of rows, good and bad.
        bytes: Size of their data in bytes.
        bad: Number of rows that could not be decoded.
        known: Number of batches that were in the target already, because the last run was killed
            after it had written them. Their rows are not counted.
        unknown_fields: Number of fields of good rows that the schema does not name and that were
            left out.
        cut_times: Number of good rows with a time whose nanoseconds were cut to microseconds.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    bad: int = 0
    known: int = 0
    unknown_fields: int = 0
    cut_times: int = 0


@dataclass(frozen=True)
class IngestReport:
    """Results of a job since its start.

    Attributes:
        totals: Numbers of written rows.
        seconds: Duration of the run.
        source: Last report of the source (`reportLatestOffset`): buffered, leased,
            suppressedDuplicates, unackedCommitted and others. Empty before the first report.
        to: Description of the table.
        bad_to: Description of the table of bad rows; None without decoding.
        stopped: Whether the job was stopped by the caller.
        phase: The present activity of the job.
        since: When it began to do so, in seconds since the epoch.
        lag: Age of the oldest message that is in a batch and not in the table, in seconds; 0 if
            there is none.
        reasons: Number of bad rows by reason, counted in the first 1,000 of each task.
        notice: A problem that has not ended the job; empty if there was none.
    """

    totals: Totals = field(default_factory=Totals)
    seconds: float = 0.0
    source: Mapping[str, int] = field(default_factory=dict)
    to: str = ""
    bad_to: str | None = None
    stopped: bool = False
    phase: Phase = Phase.STARTING
    since: float = 0.0
    lag: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)
    notice: str = ""

    @property
    def duplicates(self) -> int:
        """Number of redelivered messages that were left out."""
        return self.source.get("suppressedDuplicates", 0)

    @property
    def bad_reason(self) -> str | None:
        """The most frequent reason of bad rows; None without bad rows."""
        return max(self.reasons, key=lambda reason: self.reasons[reason], default=None)
