"""The state of batch reads: a file in the spool, which serves them as a checkpoint serves a stream.

It has one offset: the plan whose rows are the last read, until they are acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from getpass import getuser
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any, NamedTuple

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.coordinator import START, Offset
from pullstream.spark.protocol.layout import OWNERS, Segment, numbers_of
from pullstream.spark.protocol.storage import probe
from pullstream.spark.session.folder_lock import refuse_old_format
from pullstream.spark.stores import Bucket, LocalFolder
from pullstream_protocol.file_lock import FileLock

_FORMAT = 2

_STATE = "read.json"
_LEASES = "read-leases.json"


class Content(NamedTuple):
    """The state.

    Attributes:
        number: Number of the last read, from 1; 0 if there was none.
        is_over: Whether its rows are acknowledged.
        is_all: Whether there were no more messages when the rows were pulled.
        committed: Everything up to this offset is acknowledged, or is about to be.
        planned: The offset of the rows that are not acknowledged. None: there are none.
        rows: Their number.
    """

    number: int = 0
    is_over: bool = False
    is_all: bool = False
    committed: Offset = START
    planned: Offset | None = None
    rows: int = 0

    @property
    def next(self) -> int:
        """The number of the read to which a new DataFrame belongs."""
        return self.number if self.planned else self.number + 1


class Leases(NamedTuple):
    """The ack ids of rows that are not acknowledged.

    Attributes:
        segment: The segment with the rows.
        ack_ids: By message id: the ack id.
    """

    segment: Segment
    ack_ids: Mapping[str, str]


class Journal:
    """Reads and writes the state."""

    def __init__(self, store: LocalFolder | Bucket, name: str) -> None:
        self._store = store
        self._name = name

    def refuse_stream(self) -> None:
        """Raise SpoolError if the folder belongs to a batch read and so must not serve a stream."""
        if self._store.get(_STATE) is not None:
            raise SpoolError(
                f"the spool {self._name} belongs to a batch read; use another folder for the stream"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock during the block.

        Spark plans each action on a DataFrame in a separate process. If two actions run at the same
        time, one of them pulls and the other waits.

        Raises:
            SpoolError: The folder belongs to a streaming query, or cannot hold a spool.
        """
        lock = FileLock(self._lock_path(), wait=True)
        try:
            self._claim()
            yield
        finally:
            lock.release()

    def _lock_path(self) -> Path:
        if isinstance(self._store, LocalFolder):
            self._store.folder.mkdir(parents=True, exist_ok=True)
            return self._store.folder / "read.lock"
        # All actions of a session are planned on one machine. Two machines meet at the same plan.
        digest = sha256(f"{self._name} {getuser()}".encode()).hexdigest()[:32]
        return Path(gettempdir(), f"pullstream-read-{digest}.lock")

    def _claim(self) -> None:
        """Mark the folder as used by a batch read, before any message is pulled into it."""
        if self._store.get(_STATE) is not None:
            return
        if isinstance(self._store, LocalFolder):
            refuse_old_format(self._store.folder)
        # Owner 0 belongs to no query; receivers write it, too.
        if max(numbers_of(self._store.files(OWNERS)), default=0):
            raise SpoolError(
                f"the spool {self._name} belongs to a streaming query; use another folder for "
                "the batch read"
            )
        probe(self._store, token_hex(16))
        self.write(Content())

    def write(self, read: Content) -> None:
        """Replace the state. Durable when the method returns."""
        self._write(_STATE, read._asdict())

    def content(self) -> Content:
        """Return the state.

        Raises:
            SpoolError: The file is damaged, or has the format of another version.
        """
        found = self._read(_STATE)
        if found is None:
            return Content()
        with _reading(self._name, _STATE):
            committed, planned = found.pop("committed"), found.pop("planned")
            return Content(
                **found,
                committed=Offset(*committed),
                planned=None if planned is None else Offset(*planned),
            )

    def write_leases(self, leases: Leases) -> None:
        """Record ack ids. Durable when the method returns."""
        self._write(_LEASES, leases._asdict())

    def leases(self) -> Leases | None:
        """Return the recorded ack ids."""
        found = self._read(_LEASES)
        if found is None:
            return None
        with _reading(self._name, _LEASES):
            return Leases(Segment.of(found["segment"]), dict(found["ack_ids"]))

    def delete_leases(self) -> None:
        """Delete the recorded ack ids."""
        self._store.delete(_LEASES)

    def _write(self, path: str, content: Mapping[str, Any]) -> None:
        self._store.put(path, json.dumps({"format": _FORMAT, **content}).encode())

    def _read(self, path: str) -> dict[str, Any] | None:
        data = self._store.get(path)
        if data is None:
            return None
        with _reading(self._name, path):
            content: dict[str, Any] = json.loads(data)
            if (written := content.pop("format")) != _FORMAT:
                raise SpoolError(
                    f"{path} of the spool {self._name}: format {written!r} is unknown; this "
                    f"version supports {_FORMAT}. Nothing was acknowledged"
                )
        return content


@contextmanager
def _reading(name: str, path: str) -> Iterator[None]:
    """Errors in the block are errors of the file."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpoolError(f"{path} of the spool {name} is damaged: {error!r}") from error
