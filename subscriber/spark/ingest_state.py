"""What an ingestion job must find again to go on where it stopped: one folder."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .disk import Disk
from .errors import IngestError

_FILE = "job.json"
_LOCK = "LOCK"
_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class IngestState:
    """The folder of one job, whose parts belong together: Spark's checkpoint numbers the batches,
    and the spool has the rows of those under way. One run at a time has it.

    Each run names its batches by an id of its own, so that no name is ever that of other rows,
    whatever of the folder is lost, or put back from a copy. Only a batch that Spark hands over
    again has the name that it had: that of the run that planned it.
    """

    folder: Path
    run: str
    # The names of batches that an earlier run planned, by their numbers.
    _replays: Mapping[str, str]

    @property
    def checkpoint(self) -> str:
        # With its scheme: the default of a cluster's Spark may be another file system.
        return (self.folder / _CHECKPOINT).as_uri()

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def batch(self, number: int) -> str:
        """The name of one of the batches: unique for ever, and the same whenever it is replayed."""
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
        """The state in `folder`, which is made if there is none, for as long as the block lasts.

        Args:
            identity: what must stay as it is while the state is kept.
            columns: what the table's columns hold. They may become more.
            reading: what decides which rows are good. It may change, but not while a batch waits
                to be replayed of which the table has the good rows already.
            may_have: whether the table may have the batch of this name.

        Raises:
            IngestError: another run has it, it is of another job, one of these must not change
                now, or it cannot be read or made.
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
                Disk().write(path, json.dumps(content, indent=2).encode())
            except OSError as error:
                raise _unusable(folder, error) from error
            yield state
        finally:
            os.close(lock)


def _taken(folder: Path) -> int:
    """The folder's lock. Two runs at a time would not know each other's names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise _unusable(folder, error) from error
        raise IngestError(
            f"the state in {folder} is in use by another run of the job: wait for its end, or give "
            "each job a table and a state of its own"
        ) from None
    return lock


def _read(path: Path) -> dict[str, Any]:
    """What the run before has noted, if there was one."""
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
                f"the state in {folder} is that of a job whose {name} is {known[name]!r}, "
                f"not {value!r}; each job needs a table and a state of its own"
            )
    for name, kind in columns.items():
        before = known["columns"].get(name, kind)
        if kind != before:
            raise IngestError(
                f"the state in {folder} is that of a table in which {name} is {before}, and now "
                f"it would be {kind}: rows of both kinds cannot be read together. Let it be "
                f"{before}, or give the job another table and state"
            )


def _check_reading(folder: Path, known: Mapping[str, Any], reading: Mapping[str, str]) -> None:
    """A row that was bad and now is good, or the other way, would be in neither table or in both:
    a table passes over the batch that it has, or each of them replaces its own."""
    for name, value in reading.items():
        if known.get(name, value) != value:
            raise IngestError(
                f"the state in {folder} has a batch that was begun with {name} {known[name]!r} and "
                f"not seen through, so {name} cannot be {value!r} yet: run the job with the old "
                "one first, until all that is there is in (available_now)"
            )


def _replays(folder: Path, known: Mapping[str, Any]) -> dict[str, str]:
    """The batch that Spark will hand over again, if there is one, and the name that it has."""
    planned, committed = (
        max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)
        for log in (folder / _CHECKPOINT / name for name in ("offsets", "commits"))
    )
    if planned <= committed or "id" not in known:
        return {}
    number = str(planned)
    # The run before planned it, or had it from the one before that.
    return {number: known["replays"].get(number, f"{known['id']}-{number}")}


def _unusable(folder: Path, error: Exception) -> IngestError:
    return IngestError(
        f"the state in {folder} cannot be used: {error!r}; choose another folder (state)"
    )
