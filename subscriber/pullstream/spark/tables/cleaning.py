"""Files without use: what is common to all formats."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pullstream.spark.stores import StoredFile

if TYPE_CHECKING:
    from pullstream.spark.stores import Bucket, LocalFolder

# A reader of an old version, and a batch that is being written, may take this long. In seconds.
LEAST_AGE = 24 * 3600.0

# Readers of tables skip names that begin with `_`.
_CLOCK = "_pullstream_clock-"

# Folders of the table itself, although their names begin with `_`.
_LOGS = ("_delta_log/", "_batches/")

# Names of files that a killed task or driver leaves on a disk; see LocalFolder. The second one is
# deltalake's.
_TEMPORARY = re.compile(r"\..+\.tmp|.+\.(json|parquet)#\d+")


@dataclass(frozen=True)
class Cleaned:
    """What `clean` has removed, or would remove.

    Attributes:
        versions: Number of versions (Delta) or snapshots (Iceberg) that can no longer be read.
        files: Paths of the files, relative to the table's folder.
        size: Their size in bytes.
    """

    versions: int
    files: tuple[str, ...]
    size: int


def check_age(older_than: float) -> None:
    """Raise ValueError if files of this age may still be in use."""
    if older_than < LEAST_AGE:
        raise ValueError(
            f"older_than is {older_than:g} seconds; it must be at least 24 hours, because younger "
            "files may belong to a batch that is being written, or to a running query"
        )


def time_of(store: LocalFolder | Bucket) -> float:
    """Return the time of the store's clock, in seconds since 1970.

    The ages of files must not depend on the clock of this machine.
    """
    path = f"{_CLOCK}{os.urandom(8).hex()}"
    store.put(path, b"")
    try:
        return store.modified(path)
    finally:
        store.delete(path)


def is_temporary(file: StoredFile) -> bool:
    """Return whether a file is the beginning of one that was never completed."""
    if _TEMPORARY.fullmatch(file.name):
        return not _is_hidden(file) or file.path.startswith(_LOGS)
    return file.path.startswith(_CLOCK)


def is_data(file: StoredFile, suffixes: tuple[str, ...]) -> bool:
    """Return whether a file can be a data file of a table."""
    return (
        file.name.endswith(suffixes)
        and not file.name.startswith(("_", "."))
        and not _is_hidden(file)
    )


def _is_hidden(file: StoredFile) -> bool:
    """Return whether a file is in a folder that is not for data, such as the state of a job.

    Names of such folders begin with `_` or `.`. The folder of a partition may also begin so: it
    has a `=` in its name.
    """
    folders = file.path.split("/")[:-1]
    return any(name.startswith(("_", ".")) and "=" not in name for name in folders)


def name_of(path: str) -> str:
    """Return the last part of a path or URL.

    Data files are compared by this name, which is random: the same file has several paths, such as
    `s3://` and `s3a://`, and quoted ones.
    """
    return path.rpartition("/")[2]


def delete(store: LocalFolder | Bucket, files: Iterable[StoredFile]) -> None:
    """Delete files; those that do not exist any more are skipped."""
    for file in files:
        store.delete(file.path)
