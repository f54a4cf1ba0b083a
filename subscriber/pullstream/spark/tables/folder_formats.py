"""The format of the table in a folder, by the traces that each format leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pullstream.spark.errors import IngestError
from pullstream.spark.store_errors import is_denied, store_cause
from pullstream.spark.stores import Bucket, LocalFolder, store_of

from .file_table import LISTS

# The formats that know their files. Their readers see no other file of the folder.
_LAKES = {"delta", "iceberg"}

_NAMES = {
    "delta": "a Delta table",
    "iceberg": "an Iceberg table",
    "parquet": "a folder of Parquet files",
    "json": "a folder of JSON lines",
}


def formats_in(store: LocalFolder | Bucket) -> set[str]:
    """Return the formats whose traces are in a folder: "delta", "iceberg", "parquet", "json"."""
    found = set()
    if any(path.endswith(".json") for path in store.list("_delta_log")):
        found.add("delta")
    if any(path.endswith(".metadata.json") for path in store.list("metadata")):
        found.add("iceberg")
    lists = (file for file in store.files(LISTS) if file.name.endswith(".json"))
    # A batch without rows has a list without files, which is the shortest.
    largest = max(lists, key=lambda file: file.size, default=None)
    if largest is not None:
        files = json.loads(store.get(largest.path) or b"{}").get("files", [])
        found |= {"json" if file.endswith(".json") else "parquet" for file in files[:1]}
    return found


def check_format(folder: str, storage: Mapping[str, str], format: str) -> None:
    """Check that a folder has no table of another format than the one to write. Changes nothing.

    Args:
        folder: Path or URL of the folder, which need not exist.
        storage: Settings of the object store.
        format: "delta", "iceberg", "parquet" or "json".

    Raises:
        IngestError: It has one, or the store cannot be read.
        ValueError: A setting of the object store is unknown.
    """
    store = store_of(folder, storage)
    try:
        found = formats_in(store)
    except Exception as error:
        if is_denied(error):
            # The right to list is not needed by each format. Opening the table finds out.
            return
        # Each object store has other errors.
        raise IngestError(f"cannot read {folder}: {store_cause(error)}") from error
    if format in _LAKES and format in found:
        # Readers of the table see its rows alone.
        return
    others = found - {format}
    if others:
        # Readers see a lake's table first.
        other = min(others, key=lambda one: (one not in _LAKES, one))
        raise IngestError(
            f"{folder} is {_NAMES[other]}, but the format is {format}, and readers of what is "
            f"there would not see the rows; give the format {other} (--format {other}), or another "
            "folder"
        )
