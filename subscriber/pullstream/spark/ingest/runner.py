"""Runs an ingestion job: from a subscription to a table, until it is stopped or has caught up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from pullstream.runtime.stop_signals import StopFlag
from pullstream.spark.datasource.registration import register
from pullstream.spark.errors import FailureCause, caused_by
from pullstream.spark.local.session_builder import (
    connect_session,
    local_session,
    remote_of,
    running_session,
)
from pullstream.spark.pyspark_version import LEAST, require_pyspark
from pullstream.spark.receiver_processes.cores import is_connect
from pullstream_protocol.clock import SYSTEM_CLOCK

from .batch_handler import BatchHandler
from .config import IngestJob
from .connect import check_for_server, run_over_connect
from .executors import check_executors
from .preparation import Prepared, mark_last, prepared
from .query_run import FilesHere, QueryRun, receivers_of, start_query
from .report import IngestReport, Phase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_ingest(
    job: IngestJob,
    *,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    watch: Callable[[IngestReport], None] = lambda report: None,
) -> IngestReport:
    """Run a job to its end and return its results.

    Every message is in the table once, or in the table of bad rows. If a run is killed, the next
    run with the same state writes the unfinished batch again and replaces any part of it. Messages
    are acknowledged after their batch is committed.

    The subscription, the state and the tables are checked before Spark is started. While the
    server cannot be reached, the job waits; with `available_now` it fails after a minute.

    In a session of Spark Connect, the folders of the job belong to Spark's server, which has
    pullstream, too. If this process is killed, the query runs on until the next run replaces it.

    Args:
        job: The configuration.
        spark: The session to use. Default: the running session, otherwise a new one, of Spark
            Connect if SPARK_REMOTE is set, or on this machine.
        stop: When set, the job finishes the current batch and ends.
        watch: Called with the current results every half second, and at the end.

    Raises:
        IngestError: The job cannot start, or has failed; see its attribute `cause`. Written rows
            stay, and the next run continues from there.
        ValueError: An option, a column or the schema is invalid.
    """
    given = spark or running_session()
    remote = remote_of() if given is None else None

    def session() -> SparkSession:
        return given or (local_session() if remote is None else connect_session(remote))

    over_connect = remote is not None if given is None else is_connect(given)
    return run_in(lambda: nullcontext(session()), job, stop, watch, over_connect=over_connect)


def run_in(
    sessions: Callable[[], AbstractContextManager[SparkSession]],
    job: IngestJob,
    stop: StopFlag | None,
    watch: Callable[[IngestReport], None],
    *,
    over_connect: bool = False,
) -> IngestReport:
    """Like `run_ingest`, in a session that is started when everything else is ready.

    Args:
        sessions: Starts the session, and stops it at the end of the block.
        job: The configuration.
        stop: See `run_ingest`.
        watch: See `run_ingest`.
        over_connect: Whether the session is one of Spark Connect, which then checks the job.
    """
    require_pyspark(LEAST, "an ingestion job")
    stop = stop or threading.Event()
    if over_connect:
        check_for_server(job)
        watch(IngestReport(phase=Phase.STARTING, since=SYSTEM_CLOCK.now()))
        with sessions() as session:
            return run_over_connect(session, job, stop, watch)
    with prepared(job, stop, watch) as ready:
        if ready is None or stop.wait(0):
            return IngestReport(to=job.place, stopped=True, phase=Phase.ENDING)
        watch(IngestReport(phase=Phase.STARTING, since=SYSTEM_CLOCK.now()))
        with sessions() as session:
            _check_executors(session, job, stop, watch)
            # After the start of the executors, because it counts their cores.
            register(session)
            return _run(session, ready, stop, watch)


def _run(
    session: SparkSession,
    ready: Prepared,
    stop: StopFlag,
    watch: Callable[[IngestReport], None],
) -> IngestReport:
    job, state = ready.job, ready.state
    decoding = job.decoding()
    target, bad = ready.tables(session, decoding)
    with caused_by(FailureCause.STATE):
        handler = BatchHandler(decoding, target, bad, name=state.batch)
        handler.offset = ready.begin(session)
        with receivers_of(session, job) as tasks:
            run = QueryRun(
                handler,
                lambda: start_query(session, job, state, handler),
                target.place,
                None if bad is None else bad.place,
                FilesHere(state),
                ready.server,
                tasks,
            )
            run.wait(stop, watch)
            if tasks is not None:
                mark_last(state.folder, ready.settings)
    return run.report()


def _check_executors(
    session: SparkSession,
    job: IngestJob,
    stop: StopFlag,
    watch: Callable[[IngestReport], None],
) -> None:
    """Check the executors of a cluster. On this machine, they are the driver."""
    context, since = session.sparkContext, SYSTEM_CLOCK.now()
    if (context.master or "").startswith("local"):
        return

    def tell(text: str) -> None:
        watch(IngestReport(phase=Phase.STARTING, since=since, notice=text))

    check_executors(context, job.modules_of_tasks, stop, tell)
