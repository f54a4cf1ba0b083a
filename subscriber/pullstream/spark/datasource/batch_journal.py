"""Pulls of batch reads, and the journal of the segments that are not acknowledged yet."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pullstream.spark.errors import SpoolError
from pullstream.spark.session.session import IngestSession
from pullstream.spark.session.settings import IngestSettings
from pullstream.spark.spool.atomic_files import AtomicFiles
from pullstream.spark.spool.segment import SegmentFile
from pullstream.spark.spool.spool import META
from pullstream_protocol.file_lock import FileLock

from .options import BatchOptions

_log = logging.getLogger("pullstream.spark")

_FORMAT = 1


class Content(NamedTuple):
    """State of the last read, from the journal.

    Attributes:
        number: Number of the read, from 1; 0 if there was none.
        is_over: Whether its rows are acknowledged.
        is_all: Whether there were no more messages when the rows were pulled.
        committed: Number of the last acknowledged segment.
        pending: The segments that are not acknowledged, in order.
    """

    number: int = 0
    is_over: bool = False
    is_all: bool = False
    committed: int = 0
    pending: Sequence[SegmentFile] = ()

    @property
    def next(self) -> int:
        """The number of the read to which a new DataFrame belongs."""
        return self.number if self.pending else self.number + 1


class Journal:
    """File in the spool's folder with the segments that were pulled and not acknowledged.

    It serves the session as the checkpoint serves a stream: it says which segments are committed.
    """

    def __init__(self, settings: IngestSettings) -> None:
        self._folder = settings.spool_dir
        self._path = self._folder / "read.json"

    def refuse_stream(self) -> None:
        """Raise SpoolError if the folder belongs to a batch read and so must not serve a stream."""
        if self._path.exists():
            raise SpoolError(
                f"the spool {self._folder} belongs to a batch read; use another folder for the "
                "stream"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock during the block.

        Spark plans each action on a DataFrame in a separate process. If two actions run at the same
        time, one of them pulls and the other waits.

        Raises:
            SpoolError: The folder belongs to a streaming query.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._folder / "read.lock", wait=True)
        try:
            self._claim()
            yield
        finally:
            lock.release()

    def _claim(self) -> None:
        """Mark the folder as used by a batch read, before any message is pulled into it."""
        if self._path.exists():
            return
        if (self._folder / META).exists():
            raise SpoolError(
                f"the spool {self._folder} belongs to a streaming query; use another folder for "
                "the batch read"
            )
        self.write(Content())

    def write(self, read: Content) -> None:
        """Replace the content. Durable when the method returns."""
        pending = [
            [one.path.name, one.seq, one.rows, one.batches, one.size] for one in read.pending
        ]
        content = {"format": _FORMAT, **read._asdict(), "pending": pending}
        AtomicFiles().write(self._path, json.dumps(content).encode())

    def content(self) -> Content:
        """Return the content.

        Raises:
            SpoolError: The file is damaged, or has the format of another version.
        """
        try:
            content = json.loads(self._path.read_bytes())
            if (written := content.pop("format")) != _FORMAT:
                raise SpoolError(
                    f"{self._path}: format {written!r} is unknown; this version supports {_FORMAT}"
                )
            pending = [
                SegmentFile(self._folder / name, *numbers)
                for name, *numbers in content.pop("pending")
            ]
            return Content(**content, pending=pending)
        except FileNotFoundError:
            return Content()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpoolError(f"{self._path} is damaged: {error!r}") from error


def pull(options: BatchOptions) -> Sequence[SegmentFile]:
    """Return the unacknowledged rows of the last read, or pull new ones.

    Raises:
        SpoolError: The spool cannot be used or has no room, or the rows of the DataFrame are
            already acknowledged.
        RpcError: The subscription cannot be pulled from.
    """
    settings = options.settings
    journal = Journal(settings)
    with journal.locked():
        last = journal.content()
        if options.read is not None and options.read <= last.number:
            if options.read < last.number or last.is_over:
                raise SpoolError(
                    f"the rows of this DataFrame, from {settings.spool_dir}, were acknowledged, so "
                    "it is empty now. Call BatchRead.load() for the next rows. To use rows after "
                    "ack(), store or cache them before"
                )
            return last.pending
        if last.pending:
            return last.pending
        start = last.committed
        with IngestSession(settings) as session:
            session.prepare_available_now()
            # Only one call: a second one, from this end on, would declare the first batch
            # committed.
            end = session.latest(start)
            is_all = session.is_caught_up
            pulled = session.segments(start, end)
            journal.write(Content(last.number + 1, False, is_all, start, pulled))
        if not is_all:
            _log.warning(
                "the read of %s has reached a limit (maxMessages %d, maxBytes %d, maxSeconds %g); "
                "there may be more messages for the next read",
                settings.subscription,
                settings.max_messages_per_trigger,
                settings.max_bytes_per_trigger,
                settings.linger,
            )
        return pulled
