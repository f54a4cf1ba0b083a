"""`pullstream compact`: rewrite small files of a table as large ones."""

from __future__ import annotations

from typing import Any

from .context import CliContext, pass_session
from .groups import command
from .table_options import opened, table_options


@command("compact")
@table_options
@pass_session
def compact(session: CliContext, /, **options: Any) -> None:
    """Rewrite the many small files of a TABLE as few large ones.

    TABLE is a folder or a URL (s3://, gs://, az://) with a table of any writer. Rows stay the
    same, and so does what a job has noted in the table. Delta and Iceberg tables are compacted
    while jobs write and queries read; one commit replaces at most one partition. In Iceberg's
    history it is an `overwrite`, so a reader of changes sees the rows removed and added again. Stop
    jobs and queries before you compact a folder of Parquet or JSON files, and after a kill run the
    command again: until then queries see rows twice. The old files remain for running queries,
    until `pullstream clean` removes them. Needs the extra of the format, such as pullstream[delta].
    """
    with opened(**options) as table:
        done = table.compact()
    record = {"removed": done.removed, "added": done.added, "tries": done.tries}
    text = f"{done.removed:,} files became {done.added:,}" if done.removed else "nothing to compact"
    session.output.result(record, text)
