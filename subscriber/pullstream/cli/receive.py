"""`pullstream receive`: write a subscription's messages to a spool, for a query of Spark."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from pullstream_protocol.errors import RpcError

from .context import CliContext, pass_session
from .groups import command
from .parameters import key_value
from .progress_options import progress_options, serve_metrics_of
from .receive_metrics import metrics_of
from .receive_view import receive_view, summary
from .stop_request import StopRequest

if TYPE_CHECKING:
    from pullstream.spark.receiver_processes.settings import ReceiverSettings

_INTERRUPTED = 130

# The exit codes of `pullstream ingest`.
_SUBSCRIPTION, _SPOOL = 3, 5


@command("receive")
@click.option("--subscription", required=True, help="The subscription to receive from.")
@click.option(
    "--spool",
    required=True,
    metavar="PLACE",
    help="The folder of the spool, or its URL (s3://, gs://, az://).",
)
@click.option(
    "--acknowledge",
    type=click.Choice(["committed", "stored"]),
    default="committed",
    show_default=True,
    help="Acknowledge a message when its batch is committed, or when it is stored in the spool. "
    "The query needs the same value.",
)
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of streams, each with its own connection.",
)
@click.option(
    "--receivers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of receivers of this spool. Each one uses its part of maxSpoolBytes.",
)
@click.option(
    "--available-now",
    is_flag=True,
    help="Receive the available messages, then end; by default, wait until they are committed.",
)
@click.option(
    "--storage",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the object store; may be repeated. Default: the environment.",
)
@click.option(
    "--option",
    "options",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of the source, such as lingerMs; may be repeated. See "
    "docs/spark-receivers.md.",
)
@progress_options
@pass_session
@click.pass_context
def receive(
    context: click.Context,
    session: CliContext,
    /,
    progress_every: float,
    metrics_port: tuple[str, int] | None,
    **options: Any,
) -> None:
    """Write a subscription's messages to the spool of a query, until Ctrl-C or SIGTERM.

    A query of Spark with the options receivers=outside and spoolDir=PLACE reads them. Any number of
    receivers may write to one spool. Needs pyarrow, which the extra pullstream[spark] has, but
    neither PySpark nor Java.

    At the end, messages that are not acknowledged are returned to the server. A receiver may be
    killed at any time: nothing is lost, and the query leaves redelivered messages out.

    With --json, each line has a `type`: "progress", then at the end "result" or "error".

    The exit code is 0 at the end of --available-now or after SIGTERM, 130 after Ctrl-C, 2 for wrong
    arguments, 3 if the subscription or its server has failed, 5 if the spool has, 1 for anything
    else.
    """
    _require_arrow()
    from pullstream.spark.errors import SpoolError
    from pullstream.spark.receiver_processes.loop import ReceiverLoop
    from pullstream.spark.receiver_processes.running import NotEnded, end_at_once, run_until

    settings = _settings(session, **options)
    signals = StopRequest(session, "Returning messages")
    try:
        with signals.awaited(), receive_view(as_json=session.json, pace=progress_every) as view:
            serve_metrics_of(
                settings.source.subscription, metrics_port, lambda: metrics_of(view.report)
            )
            run_until(ReceiverLoop(settings), signals.stop, view.update)
    except (SpoolError, RpcError) as error:
        raise ReceiveFailed(error) from error
    except NotEnded as error:
        session.output.remark(f"Error: {error}")
        session.output.failure(str(error), _SPOOL)
        end_at_once(_SPOOL)
    except KeyboardInterrupt:
        session.output.failure("interrupted", _INTERRUPTED)
        # The receiver's thread may wait for the storage or the server.
        end_at_once(_INTERRUPTED)
    click.echo(summary(view.report, as_json=session.json))
    context.exit(_INTERRUPTED if signals.interrupted else 0)


class ReceiveFailed(click.ClickException):
    """A failed receiver, with the exit code of its cause."""

    def __init__(self, error: Exception) -> None:
        of_server = isinstance(error, RpcError)
        super().__init__(str(error))
        self.cause: str = "subscription" if of_server else "spool"
        self.exit_code: int = _SUBSCRIPTION if of_server else _SPOOL  # type: ignore[misc]


def _require_arrow() -> None:
    if sys.version_info < (3, 11):
        raise click.ClickException("receive needs Python 3.11 or later, as pullstream.spark does.")
    if find_spec("pyarrow") is None:
        raise click.ClickException("receive needs pyarrow: pip install 'pullstream[cli,spark]'")


def _settings(
    session: CliContext,
    *,
    subscription: str,
    spool: str,
    acknowledge: str,
    streams: int,
    receivers: int,
    available_now: bool,
    storage: tuple[tuple[str, str], ...],
    options: tuple[tuple[str, str], ...],
) -> ReceiverSettings:
    from pullstream.spark.receiver_processes.options import settings_of

    given = dict(options)
    own = {name: f"--{name}" for name in ("acknowledge", "streams", "receivers")}
    own["spoolDir"] = "--spool"
    for name, option in {**own, "subscription": "--subscription"}.items():
        if name.lower() in (each.lower() for each in given):
            raise click.UsageError(f"--option {name} is {option}; give it as that option only")
    given |= {name: str(text) for name, text in session.connection.items() if text is not None}
    given |= {f"storage.{name}": text for name, text in storage}
    given |= {
        "subscription": session.full_name("subscriptions", subscription),
        "spoolDir": spool,
        "acknowledge": acknowledge,
        "streams": str(streams),
    }
    try:
        return settings_of(given, count=receivers, available_now=available_now)
    except (ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from error
