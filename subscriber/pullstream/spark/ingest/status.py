"""The state folder of an ingestion job, read without Spark and without its lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pullstream.spark.errors import FailureCause, ingest_error
from pullstream.spark.protocol.waiting_segments import WaitingSegment, WaitingSegments
from pullstream.spark.spool_store import spool_store

from .state import (
    JOB_FILE,
    SPOOL_PLACE,
    noted_job,
    planned_and_committed,
    source_id,
    source_number,
    spool_in,
)

_DEFAULT = "_state"


@dataclass(frozen=True)
class IngestStatus:
    """State of a job at one moment. The job may be running.

    Attributes:
        folder: The state folder.
        job: The values that describe the job: subscription, to, format and others.
        spool: Id of the spool, which is a part of each batch's name; None before the first run.
        planned: Number of the last planned batch, as in the column `pubsub_batch` and in the
            table; None: there is none.
        committed: Number of the last committed batch.
        spark_planned: Spark's own number of the last planned batch, which names files in the
            checkpoint. It differs, because Spark counts from 0 in each checkpoint.
        spark_committed: Spark's own number of the last committed batch.
        segments: The segments that are not committed. Segments of planned batches come first.
    """

    folder: Path
    job: Mapping[str, str]
    spool: str | None
    planned: int | None
    committed: int | None
    spark_planned: int | None
    spark_committed: int | None
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
    def of(cls, folder: Path, storage: Mapping[str, str] | None = None) -> IngestStatus:
        """Read the state of a job.

        Args:
            folder: The state folder, or the table's folder if the state is in its default place.
            storage: Settings of the object store, if the spool is in one.

        Raises:
            IngestError: There is no state, or it cannot be read.
            ValueError: A setting of the store cannot be used.
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
        job = noted_job(state)
        place = job.get(SPOOL_PLACE)
        spool = spool_store(place, storage or {}) if place else spool_in(state)
        number = source_number(state, committed, spool)
        return cls(
            state,
            job,
            source_id(state, spool),
            source_number(state, planned, spool),
            number,
            None if planned < 0 else planned,
            None if committed < 0 else committed,
            WaitingSegments(spool).after(number or 0),
        )
