"""Results of an ingestion job while it runs. Importing them does not import Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pullstream.spark.receiving.outage_note import Outage


class Phase(Enum):
    """The activity of a job."""

    CHECKING = "checking the subscription"
    UNREACHABLE = "waiting for the server"
    OPENING = "opening the table"
    STARTING = "starting Spark"
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
        bad: Number of bad rows: those that could not be decoded, or whose times are outside of the
            event range.
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


class Receivers(NamedTuple):
    """The receivers of a job that run as tasks of Spark.

    Attributes:
        wanted: Number of receivers.
        running: Number of running receivers.
        restarts: Number of times that their job was started again.
    """

    wanted: int
    running: int
    restarts: int


class Waiting(NamedTuple):
    """The segments that are in the spool and not in the table.

    Attributes:
        segments: Number of segments.
        bytes: Their size in bytes.
        attempts: Highest delivery attempt of their messages; 0 if the server does not count.
        lag: Age of the oldest message in seconds; 0 if there is none.
    """

    segments: int = 0
    bytes: int = 0
    attempts: int = 0
    lag: float = 0.0


@dataclass(frozen=True)
class IngestReport:
    """Results of a job since its start.

    Attributes:
        totals: Numbers of written rows.
        seconds: Duration of the run.
        source: Last report of the source (`reportLatestOffset`): buffered, leased,
            leftOut, unackedCommitted and others. Empty before the first report.
        to: Description of the table.
        bad_to: Description of the table of bad rows; None without decoding.
        stopped: Whether the job was stopped by the caller.
        phase: The present activity of the job.
        since: When it began to do so, in seconds since the epoch.
        waiting: The segments that are in the spool and not in the table.
        reasons: Number of bad rows by reason, counted in the first 1,000 of each task.
        unknown: Number of good rows by a field that the schema does not name, counted in the first
            1,000 rows of each task; only the 20 most frequent fields.
        notice: A problem that has not ended the job; empty if there was none.
        outage: The present outage; None while the server can be reached.
        receivers: The receivers, if they run as tasks of Spark.
        server: Address of the server, `host:port`.
    """

    totals: Totals = field(default_factory=Totals)
    seconds: float = 0.0
    source: Mapping[str, int] = field(default_factory=dict)
    to: str = ""
    bad_to: str | None = None
    stopped: bool = False
    phase: Phase = Phase.CHECKING
    since: float = 0.0
    waiting: Waiting = field(default_factory=Waiting)
    reasons: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    notice: str = ""
    outage: Outage | None = None
    receivers: Receivers | None = None
    server: str = ""

    @property
    def lag(self) -> float:
        """Age of the oldest message that is in the spool and not in the table, in seconds."""
        return self.waiting.lag

    @property
    def duplicates(self) -> int:
        """Number of redelivered messages that were left out."""
        return self.source.get("leftOut", 0)

    @property
    def bad_reason(self) -> str | None:
        """The most frequent reason of bad rows; None without bad rows."""
        return max(self.reasons, key=lambda reason: self.reasons[reason], default=None)
