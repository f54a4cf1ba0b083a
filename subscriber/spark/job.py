"""The driver ingestion job: from a subscription into a table, until it is stopped or all is in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from protocol.clock import SYSTEM_CLOCK

from .batch_handler import BatchHandler, Totals
from .decoding import JsonDecoding, Undecoded
from .errors import IngestError
from .ingest_columns import kinds, table_schema
from .ingest_job import IngestJob
from .ingest_state import IngestState
from .java_error import reason_of
from .registration import register
from .session_builder import local_session
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# How often the job looks at its query, in seconds: usually, and when it is to end.
_LOOK = 0.5
_LAST_LOOK = 0.05

# How long Spark may take to note a batch down that has been written, in seconds.
_COMMIT_WAIT = 10.0


@dataclass(frozen=True)
class IngestReport:
    """What a job has done since it was started.

    source: what the source tells of itself (`reportLatestOffset`): buffered, leased,
        suppressedDuplicates, unackedCommitted and so on; empty until it has told.
    stopped: whether it was told to stop.
    """

    totals: Totals = field(default_factory=Totals)
    seconds: float = 0.0
    source: Mapping[str, int] = field(default_factory=dict)
    to: str = ""
    bad_to: str | None = None
    stopped: bool = False

    @property
    def duplicates(self) -> int:
        """Messages that came again and were left out."""
        return self.source.get("suppressedDuplicates", 0)

    @property
    def backlog(self) -> int:
        """Messages that are here and not in the table yet."""
        return self.source.get("leased", 0)


def run_ingest(
    job: IngestJob,
    *,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    watch: Callable[[IngestReport], None] = lambda report: None,
) -> IngestReport:
    """Run the job to its end and tell what it did.

    Every message is in the table once, or in the table of bad ones: a batch that was not seen
    through, whatever killed it, is written again by the next run with the same state, over what
    there may be of it. Messages are acknowledged when their batch is in for good.

    Args:
        spark: where it runs. Default: the session that is there, else one on this machine.
        stop: when set, the batch under way is finished and the job ends.
        watch: told every half second how far it is.

    Raises:
        IngestError: it cannot begin, or has failed; what was written stays, and the next run goes
            on from there.
        ValueError: an option, a column or the schema is not one.
    """
    session = spark or local_session()
    register(session)
    decoding = JsonDecoding.of(job.schema) if job.schema is not None else Undecoded()
    target, bad = job.target(), job.bad_target()
    columns = kinds(table_schema(session, job, decoding, target))
    for one in (target, bad):
        if one is not None:
            one.check(session)
    with IngestState.open(
        job.state_folder,
        job.identity,
        columns,
        job.reading,
        lambda batch: target.may_have(session, batch),
    ) as state:
        handler = BatchHandler(decoding, target, bad, derived=job.partition_by, name=state.batch)
        run = _Run(handler, _start(session, job, state, handler), target, bad)
        run.wait(stop or threading.Event(), watch)
    return run.report()


class _Run:
    """One query, from its start to its end; used by one thread."""

    def __init__(
        self, handler: BatchHandler, query: StreamingQuery, target: Target, bad: Target | None
    ) -> None:
        self._handler = handler
        self._query = query
        self._to = target.place
        self._bad_to = None if bad is None else bad.place
        self._began = SYSTEM_CLOCK.monotonic()
        self._source: dict[str, int] = {}
        self._stopped = False

    def wait(self, stop: threading.Event, watch: Callable[[IngestReport], None]) -> None:
        """Return when the query has ended; raise IngestError if it failed."""
        try:
            while not (stop.is_set() or self._ended_within(_LOOK)):
                watch(self.report())
            if self._query.isActive:
                self._stop_between_batches()
        finally:
            # Whatever happens here, Ctrl-C included, no query goes on that nobody waits for.
            self._query.stop()
        watch(self.report())

    def report(self) -> IngestReport:
        """How far it is."""
        self._source = _source_report(self._query) or self._source
        return IngestReport(
            self._handler.totals,
            SYSTEM_CLOCK.monotonic() - self._began,
            self._source,
            self._to,
            self._bad_to,
            self._stopped,
        )

    def _stop_between_batches(self) -> None:
        """See the batch under way through: written, and noted down by Spark.

        A batch that Spark begins meanwhile is refused, and its query fails by that. It has noted
        that batch as planned, so the next run begins with it.
        """
        self._stopped = True
        while not self._handler.close():
            if self._ended_within(_LAST_LOOK):
                return
        deadline = SYSTEM_CLOCK.monotonic() + _COMMIT_WAIT
        while not self._is_committed() and SYSTEM_CLOCK.monotonic() < deadline:
            if self._ended_within(_LAST_LOOK):
                return

    def _is_committed(self) -> bool:
        progress = self._query.lastProgress
        written = self._handler.written
        return written is None or (progress is not None and progress["batchId"] >= written)

    def _ended_within(self, seconds: float) -> bool:
        """Whether the query has ended by then; raise IngestError if it failed."""
        try:
            return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            if self._handler.refused and self._handler.failure is None:
                return True
            cause = self._handler.failure or error
            raise IngestError(f"the job failed: {reason_of(cause)}") from cause


def _start(
    session: SparkSession, job: IngestJob, state: IngestState, handler: BatchHandler
) -> StreamingQuery:
    source = session.readStream.format("pubsub").options(**job.options)
    source = source.option("subscription", job.subscription).option("spoolDir", str(state.spool))
    try:
        messages = source.load()
    except PySparkException as error:
        raise IngestError(f"the job cannot begin: {reason_of(error)}") from error
    writer = messages.writeStream.foreachBatch(handler)
    writer = writer.option("checkpointLocation", state.checkpoint).queryName(f"ingest-{state.run}")
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    elif job.every is not None:
        writer = writer.trigger(processingTime=f"{round(job.every * 1000)} milliseconds")
    return writer.start()


def _source_report(query: StreamingQuery) -> dict[str, int] | None:
    """What the source told last, with the progress of a batch."""
    progress = query.lastProgress
    told = progress.sources[0].latestOffset if progress is not None else None
    found: dict[str, int] | None = json.loads(told) if told else None
    return found
