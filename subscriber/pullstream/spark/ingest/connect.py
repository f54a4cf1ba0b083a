"""An ingestion job in a session of Spark Connect: this process watches the query of a server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pullstream
from pullstream.runtime.stop_signals import StopFlag
from pullstream.spark.datasource.registration import register
from pullstream.spark.errors import FailureCause, IngestError, ingest_error
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.protocol.waiting_segments import WaitingSegment
from pullstream.spark.receiving.outage_note import Outage
from pullstream.spark.stores import scheme_of
from pullstream_protocol.clock import SYSTEM_CLOCK

from .config import IngestJob
from .failures import errors_of_spark
from .preparation import Rows, source_settings
from .query_run import QueryRun, receivers_of, start_query
from .report import IngestReport, Phase, Totals
from .server_job import ServerBatches, ServerJob
from .server_object import ServerGone, ServerObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds between two looks at the server, normally and when the job is ending, and between two
# attempts to reach the server of the subscription.
_LOOK, _LAST_LOOK = 5.0, 0.3
_PAUSE = 1.0


def run_over_connect(
    session: SparkSession,
    job: IngestJob,
    stop: StopFlag,
    watch: Callable[[IngestReport], None],
) -> IngestReport:
    """Run a job in a session of Spark Connect; see `run_ingest`.

    Args:
        session: The session.
        job: The configuration.
        stop: See `run_ingest`.
        watch: See `run_ingest`.
    """
    check_for_server(job)
    source_settings(job)
    with errors_of_spark():
        register(session)
        watch(IngestReport(since=SYSTEM_CLOCK.now()))
        rows = Rows.by_spark(session, job, job.decoding())
        server_job = ServerJob(job, rows, uuid.uuid4().hex[:16])
        state = server_job.state
        server = ServerObject(session, f"pullstream-{state.run}", server_job)
        ready = _prepared(server, job, stop, watch)
        if ready is None or stop.wait(0):
            return IngestReport(to=job.place, stopped=True, phase=Phase.ENDING)
        batches = ServerBatches(server_job, job.decoding(), ready["offset"])
        side = ServerSide(server, ready["offset"])
        with receivers_of(session, job) as tasks:
            run = QueryRun(
                side,
                lambda: start_query(session, job, state, batches),
                ready["to"],
                ready["badTo"],
                side,
                ready["server"],
                tasks,
            )
            run.wait(stop, watch)
            if tasks is not None:
                server.call("mark_last")
        return run.report()


def check_for_server(job: IngestJob) -> None:
    """Check that a job can run over Spark Connect.

    Raises:
        IngestError: Its table needs Java in the process of the job.
        ValueError: A folder has no meaning on another machine.
    """
    if job.format == "jdbc":
        raise ingest_error(
            f"to is {job.place!r}, but over Spark Connect a job reaches no database: Python has no "
            "way to Java there, which commits the rows and the batch's name in one transaction; "
            "run the job on the driver's machine, in a classic session",
            FailureCause.TABLE,
        )
    places = {"to": job.to, "bad_to": job.bad_to, "state": job.state, "spool": job.spool}
    for name, place in places.items():
        text = str(place or "/")
        if scheme_of(text) is None and not PurePath(text).is_absolute():
            raise ValueError(
                f"{name} is {text!r}; over Spark Connect it is a folder of the server, and must be "
                "an absolute path"
            )


def _prepared(
    server: ServerObject,
    job: IngestJob,
    stop: StopFlag,
    watch: Callable[[IngestReport], None],
) -> dict[str, Any] | None:
    """Prepare the job on the server; return None if it is stopped while it waits."""
    began = SYSTEM_CLOCK.monotonic()
    first: Outage | None = None
    while True:
        waited = SYSTEM_CLOCK.monotonic() - began
        version = pullstream.__version__
        found: dict[str, Any] = server.call("prepare", waited=waited, version=version)
        if "outage" not in found:
            return found
        first = first or Outage(*found["outage"])
        address = found["server"]
        watch(
            IngestReport(phase=Phase.UNREACHABLE, since=first.since, outage=first, server=address)
        )
        if stop.wait(_PAUSE):
            return None


class ServerSide:
    """The handler of a query and its files, by the server's last answer.

    Args:
        server: The job on the server.
        offset: The source's offset that is committed at the start.
    """

    def __init__(self, server: ServerObject, offset: int) -> None:
        self._server = server
        self._start = offset
        self._answer: dict[str, Any] = {
            "note": {},
            "segments": [],
            "outage": None,
            "committed": -1,
            "isReplaced": False,
        }
        self._looked = -inf
        self._is_closed = False
        self.is_lost: bool = False
        # This class limits the looks itself.
        self.look_every: float = 0.0

    def close(self) -> bool:
        """Let the handler start no more batches; return True if none is running."""
        self._is_closed = True
        self._look()
        return self.phase is Phase.WAITING

    def refresh(self) -> None:
        """Look now; if that fails, with the next question. A server may be away."""
        self._looked = -inf
        with suppress(IngestError):
            self._look()

    def _look(self) -> None:
        try:
            answer = self._server.call("look", stop=self._is_closed, offset=self._start)
        except ServerGone:
            self.is_lost = True
            raise
        # A later run deletes the note.
        self._answer = {**answer, "note": answer["note"] or self._answer["note"]}
        self._looked = SYSTEM_CLOCK.monotonic()

    @property
    def _now(self) -> Mapping[str, Any]:
        age = SYSTEM_CLOCK.monotonic() - self._looked
        if not self.is_lost and age >= (_LAST_LOOK if self._is_closed else _LOOK):
            self._look()
        return self._answer

    @property
    def totals(self) -> Totals:
        """Sums over the complete batches of this run."""
        return Totals(**self._answer["note"].get("totals", {}))

    @property
    def reasons(self) -> Mapping[str, int]:
        """Number of bad rows by reason."""
        reasons: Mapping[str, int] = self._answer["note"].get("reasons", {})
        return reasons

    @property
    def unknown(self) -> Mapping[str, int]:
        """Number of good rows by a field outside the schema."""
        unknown: Mapping[str, int] = self._answer["note"].get("unknown", {})
        return unknown

    @property
    def phase(self) -> Phase:
        """The activity that the handler has noted."""
        return Phase[self._answer["note"].get("phase", Phase.WAITING.name)]

    @property
    def offset(self) -> int:
        """The source's offset at the end of the last written batch."""
        return int(self._answer["note"].get("offset", self._start))

    @property
    def written(self) -> int | None:
        """Spark's number of the last written batch."""
        number: int | None = self._answer["note"].get("written")
        return number

    @property
    def failure(self) -> BaseException | None:
        """The error of the last batch that failed."""
        text = self._answer["note"].get("failure")
        return None if text is None else IngestError(text)

    @property
    def refused(self) -> bool:
        """Whether a batch was refused."""
        return bool(self._answer["note"].get("refused"))

    @property
    def is_replaced(self) -> bool:
        """Whether a later run has taken over the state."""
        return bool(self._answer["isReplaced"])

    def segments(self, offset: int) -> Sequence[WaitingSegment]:
        """Return the segments that are not in batches up to the present offset."""
        return [
            WaitingSegment(plan, Segment(*segment), *others)
            for plan, segment, *others in self._now["segments"]
        ]

    def outage(self) -> Outage | None:
        """Return the outage of the source; None: there is none."""
        found = self._now["outage"]
        return None if found is None else Outage(*found)

    def committed(self) -> int:
        """Return Spark's number of the newest committed batch; -1: none."""
        return int(self._now["committed"])
