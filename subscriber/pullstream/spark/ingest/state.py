"""State folder of an ingestion job, with which a restarted job continues."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullstream.spark.errors import IngestError, SpoolError
from pullstream.spark.protocol.coordinator import Offset
from pullstream.spark.protocol.layout import OWNERS, Owner, numbered
from pullstream.spark.store_errors import is_of_store, store_cause
from pullstream.spark.stores import Bucket, LocalFolder
from pullstream.spark.tables.batch import BatchName
from pullstream_protocol.file_lock import FileLock

JOB_FILE = "job.json"
_LOCK = "LOCK"
_CHECKPOINT = "checkpoint"
SPOOL = "spool"
# The value of a job that says where its spool is; empty if it is in the state folder.
SPOOL_PLACE = "spool_place"


@dataclass(frozen=True)
class IngestState:
    """State folder of one job, used by one run at a time.

    Its parts belong together: Spark's checkpoint numbers the batches, and the spool has the rows of
    unfinished batches.

    A batch is named after the spool and the number of its plan, which Spark has written down as an
    offset before it passes the batch. So the same rows have the same name in each run, also with a
    new checkpoint, and other rows never have it.

    Attributes:
        folder: The folder.
        run: Id of this run.
        identity: Values that must not change as long as the state is used.
        spool: The messages of unfinished batches, in this folder or elsewhere.
    """

    folder: Path
    run: str
    identity: Mapping[str, str]
    spool: LocalFolder | Bucket

    @property
    def checkpoint(self) -> str:
        """URI of Spark's checkpoint folder, with the scheme `file`."""
        # With the scheme, because the default file system of a cluster's Spark may be another one.
        return (self.folder / _CHECKPOINT).as_uri()

    @property
    def notes(self) -> Path:
        """Folder of the source's note of an outage."""
        return self.spool.folder if isinstance(self.spool, LocalFolder) else self.folder

    @property
    def is_replaced(self) -> bool:
        """Whether a later run has begun, which only Spark Connect allows.

        Raises:
            IngestError: The state cannot be read.
        """
        return bool(_read(self.folder / JOB_FILE).get("id", self.run) != self.run)

    def batch(self, number: int) -> BatchName:
        """Return the name of one of Spark's batches, which Spark has planned.

        Raises:
            IngestError: Spark's log or the spool cannot be read.
        """
        return _batch(self.folder, number, self.spool)

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: Path,
        identity: Mapping[str, str],
        spool: LocalFolder | Bucket | None = None,
        run: str | None = None,
    ) -> Iterator[IngestState]:
        """Open the state in `folder` during the block; create it if it does not exist.

        Args:
            folder: The folder.
            identity: Values that must not change as long as the state is used.
            spool: The spool. Default: a folder in `folder`.
            run: Id of the run. Default: a new one.

        Raises:
            IngestError: Another run uses the state, it belongs to another job, or it cannot be read
                or created.
        """
        folder = folder.absolute()
        is_new = not folder.exists()
        lock = _taken(folder)
        try:
            _check(folder, _read(folder / JOB_FILE), identity)
            spool = spool or spool_in(folder)
            yield cls(folder, run or uuid.uuid4().hex[:16], identity, spool)
        finally:
            # A run that was refused leaves no state.
            if is_new and [one.name for one in folder.iterdir()] == [_LOCK]:
                lock.remove()
            else:
                lock.release()

    def begin(
        self,
        columns: Mapping[str, str],
        reading: Mapping[str, str],
        newest: Callable[[str], int],
    ) -> None:
        """Note the values of this run, before its first batch.

        Args:
            columns: Types of the table's columns. Columns may be added.
            reading: Values that decide which rows are good. They may change, but not while a batch
                waits for its replay whose bad rows may already be in their table.
            newest: Returns the number of the newest batch of a source that may be in the table or
                in the table of bad rows.

        Raises:
            IngestError: A value has changed that must not change now, or the state cannot be read
                or written.
        """
        folder = self.folder
        path = folder / JOB_FILE
        known = _read(path)
        _check_columns(folder, known, columns)
        replay = _replay(folder, self.spool)
        if replay is not None and newest(replay.source) >= replay.number:
            _check_reading(folder, known, reading)
        content = {
            "id": self.run,
            **self.identity,
            **reading,
            "columns": {**known["columns"], **columns},
        }
        try:
            LocalFolder(folder).put(JOB_FILE, json.dumps(content, indent=2).encode())
        except OSError as error:
            raise _unusable(folder, error) from error


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
    noted: dict[str, Any] = {"columns": {}}
    if path.exists():
        try:
            noted |= json.loads(path.read_text(encoding="utf-8"))
            noted["id"] = str(noted["id"])
            noted["columns"] = dict(noted["columns"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unusable(path.parent, error) from error
    return noted


def _check(folder: Path, known: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    for name, value in identity.items():
        if known.get(name, value) != value:
            raise IngestError(
                f"the state in {folder} belongs to a job whose {name} is {known[name]!r}, "
                f"not {value!r}; use a separate table and state for each job"
            )


def _check_columns(folder: Path, known: Mapping[str, Any], columns: Mapping[str, str]) -> None:
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
    table skips the batch that it already has.
    """
    for name, value in reading.items():
        if known.get(name, value) != value:
            raise IngestError(
                f"the state in {folder} has an unfinished batch that was started with {name} "
                f"{known[name]!r}, so {name} cannot be {value!r} yet. First run the job with the "
                "old value until all available messages are written, and then with the new one"
            )


def spool_in(folder: Path) -> LocalFolder:
    """Return the spool in a state folder, where it is by default."""
    return LocalFolder(folder.absolute() / SPOOL)


def source_id(folder: Path, spool: LocalFolder | Bucket) -> str | None:
    """Return the id of a job's spool, which its founder has; None if there is no spool yet.

    Args:
        folder: The state folder.
        spool: The spool.

    Raises:
        IngestError: The spool cannot be read.
    """
    try:
        content = spool.get(numbered(OWNERS, 0))
        return None if content is None else Owner.read(0, content).nonce
    except (OSError, SpoolError) as error:
        raise _unusable(folder, error) from error
    except Exception as error:
        if not is_of_store(error):
            raise
        raise IngestError(f"the spool cannot be read: {store_cause(error)}") from error


def noted_job(folder: Path) -> dict[str, str]:
    """Return the values that describe the job of a state folder, which has had a run.

    Raises:
        IngestError: The state cannot be read.
    """
    noted = _read(folder / JOB_FILE)
    return {name: str(value) for name, value in noted.items() if name not in ("id", "columns")}


def committed_offset(folder: Path, spool: LocalFolder | Bucket) -> int:
    """Return the source's offset at the end of Spark's newest committed batch; 0: none.

    Raises:
        IngestError: Spark's log or the spool cannot be read.
    """
    return source_number(folder, planned_and_committed(folder)[1], spool) or 0


def committed_position(folder: Path) -> Offset | None:
    """Return the source's offset, with its chain, of Spark's newest committed batch; None: none.

    Raises:
        IngestError: Spark's log cannot be read.
    """
    committed = planned_and_committed(folder)[1]
    return None if committed < 0 else _position(folder, committed)


def source_number(folder: Path, number: int, spool: LocalFolder | Bucket) -> int | None:
    """Return the source's number of one of Spark's batches, which names it in the table.

    Args:
        folder: The state folder.
        number: Spark's number; -1: none.
        spool: The spool.

    Raises:
        IngestError: Spark's log or the spool cannot be read.
    """
    return None if number < 0 else _batch(folder, number, spool).number


def planned_and_committed(folder: Path) -> tuple[int, int]:
    """Return the numbers of Spark's newest planned and newest committed batch; -1: none."""
    planned, committed = (
        max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)
        for log in (folder / _CHECKPOINT / name for name in ("offsets", "commits"))
    )
    return planned, committed


def _replay(folder: Path, spool: LocalFolder | Bucket) -> BatchName | None:
    """Return the batch that Spark will replay, if there is one."""
    planned, committed = planned_and_committed(folder)
    if planned <= committed or source_id(folder, spool) is None:
        return None
    return _batch(folder, planned, spool)


def _position(folder: Path, number: int) -> Offset:
    path = folder / _CHECKPOINT / "offsets" / str(number)
    try:
        # A version, the batch's metadata, and a line for each source.
        found = json.loads(path.read_text(encoding="utf-8").splitlines()[2])
        return Offset(int(found["plan"]), str(found["chain"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise IngestError(f"{path}, which Spark has written, cannot be read: {error!r}") from error


def _batch(folder: Path, number: int, spool: LocalFolder | Bucket) -> BatchName:
    offset = _position(folder, number)
    source = source_id(folder, spool)
    if source is None:
        raise IngestError(
            f"the spool of the state in {folder} is empty, although Spark has its batches; delete "
            f"{folder / _CHECKPOINT}, too. Uncommitted messages come again. A committed one comes "
            "twice only if its acknowledgement was lost"
        )
    return BatchName(source, offset.plan)


def _unusable(folder: Path, error: Exception) -> IngestError:
    return IngestError(
        f"the state in {folder} cannot be used: {error!r}; choose another folder for the state"
    )
