"""`pullstream ingest`: write a subscription's messages to a table, with Spark."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pullstream_protocol.clock import SYSTEM_CLOCK

from .context import CliContext, pass_session
from .groups import CommandGroup
from .ingest_metrics import metrics_of
from .ingest_status import status_text
from .ingest_view import IngestView, shown, summary
from .parameters import duration, key_value, with_option_names
from .progress_options import progress_options, serve_metrics_of
from .stop_request import StopRequest
from .waiting_messages import WaitingMessages, unacknowledged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pullstream.spark.errors import IngestError
    from pullstream.spark.ingest.report import IngestReport

_INTERRUPTED = 130

# The exit code of each cause of a failure; 1 for other causes, 2 for wrong arguments.
EXIT_CODES = {"subscription": 3, "table": 4, "state": 5, "Spark": 6}

# --batch-rows is the short form of this option of the source.
_BATCH_ROWS = "maxMessagesPerTrigger"


@click.group(
    "ingest",
    cls=CommandGroup,
    invoke_without_command=True,
    subcommand_metavar="[status DIR]",
)
@click.option("--subscription", help="The subscription to read; required.")
@click.option(
    "--to",
    metavar="PLACE",
    help="A folder, a URL (s3://, gs://, az://), or the URL of a database, jdbc:...; required. "
    "[env for databases: PULLSTREAM_JDBC_USER, PULLSTREAM_JDBC_PASSWORD]",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "json", "delta", "iceberg", "jdbc"]),
    help="Default: parquet, or jdbc for a database.",
)
@click.option("--table", help="The table in the database, or in the Iceberg catalog.")
@click.option(
    "--catalog",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the Iceberg catalog; may be repeated. Default: a file beside the folder.",
)
@click.option(
    "--storage",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the object stores; may be repeated. Default: each machine's environment.",
)
@click.option("--available-now", is_flag=True, help="Write the available messages, then end.")
@click.option("--every", type=duration, help="Interval of batch starts: 30s, 10m. Default: none.")
@click.option(
    "--partition-by",
    multiple=True,
    metavar="EXPRESSION",
    help="A column, day(COLUMN), hour(COLUMN), or for Iceberg bucket(N, COLUMN); may be repeated.",
)
@click.option("--evolve", type=click.Choice(["add"]), help="Add new columns to the table.")
@click.option(
    "--merge-on",
    multiple=True,
    metavar="COLUMN",
    help="Keep one row for each value, that of its newest message; may be repeated. For Delta, "
    "Iceberg and PostgreSQL.",
)
@click.option(
    "--latest-by",
    metavar="COLUMN",
    help="What tells which of two messages is newer. Default: publish_time.",
)
@click.option(
    "--delete-when",
    metavar="CONDITION",
    help="SQL on the columns: \"op = 'D'\". Such a message marks its row as _deleted.",
)
@click.option(
    "--decode",
    type=click.Choice(["json", "text"]),
    help="Make columns from message data: those of --schema, or one column `text`.",
)
@click.option("--schema", help="The columns of JSON data: 'id BIGINT NOT NULL, name STRING'.")
@click.option(
    "--time-zone",
    metavar="ZONE",
    help="Zone of times without one in JSON data: a name, or +02:00. Default: UTC.",
)
@click.option(
    "--event-range",
    type=duration,
    help="Messages whose times in --partition-by are farther from their publish time are bad: 30d.",
)
@click.option(
    "--no-metadata",
    "metadata",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave the columns pubsub_... out of a decoded table.",
)
@click.option(
    "--bad-to",
    metavar="PATH",
    help="Location of bad rows. Default: PATH-deadletter.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False),
    help="Folder on this machine for the state that the next run needs. Default: PATH/_state.",
)
@click.option(
    "--spool",
    metavar="PLACE",
    help="Folder or URL (s3://, gs://, az://) for messages of unfinished batches. "
    "Default: STATE/spool.",
)
@click.option(
    "--batch-rows", type=click.IntRange(min=1), help="Maximum messages per batch. Default: 10000."
)
@click.option(
    "--receivers",
    type=click.IntRange(min=1),
    help="Number of receivers, which run as tasks of Spark. Default: one in the source's process.",
)
@click.option(
    "--option",
    "options",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of the source; may be repeated. See docs/spark-pipelines.md.",
)
@click.option("--master", help="Spark master. Default: that of spark-submit, else this machine.")
@click.option(
    "--conf",
    "settings",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A Spark setting; may be repeated.",
)
@progress_options
@pass_session
@click.pass_context
def ingest(context: click.Context, session: CliContext, /, **options: Any) -> None:
    """Write a subscription's messages to a table, each once, until Ctrl-C.

    Messages are acknowledged after their batch is committed to the table. If the job is killed at
    any moment, the next run continues where it stopped. Ctrl-C ends the job after the current
    batch, a second Ctrl-C at once. Needs the extra pullstream[spark].

    With --json, each line has a `type`: "progress", then at the end "result" or "error".

    The exit code is 0 at the end of --available-now or after SIGTERM, 130 after Ctrl-C, 2 for wrong
    arguments. A failure has the code of its cause: 3 the subscription or its server, 4 the table,
    5 the state or the spool, 6 Spark or Java, 1 anything else. No message is acknowledged before
    it is in the table, so the command may always be started again.
    """
    if context.invoked_subcommand is not None:
        return
    for name in ("subscription", "to"):
        if options[name] is None:
            parameter = next(each for each in context.command.params if each.name == name)
            raise click.MissingParameter(ctx=context, param=parameter)
    _require_spark()
    context.exit(_run(session, **options))


@ingest.command("status")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--storage",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the object store of the spool; may be repeated. Default: the environment.",
)
@pass_session
def status(session: CliContext, folder: Path, storage: tuple[tuple[str, str], ...]) -> None:
    """Show the state of a job in DIR, the folder of --state or of the table, without Spark.

    The job may be running. The output has the job's identity, the id of its spool, its last planned
    and its last committed batch, and the segments of waiting messages with their number of messages
    and the age of the oldest one.
    """
    _require_spark()
    from pullstream.spark.errors import IngestError
    from pullstream.spark.ingest.status import IngestStatus

    try:
        found = IngestStatus.of(folder, dict(storage))
    except IngestError as error:
        raise IngestFailed.by(error) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(status_text(found, as_json=session.json, now=SYSTEM_CLOCK.now()))


class IngestFailed(click.ClickException):
    """A failed job, with the exit code of its cause."""

    def __init__(self, text: str, cause: str = "other") -> None:
        super().__init__(text)
        self.cause: str = cause
        self.exit_code: int = EXIT_CODES.get(self.cause, 1)  # type: ignore[misc]

    @classmethod
    def by(cls, error: IngestError) -> IngestFailed:
        """Return the failure of a command by an error of its job."""
        return cls(str(error), "other" if error.cause is None else error.cause.value)


def _require_spark() -> None:
    if sys.version_info < (3, 11):
        raise click.ClickException("ingest needs Python 3.11 or later, as PySpark does.")
    missing = [module for module in ("pyspark", "pyarrow") if find_spec(module) is None]
    if missing:
        raise click.ClickException(
            f"ingest needs {' and '.join(missing)}: pip install 'pullstream[cli,spark]'"
        )


def _run(
    session: CliContext,
    *,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    progress_every: float,
    metrics_port: tuple[str, int] | None,
    **options: Any,
) -> int:
    """Run the job and return the exit code."""
    from pullstream.spark.errors import IngestError
    from pullstream.spark.ingest.report import IngestReport

    name = session.full_name("subscriptions", options["subscription"])
    waiting = WaitingMessages(lambda: unacknowledged(session, name))
    first = IngestReport(since=SYSTEM_CLOCK.now())
    with shown(as_json=session.json, pace=progress_every) as form:
        view = IngestView(form, first, lambda: waiting.count)
        serve_metrics_of(name, metrics_port, lambda: metrics_of(view.moment))
        with waiting.asking(), view.running():
            try:
                report, signals = _run_in_spark(session, view, master, settings, options)
            except IngestError as error:
                raise IngestFailed.by(error) from error
    unit = "change" if options["merge_on"] else "row"
    click.echo(summary(report, as_json=session.json, now=SYSTEM_CLOCK.now(), unit=unit))
    return _INTERRUPTED if signals.interrupted else 0


def _run_in_spark(
    session: CliContext,
    view: IngestView,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    options: dict[str, Any],
) -> tuple[IngestReport, StopRequest]:
    # Imported while the view runs, because pyspark takes a second.
    from pullstream.spark.ingest.failures import errors_of_spark
    from pullstream.spark.ingest.runner import run_in
    from pullstream.spark.local.session_builder import remote_of, session_for
    from pullstream.spark.pyspark_version import LEAST, require_pyspark

    # Before Spark starts, which takes seconds.
    require_pyspark(LEAST, "an ingestion job")
    signals = StopRequest(session, "Stopping after the current batch")

    def started() -> AbstractContextManager[SparkSession]:
        return session_for(master, app_name="pullstream ingest", config=dict(settings))

    try:
        job = _job(session, **options)
        with errors_of_spark(), signals.awaited():
            over_connect = remote_of(master, dict(settings)) is not None
            report = run_in(started, job, signals.stop, view.update, over_connect=over_connect)
            return report, signals
    except ValueError as error:
        raise click.UsageError(with_option_names(str(error), ingest)) from error


def _job(
    session: CliContext,
    *,
    subscription: str,
    format_: str | None,
    every: timedelta | None,
    time_zone: str | None,
    event_range: timedelta | None,
    batch_rows: int | None,
    options: tuple[tuple[str, str], ...],
    catalog: tuple[tuple[str, str], ...],
    storage: tuple[tuple[str, str], ...],
    **others: Any,
) -> Any:
    from pullstream.spark.ingest.config import IngestJob

    source = dict(options)
    if batch_rows is not None:
        if any(name.lower() == _BATCH_ROWS.lower() for name in source):
            raise ValueError(f"--batch-rows and --option {_BATCH_ROWS} are the same; give only one")
        source[_BATCH_ROWS] = str(batch_rows)
    connection: dict[str, str | None] = {
        "endpoint": session.endpoint,
        "token": session.token,
        # The file and not the token: Spark displays options, although it redacts such names.
        "tokenFile": session.token_file and os.path.abspath(session.token_file),
        "ca": session.ca and os.path.abspath(session.ca),
        "cert": session.cert and os.path.abspath(session.cert),
        "key": session.key and os.path.abspath(session.key),
    }
    source.update({name: text for name, text in connection.items() if text is not None})
    return IngestJob(
        subscription=session.full_name("subscriptions", subscription),
        format=format_ or "",
        every=None if every is None else every.total_seconds(),
        time_zone="UTC" if time_zone is None else time_zone,
        event_range=None if event_range is None else event_range.total_seconds(),
        options=source,
        catalog=dict(catalog) or None,
        storage=dict(storage),
        **others,
    )
