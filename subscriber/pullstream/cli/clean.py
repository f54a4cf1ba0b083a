"""`pullstream clean`: remove files of a table that no version needs any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .context import CliContext, pass_session
from .groups import command
from .parameters import duration
from .table_options import opened, table_options


@command("clean")
@table_options
@click.option(
    "--older-than",
    type=duration,
    required=True,
    help="Least age by the clock of the disk or bucket: 7d. At least 24h.",
)
@click.option("--apply", is_flag=True, help="Remove them. Default: show them.")
@pass_session
def clean(session: CliContext, /, older_than: timedelta, *, apply: bool, **options: Any) -> None:
    """Remove old versions of a TABLE, and files that no other version names.

    TABLE is a folder or a URL (s3://, gs://, az://). Among the files are those of batches that
    were killed before their commit, and those that `pullstream compact` has replaced. Versions that
    were current within --older-than stay readable, and what a job has noted in the table stays.
    Jobs and queries may run meanwhile. A batch must be written within --older-than.
    """
    with opened(**options) as table:
        found = table.clean(older_than.total_seconds(), apply=apply)
    record = {
        "applied": apply,
        "versions": found.versions,
        "bytes": found.size,
        "files": list(found.files),
    }
    if not session.json and not apply:
        for path in found.files:
            click.echo(path)
    verb = "removed" if apply else "would be removed; add --apply to remove them"
    text = f"{found.versions:,} versions, {len(found.files):,} files, {found.size:,} bytes {verb}"
    session.output.result(record, text)
