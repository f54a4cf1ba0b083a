"""State folder of an ingestion job, with which a restarted job continues."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullstream.spark.errors import IngestError
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream_protocol.file_lock import FileLock

_FILE = "job.json"
_LOCK = "LOCK"
_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class IngestState:
    """State folder of one job, used by one run at a time.

    Its parts belong together: Spark's checkpoint numbers the batches, and the spool has the rows of
    unfinished batches.

    Each run names its batches with its own id. So a name is never used for other rows, even if
    parts of the folder are lost or restored from a copy. Only a replayed batch keeps its name,
    which contains the id of the run that planned it.

    Attributes:
        folder: The folder.
        run: Id of this run.
    """

    folder: Path
    run: str
    # By batch number: the names of batches that an earlier run planned.
    _replays: Mapping[str, str]

    @property
    def checkpoint(self) -> str:
        """URI of Spark's checkpoint folder, with the scheme `file`."""
        # With the scheme, because the default file system of a cluster's Spark may be another one.
        return (self.folder / _CHECKPOINT).as_uri()

    @property
    def spool(self) -> Path:
        """Folder in which the source stores the messages of unfinished batches."""
        return self.folder / "spool"

    def batch(self, number: int) -> str:
        """Return the name of a batch: unique for ever, and the same in each replay."""
        return self._replays.get(str(number), f"{self.run}-{number}")

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: Path,
        identity: Mapping[str, str],
        columns: Mapping[str, str],
        reading: Mapping[str, str],
        may_have: Callable[[str], bool],
    ) -> Iterator[IngestState]:
        """Open the state in `folder` during the block; create it if it does not exist.

        Args:
            folder: The folder.
            identity: Values that must not change as long as the state is used.
            columns: Types of the table's columns. Columns may be added.
            reading: Values that decide which rows are good. They may change, but not while a batch
                waits for its replay whose good rows may already be in the table.
            may_have: Returns whether the table may have the batch of this name.

        Raises:
            IngestError: Another run uses the state, it belongs to another job, a value has changed
                that must not change now, or the state cannot be read or created.
        """
        folder = folder.absolute()
        path = folder / _FILE
        lock = _taken(folder)
        try:
            known = _read(path)
            _check(folder, known, identity, columns)
            state = cls(folder, uuid.uuid4().hex[:16], _replays(folder, known))
            if any(map(may_have, state._replays.values())):
                _check_reading(folder, known, reading)
            content = {
                "id": state.run,
                "replays": state._replays,
                **identity,
                **reading,
                "columns": {**known["columns"], **columns},
            }
            try:
                AtomicFiles().write(path, json.dumps(content, indent=2).encode())
            except OSError as error:
                raise _unusable(folder, error) from error
            yield state
        finally:
            lock.release()


def _taken(folder: Path) -> FileLock:
    """Return the folder's lock. Two concurrent runs would not know each other's batch names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / _LOCK)
    except BlockingIOError:
        raise IngestError(
            f"the state in {folder} is in use by another run of the job; wait for its end, or use "
            "a separate table and state for each job"
        ) from None
    except OSError as error:
        raise _unusable(folder, error) from error


def _read(path: Path) -> dict[str, Any]:
    """Return the notes of the previous run, if there was one."""
    noted: dict[str, Any] = {"replays": {}, "columns": {}}
    if path.exists():
        try:
            noted |= json.loads(path.read_text(encoding="utf-8"))
            noted["id"] = str(noted["id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unusable(path.parent, error) from error
    return noted


def _check(
    folder: Path, known: Mapping[str, Any], identity: Mapping[str, str], columns: Mapping[str, str]
) -> None:
    for name, value in identity.items():
        if known.get(name, value) != value:
            raise IngestError(
                f"the state in {folder} belongs to a job whose {name} is {known[name]!r}, "
                f"not {value!r}; use a separate table and state for each job"
            )
    for name, kind in columns.items():
        before = known["columns"].get(name, kind)
        if kind != before:
            raise IngestError(
                f"the state in {folder} belongs to a table in which {name} is {before}, but the "
                f"schema now says {kind}: rows of both types cannot be read together. Keep the "
                f"type {before}, or use another table and state"
            )


def _check_reading(folder: Path, known: Mapping[str, Any], reading: Mapping[str, str]) -> None:
    """Check that the decoding has not changed since a batch was started.

    Otherwise a row that changes between good and bad would end up in neither table or in both: a
    table either skips the batch that it already has, or replaces it.
    """
    for name, value in reading.items():
        if known.get(name, value) != value:
            raise IngestError(
                f"the state in {folder} has an unfinished batch that was started with {name} "
                f"{known[name]!r}, so {name} cannot be {value!r} yet. First run the job with the "
                "old value until all available messages are written (available_now)"
            )


def _replays(folder: Path, known: Mapping[str, Any]) -> dict[str, str]:
    """Return the number and the name of the batch that Spark will replay, if there is one."""
    planned, committed = (
        max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)
        for log in (folder / _CHECKPOINT / name for name in ("offsets", "commits"))
    )
    if planned <= committed or "id" not in known:
        return {}
    number = str(planned)
    # The previous run planned it, or itself got it from the run before.
    return {number: known["replays"].get(number, f"{known['id']}-{number}")}


def _unusable(folder: Path, error: Exception) -> IngestError:
    return IngestError(
        f"the state in {folder} cannot be used: {error!r}; choose another folder for the state"
    )
