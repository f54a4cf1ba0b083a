"""The log of a Delta table: one file of actions for each version, created once.

deltalake keeps and copies a list of all files of the table for each commit, so its commits become
slower with each file. A writer that only adds files does not need that list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pullstream.spark.stores import store_of
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.version import VERSION

FOLDER = "_delta_log"

# Versions from one checkpoint to the next, unless the table has a setting.
_INTERVAL = 100
_INTERVAL_SETTING = "delta.checkpointInterval"


class DeltaLog:
    """The end of a table's log. Used by one thread.

    Args:
        folder: Path or URL of the table.
        options: Settings of the object store.
        version: The newest known version.
    """

    def __init__(self, folder: str, options: Mapping[str, str] | None, version: int) -> None:
        self._folder = folder
        self._options = dict(options or {}) or None
        self._store = store_of(folder, options)
        self.version: int = version

    def newer(self) -> Iterator[dict[str, Any]]:
        """Return the actions of newer versions, which are then known."""
        while (content := self._store.get(commit_path(self.version + 1))) is not None:
            self.version += 1
            yield from map(json.loads, content.splitlines())

    def append(
        self,
        actions: Sequence[Mapping[str, Any]],
        operation: Literal["WRITE", "MERGE", "DELETE"] = "WRITE",
    ) -> bool:
        """Add a version; return False if there is a newer version than the known one.

        Args:
            actions: The actions, without `commitInfo`.
            operation: What the version does. Only "WRITE" depends on no rows of the table. Other
                writers ask this to find out whether they are in conflict.
        """
        is_append = operation == "WRITE"
        info = {
            "timestamp": round(SYSTEM_CLOCK.now() * 1000),
            "operation": operation,
            "operationParameters": {"mode": "Append"} if is_append else {},
            "isBlindAppend": is_append,
            "engineInfo": f"pullstream:{VERSION}",
        }
        lines = [json.dumps(one) for one in ({"commitInfo": info}, *actions)]
        if not self._store.create(commit_path(self.version + 1), "\n".join(lines).encode()):
            return False
        self.version += 1
        return True

    def add_checkpoint(self, settings: Mapping[str, str]) -> None:
        """Write a checkpoint if one is due, so that readers need few files of the log.

        Args:
            settings: The table's configuration.
        """
        if self.version % int(settings.get(_INTERVAL_SETTING, _INTERVAL)):
            return
        # The version is committed, whatever happens here; later versions try again.
        with suppress(DeltaError, OSError):
            table = DeltaTable(self._folder, storage_options=self._options)
            table.create_checkpoint()
            table.cleanup_metadata()


def commit_path(version: int) -> str:
    """Return the path of a version's actions."""
    return f"{FOLDER}/{version:020}.json"
