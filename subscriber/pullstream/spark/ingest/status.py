"""The state folder of an ingestion job, read without Spark and without its lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pullstream.spark.errors import FailureCause, ingest_error
from pullstream.spark.spool.waiting_segments import WaitingSegment, WaitingSegments

from .state import (
    JOB_FILE,
    SPOOL,
    committed_offset,
    noted_job,
    planned_and_committed,
    source_id,
)

_DEFAULT = "_state"


@dataclass(frozen=True)
class IngestStatus:
    """State of a job at one moment. The job may be running.

    Attributes:
        folder: The state folder.
        job: The values that describe the job: subscription, to, format and others.
        spool: Id of the spool, which is a part of each batch's name; None before the first run.
        planned: Number of Spark's last planned batch; None: there is none.
        committed: Number of Spark's last committed batch; None: there is none.
        segments: The segments that are not committed: batches that are planned, or that the source
            has written in advance.
    """

    folder: Path
    job: Mapping[str, str]
    spool: str | None
    planned: int | None
    committed: int | None
    segments: Sequence[WaitingSegment]

    @property
    def rows(self) -> int:
        """Number of messages in the segments."""
        return sum(segment.rows for segment in self.segments)

    @property
    def oldest(self) -> float | None:
        """The earliest publish time in the segments, in seconds since the epoch."""
        times = (segment.oldest for segment in self.segments)
        return min((time for time in times if time is not None), default=None)

    @classmethod
    def of(cls, folder: Path) -> IngestStatus:
        """Read the state of a job.

        Args:
            folder: The state folder, or the table's folder if the state is in its default place.

        Raises:
            IngestError: There is no state, or it cannot be read.
        """
        places = (folder, folder / _DEFAULT)
        state = next((place for place in places if (place / JOB_FILE).is_file()), None)
        if state is None:
            raise ingest_error(
                f"there is no state of a job in {folder}: neither {JOB_FILE} nor "
                f"{_DEFAULT}/{JOB_FILE}. Give the folder of --state, or the table's folder",
                FailureCause.STATE,
            )
        planned, committed = planned_and_committed(state)
        return cls(
            state,
            noted_job(state),
            source_id(state),
            None if planned < 0 else planned,
            None if committed < 0 else committed,
            WaitingSegments(state / SPOOL).after(committed_offset(state)),
        )
