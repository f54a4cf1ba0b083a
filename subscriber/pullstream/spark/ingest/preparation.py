"""Checks of the subscription, the state and the tables before Spark starts.

The start of Spark takes ten seconds or more, so checks without Spark come before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict

from pullstream.rpc.endpoint import locate
from pullstream.runtime.stop_signals import StopFlag
from pullstream.spark.datasource.options import StreamOptions
from pullstream.spark.errors import FailureCause, caused_by, ingest_error
from pullstream.spark.receiver_processes.options import settings_of
from pullstream.spark.receiving.outage_note import Outage, delete_note
from pullstream.spark.session.committed_batches import mark_committed
from pullstream.spark.settings import IngestSettings
from pullstream.spark.tables.folder_formats import check_format
from pullstream_protocol.clock import SYSTEM_CLOCK

from .columns import arrow_schema, check_names, decoded_schemas, kinds, message_schema
from .config import IngestJob
from .decoding import Decoding
from .report import IngestReport, Phase
from .state import (
    IngestState,
    committed_offset,
    committed_position,
    planned_and_committed,
    source_id,
)
from .subscription_check import check_subscription
from .targets import LAKE_FORMATS, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger("pullstream.spark")


class Tables(NamedTuple):
    """The tables of a job.

    Attributes:
        target: The table.
        bad: The table of bad rows; None without decoding.
    """

    target: Target
    bad: Target | None

    @property
    def all(self) -> list[Target]:
        """The tables that there are."""
        return [self.target] if self.bad is None else [self.target, self.bad]

    def open(self, spark: SparkSession | None, rows: Rows) -> None:
        """Open the tables, and create missing ones.

        Raises:
            IngestError: A table cannot take the rows.
        """
        with caused_by(FailureCause.TABLE):
            for table, schema in zip(self, rows[1:], strict=True):
                if table is not None:
                    table.open(spark, schema)


class Rows(NamedTuple):
    """The columns of a job's rows, good and bad.

    Attributes:
        schema: The columns of the good rows.
        good: The same as an Arrow schema.
        bad: The columns of the bad rows.
    """

    schema: StructType
    good: pa.Schema
    bad: pa.Schema

    @classmethod
    def of(cls, decoding: Decoding, schema: StructType, bad: StructType) -> Rows:
        """Return the columns of a decoding."""
        columns = (arrow_schema(one, decoding.required) for one in (schema, bad))
        return cls(schema, *columns)

    @classmethod
    def by_spark(cls, spark: SparkSession, job: IngestJob, decoding: Decoding) -> Rows:
        """Return the columns that Spark finds, which checks the options that only Spark knows.

        Raises:
            ValueError: An option does not fit the columns.
        """
        return cls.of(decoding, *decoded_schemas(spark, job, decoding))


@dataclass
class Prepared:
    """A job that needs only Spark.

    Attributes:
        job: The configuration.
        state: The state, whose lock is held.
        settings: The settings of the source.
    """

    job: IngestJob
    state: IngestState
    settings: IngestSettings
    _open: tuple[Rows, Tables] | None = None

    @property
    def server(self) -> str:
        """Address of the server."""
        return _server(self.settings)

    @property
    def opened(self) -> Tables:
        """The open tables, when there are any."""
        assert self._open is not None, "the tables are open"
        return self._open[1]

    def tables(self, spark: SparkSession, decoding: Decoding) -> Tables:
        """Return the open tables.

        Raises:
            IngestError: A table cannot take the rows, or the state does not fit the job.
            ValueError: An option does not fit the columns.
        """
        rows = Rows.by_spark(spark, self.job, decoding)
        # Spark has the last word: it may know more than was read without it.
        if self._open is not None and self._open[0][1:] == rows[1:]:
            return self._open[1]
        tables = tables_for(self.job, rows)
        self.open(spark, rows, tables)
        return tables

    def open(self, spark: SparkSession | None, rows: Rows, tables: Tables) -> None:
        """Open the tables, and note their columns in the state."""
        tables.open(spark, rows)

        def newest(source: str) -> int:
            with caused_by(FailureCause.TABLE):
                return max(one.newest(spark, source) for one in tables.all)

        # A lake's table knows its columns, and has compared them.
        known = {} if self.job.format in LAKE_FORMATS else kinds(rows.schema)
        with caused_by(FailureCause.STATE):
            self.state.begin(known, self.job.reading, newest)
        self._open = rows, tables

    def begin(self, spark: SparkSession | None) -> int:
        """Mark the batches that the table proves, and return the source's committed offset.

        The tables must be open.

        Raises:
            IngestError: The state or the table cannot be read.
        """
        state = self.state
        target = self.opened.target
        # A killed run may have left one.
        delete_note(state.notes)
        source = source_id(state.folder, state.spool)
        if source is not None and planned_and_committed(state.folder)[0] < 0:
            # The checkpoint is lost. The table proves which batches it has.
            mark_committed(self.settings, target.newest(spark, source))
        return committed_offset(state.folder, state.spool)


def mark_last(folder: Path, settings: IngestSettings) -> None:
    """Mark the last batches as committed, so that ending receivers acknowledge their messages.

    A query marks a batch when it plans the next one. The embedded receiver needs no mark.

    Args:
        folder: The state folder.
        settings: The settings of the source.
    """
    try:
        offset = committed_position(folder)
        if offset is not None and offset.plan:
            mark_committed(settings, offset.plan, offset)
    except Exception as error:
        # The next run marks them, and leaves out the messages that come again.
        _log.warning("the last batches are not marked as committed: %s", error)


def source_settings(job: IngestJob) -> IngestSettings:
    """Return the settings of the source.

    Raises:
        ValueError: An option is invalid.
    """
    given = CaseInsensitiveDict(job.source_options())
    settings = StreamOptions.parse(given, files_are_shared=True).settings
    if job.receivers is not None:
        # The receivers of a job have more conditions.
        settings_of(given, count=job.receivers)
    return settings


def tables_for(job: IngestJob, rows: Rows) -> Tables:
    """Return the tables for these rows, which are not open.

    Raises:
        ValueError: An option does not fit the columns.
    """
    target = job.target(rows.good)
    check_names(rows.schema, target, job.format)
    return Tables(target, job.bad_target(rows.bad))


@contextmanager
def prepared(
    job: IngestJob,
    stop: StopFlag,
    watch: Callable[[IngestReport], None],
    *,
    rows: Rows | None = None,
    waited: float = 0.0,
    run: str | None = None,
) -> Iterator[Prepared | None]:
    """Provide a checked job, with its state and its tables open, during the block.

    The order keeps a failed job from leaving traces: first the options, then the subscription, then
    the formats of the folders, then the state, then the tables, of which the table of the rows is
    the first to be created. With `delete_when`, the tables are opened after the start of Spark,
    which alone can check the condition. A refused run removes the state that it has created.

    Args:
        job: The configuration.
        stop: Ends the wait for the server. The block then gets None.
        watch: Takes the reports.
        rows: The columns that Spark has found. None: Spark is not started.
        waited: Number of seconds for which the server was waited for before.
        run: Id of the run. Default: a new one.

    Raises:
        IngestError: The job cannot start.
        ValueError: An option, a column or the schema is invalid.
    """
    is_spark_asked = rows is not None
    rows = rows or _early_rows(job)
    tables = None if rows is None else tables_for(job, rows)
    is_early = is_spark_asked or not (tables and _needs_spark(job, tables.target))
    settings = source_settings(job)
    _check(settings, job, stop, watch, waited)
    if stop.wait(0):
        yield None
        return
    watch(IngestReport(phase=Phase.OPENING, since=SYSTEM_CLOCK.now()))
    with caused_by(FailureCause.TABLE):
        for folder in job.folders:
            check_format(folder, job.storage_of(folder), job.format)
    with _removed_if_empty(job.state_folder), caused_by(FailureCause.STATE):
        _make_folder(job)
        with IngestState.open(job.state_folder, job.identity, job.spool_store(), run) as state:
            ready = Prepared(job, state, settings)
            if is_early and rows is not None and tables is not None:
                ready.open(None, rows, tables)
            yield ready


def _needs_spark(job: IngestJob, target: Target) -> bool:
    """Return whether the table must be opened after the start of Spark.

    A database is reached by Java, and only Spark can tell whether a condition is right.
    """
    return target.needs_spark or job.delete_when is not None


def _early_rows(job: IngestJob) -> Rows | None:
    messages = message_schema(job)
    decoding = job.early_decoding()
    if decoding is None:
        return None
    return Rows.of(decoding, decoding.columns(messages), decoding.bad_columns(messages))


def _check(
    settings: IngestSettings,
    job: IngestJob,
    stop: StopFlag,
    watch: Callable[[IngestReport], None],
    waited: float,
) -> None:
    def tell(outage: Outage | None) -> None:
        phase, since = Phase.CHECKING, SYSTEM_CLOCK.now()
        if outage is not None:
            phase, since = Phase.UNREACHABLE, outage.since
        watch(IngestReport(phase=phase, since=since, outage=outage, server=_server(settings)))

    tell(None)
    check_subscription(
        settings, must_end=job.available_now, pause=stop.wait, tell=tell, waited=waited
    )


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    """Remove the folder and its parents after the block, if they did not exist and are empty."""
    folder = folder.absolute()
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        yield
    finally:
        # A folder with entries stays.
        with suppress(OSError):
            for one in missing:
                one.rmdir()


def _make_folder(job: IngestJob) -> None:
    """Make the folder of the table, if the state is in it: the table is to blame for an error."""
    if job.state is None:
        folder = job.state_folder.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ingest_error(
                f"cannot write to {folder}: {error}; the job needs the rights to list, create and "
                "delete files there",
                FailureCause.TABLE,
            ) from error


def _server(settings: IngestSettings) -> str:
    return locate(endpoint=settings.endpoint).address
