"""`pullstream compact`: rewrite small files of a table as large ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .context import CliContext, pass_session
from .groups import command
from .parameters import duration
from .table_options import opened, table_options


@command("compact")
@table_options
@click.option(
    "--drop-deleted-after",
    type=duration,
    help="Also drop rows of keys whose deletion was published this long ago: 7d. At least 24h.",
)
@pass_session
def compact(session: CliContext, /, drop_deleted_after: timedelta | None, **options: Any) -> None:
    """Rewrite the many small files of a TABLE as few large ones.

    TABLE is a folder or a URL (s3://, gs://, az://) with a table of any writer. Rows stay the
    same, and so does what a job has noted in the table. Delta and Iceberg tables are compacted
    while jobs write and queries read; one commit replaces at most one partition. In Iceberg's
    history it is an `overwrite`, so a reader of changes sees the rows removed and added again. Stop
    jobs and queries before you compact a folder of Parquet or JSON files, and after a kill run the
    command again: until then queries see rows twice. The old files remain for running queries,
    until `pullstream clean` removes them. Needs the extra of the format, such as pullstream[delta].

    A table of `pullstream ingest --merge-on` keeps a row with `_deleted` for each deleted key. With
    --drop-deleted-after, these rows go. A change that is older than the deletion and comes after
    that revives the key, so the time must be longer than any change is late.
    """
    with opened(**options) as table:
        if drop_deleted_after is None:
            done = table.compact()
        else:
            # The rest of these files may be small.
            done = table.drop_deleted(drop_deleted_after.total_seconds()) + table.compact()
    record = {
        "removed": done.removed,
        "added": done.added,
        "tries": done.tries,
        "dropped": done.dropped,
    }
    text = f"{done.removed:,} files became {done.added:,}" if done.removed else "nothing to compact"
    if drop_deleted_after is not None:
        text += f"; {done.dropped:,} rows of deleted keys were dropped"
    session.output.result(record, text)
