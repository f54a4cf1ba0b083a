"""`pullstream ingest`: write a subscription's messages to a table, with Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from pullstream.runtime.stop_signals import handled_by

from .context import CliContext, pass_session
from .groups import command
from .ingest_view import ingest_view, summary
from .parameters import duration, key_value

if TYPE_CHECKING:
    from types import FrameType

_INTERRUPTED = 130

# --batch-rows is the short form of this option of the source.
_BATCH_ROWS = "maxMessagesPerTrigger"


@command("ingest")
@click.option("--subscription", required=True, help="The subscription to read.")
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="A folder, a URL (s3://, gs://, az://), or the URL of a database, jdbc:... "
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
    help="A setting of the object store; may be repeated. Default: each machine's environment.",
)
@click.option("--available-now", is_flag=True, help="Write the available messages, then end.")
@click.option("--every", type=duration, help="Interval of batch starts: 30s, 10m. Default: none.")
@click.option(
    "--partition-by",
    multiple=True,
    metavar="EXPRESSION",
    help="A column, day(COLUMN), hour(COLUMN), or for Iceberg bucket(N, COLUMN); may be repeated.",
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
    help="Location of messages that cannot be decoded. Default: PATH-deadletter.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False),
    help="Folder on this machine for the state that the next run needs. Default: PATH/_state.",
)
@click.option(
    "--batch-rows", type=click.IntRange(min=1), help="Maximum messages per batch. Default: 10000."
)
@click.option(
    "--option",
    "options",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of the source; may be repeated. See docs/spark.md.",
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
@pass_session
@click.pass_context
def ingest(context: click.Context, session: CliContext, /, **options: Any) -> None:
    """Write a subscription's messages to a table, each once, until Ctrl-C.

    Messages are acknowledged after their batch is committed to the table. If the job is killed at
    any moment, the next run continues where it stopped. Ctrl-C ends the job after the current
    batch, a second Ctrl-C at once. Needs the extra pullstream[spark].
    """
    _require_spark()
    context.exit(_run(session, **options))


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
    **options: Any,
) -> int:
    """Run the job and return the exit code."""
    from pullstream.spark.ingest.runner import run_ingest
    from pullstream.spark.local.java import JavaNotFound
    from pullstream.spark.local.session_builder import session_for

    try:
        job = _job(session, **options)
        # Spark's log is off, because errors are reported by this command, in one line.
        config = {"spark.log.level": "FATAL", **dict(settings)}
        signals = _Signals(session)
        with (
            session_for(master, app_name="pullstream ingest", config=config) as spark,
            # After Spark has set its handlers, which would cancel the current batch.
            handled_by(signals.handle),
            ingest_view(as_json=session.json) as view,
        ):
            report = run_ingest(job, spark=spark, stop=signals.stop, watch=view.show)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except JavaNotFound as error:
        raise click.ClickException(str(error)) from error
    click.echo(summary(report, as_json=session.json))
    return _INTERRUPTED if signals.interrupted else 0


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


class _Signals:
    """Handlers of Ctrl-C and SIGTERM.

    The first signal stops the job between two batches, the second one at once.
    """

    def __init__(self, session: CliContext) -> None:
        self.stop = threading.Event()
        self.interrupted = False
        self._session = session

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.interrupted = number == signal.SIGINT
        self.stop.set()
        self._session.output.remark("Stopping after the current batch; Ctrl-C again stops at once.")
