"""`pullstream spool`: skip."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from secrets import token_hex

import click

from .context import CliContext, context_options, pass_session
from .groups import CommandGroup
from .parameters import key_value

# Ids in a text; the JSON has all.
_SHOWN = 10


@click.group("spool", cls=CommandGroup)
@context_options
def spool() -> None:
    """Repair the spool of a Spark source."""


@spool.command("skip")
@click.argument("plan", type=click.IntRange(min=0))
@click.argument("segment")
@click.option(
    "--spool",
    "place",
    required=True,
    metavar="PLACE",
    help="The folder of the spool, or its URL (s3://, gs://, az://).",
)
@click.option(
    "--storage",
    type=key_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the object store; may be repeated. Default: the environment.",
)
@pass_session
def skip(
    session: CliContext,
    plan: int,
    segment: str,
    *,
    place: str,
    storage: tuple[tuple[str, str], ...],
) -> None:
    """Read the batch of a PLAN without a SEGMENT that is damaged or missing.

    The error of the query names both, such as: 42 r17/3. PLAN is 0 for a segment that is in no plan
    yet, and whose manifest is damaged, too. A committed plan and a segment that can be read are
    refused. The decision is a file in the spool, which the query reads when it starts
    again. With acknowledge=committed, the messages of the segment come again, after at most a
    lease. With acknowledge=stored, the segment was the only copy, so they are lost.
    """
    if sys.version_info < (3, 11):
        raise click.ClickException("spools need Python 3.11 or later, as PySpark does.")
    try:
        from pullstream.spark.protocol.acknowledge import Acknowledge
        from pullstream.spark.protocol.layout import Segment
        from pullstream.spark.protocol.skipping import skip as skipping
        from pullstream.spark.protocol.storage import run
        from pullstream.spark.spool_store import spool_store
        from pullstream.spark.store_errors import is_of_store, store_cause
    except ImportError as error:
        raise click.ClickException(
            f"a spool needs {error.name}: pip install 'pullstream[cli,spark]'"
        ) from error
    try:
        name = Segment.parse(segment)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'SEGMENT'") from error
    try:
        store = spool_store(place, dict(storage))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        skipped = run(skipping(plan, name, token_hex(16)), store)
    except Exception as error:
        if not is_of_store(error):
            raise
        raise click.ClickException(f"cannot use {place}: {store_cause(error)}") from error
    is_lost = skipped.acknowledge and skipped.acknowledge is Acknowledge.STORED
    outcome = {
        None: "come again with acknowledge=committed, and are lost with acknowledge=stored",
        True: "are lost",
        False: "come again",
    }
    session.output.result(
        {
            "plan": plan,
            "segment": name.path,
            "messages": skipped.rows,
            "lost": is_lost,
            "ids": None if skipped.ids is None else list(skipped.ids),
        },
        f"{f'plan {plan}' if plan else 'the spool'} will be read without {name.path}: "
        f"{_messages(skipped.rows)} {outcome[is_lost]}{_ids(skipped.ids)}. Start the query again",
    )


def _messages(number: int | None) -> str:
    return "its messages" if number is None else f"{number:,} messages"


def _ids(ids: Sequence[str] | None) -> str:
    if ids is None:
        return " (their ids are not known, because the manifest cannot be read either)"
    shown = ", ".join(ids[:_SHOWN])
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f" ({shown}{more})" if ids else ""
