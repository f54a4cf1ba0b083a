"""`pullstream ingest`: a subscription into a table, by Spark."""

from __future__ import annotations

import signal
import sys
import threading
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from subscriber.stop_signals import handled_by

from .ingest_view import ingest_view, summary
from .parameters import duration, key_value
from .session import Session, pass_session, session_options

if TYPE_CHECKING:
    from types import FrameType

_INTERRUPTED = 130

# The option of the source that --batch-rows is short for.
_BATCH_ROWS = "maxMessagesPerTrigger"


@click.command("ingest")
@click.option("--subscription", required=True, help="The subscription to take in.")
@click.option(
    "--to",
    required=True,
    metavar="PATH",
    help="A folder, here or wherever Spark can write to, or the URL of a database, jdbc:... "
    "[env of the latter: PULLSTREAM_JDBC_USER, PULLSTREAM_JDBC_PASSWORD]",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "json", "delta", "jdbc"]),
    help="Default: parquet, or jdbc for such a URL.",
)
@click.option("--table", help="The table in the database.")
@click.option("--available-now", is_flag=True, help="End when all that is there is in.")
@click.option("--every", type=duration, help="A batch so often: 30s, 10m. Default: at once.")
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN",
    help="Folders by its value; may be repeated. Also publish_date, publish_hour.",
)
@click.option("--decode", type=click.Choice(["json"]), help="Make columns of each message's data.")
@click.option("--schema", help="The columns: 'id BIGINT NOT NULL, name STRING'. Needs --decode.")
@click.option(
    "--bad-to",
    metavar="PATH",
    help="Where messages go that do not decode. Default: PATH-deadletter.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False),
    help="Folder on this machine for what the next run must find. Default: PATH/_state.",
)
@click.option(
    "--batch-rows", type=click.IntRange(min=1), help="Messages in a batch, at most. Default: 10000."
)
@click.option(
    "--option",
    "options",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of the source; may be repeated. See docs/spark.md.",
)
@click.option("--master", help="Where Spark runs. Default: as spark-submit says, else here.")
@click.option(
    "--conf",
    "settings",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark; may be repeated.",
)
@session_options
@pass_session
@click.pass_context
def ingest(context: click.Context, session: Session, /, **options: Any) -> None:
    """Write a subscription's messages into a table, each once, until Ctrl-C.

    Messages are acknowledged when their batch is in the table for good. Killed at any moment, the
    job goes on where it was when it is started again. Ctrl-C ends it between two batches, a second
    one at once. Needs the extra pullstream[spark].
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
    session: Session,
    *,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    **options: Any,
) -> int:
    """Run the job and return the exit code."""
    from subscriber.spark.java import JavaNotFound
    from subscriber.spark.job import run_ingest
    from subscriber.spark.session_builder import session_for

    try:
        job = _job(session, **options)
        # What fails is told by us, in one line.
        config = {"spark.log.level": "FATAL", **dict(settings)}
        signals = _Signals(session)
        with (
            session_for(master, app_name="pullstream ingest", config=config) as spark,
            # After Spark has set its own handlers, which would cancel the batch under way.
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
    session: Session,
    *,
    subscription: str,
    format_: str | None,
    every: timedelta | None,
    batch_rows: int | None,
    options: tuple[tuple[str, str], ...],
    **others: Any,
) -> Any:
    from subscriber.spark.ingest_job import IngestJob

    source = dict(options)
    if batch_rows is not None:
        if any(name.lower() == _BATCH_ROWS.lower() for name in source):
            raise ValueError(f"--batch-rows and --option {_BATCH_ROWS} are the same; give one")
        source[_BATCH_ROWS] = str(batch_rows)
    if session.endpoint is not None:
        source["endpoint"] = session.endpoint
    return IngestJob(
        subscription=session.full_name("subscriptions", subscription),
        format=format_ or "",
        every=None if every is None else every.total_seconds(),
        options=source,
        **others,
    )


class _Signals:
    """Ctrl-C and SIGTERM ask the job to stop; the second of them does not ask."""

    def __init__(self, session: Session) -> None:
        self.stop = threading.Event()
        self.interrupted = False
        self._session = session

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.interrupted = number == signal.SIGINT
        self.stop.set()
        self._session.output.remark("Stopping after the batch under way; Ctrl-C again: at once.")
