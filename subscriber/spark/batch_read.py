"""A bounded read: pulled once, read as often as one likes, acknowledged by the caller."""

from __future__ import annotations

import fcntl
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .disk import Disk
from .errors import SpoolError
from .options import READ, BatchOptions
from .segment import SegmentFile
from .session import IngestSession
from .settings import IngestSettings
from .settling import settle
from .spool import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("pullstream.spark")

_FORMAT = 1


class BatchRead:
    """One read after the other of a subscription, each followed by the caller's `ack()`.

        read = BatchRead(subscription="projects/p/subscriptions/s", spoolDir="/data/s")
        read.load(spark).write.parquet(path)
        read.ack()

    The options are those of `spark.read.format("pubsub")`. What a read has pulled is kept in
    `spoolDir`: the DataFrame has the same rows in each of its actions, and so has a later one, of
    another process too, until they are acknowledged or given up. So a job that was cut short
    does its work again on the same rows.

    Nobody extends leases meanwhile. Rows that are acknowledged after `leaseSeconds` (600 by
    default) may have been delivered again; the next read from the same `spoolDir` leaves them out.

    Raises:
        ValueError, TypeError: an option is unknown, missing, or not of its form.
    """

    def __init__(self, **options: str | int | float | bool | Path) -> None:
        self._texts = {name: _text(value) for name, value in options.items()}
        self._options = BatchOptions.of(self._texts, files_are_shared=True)
        self._journal = Journal(self._options.settings)

    def load(self, spark: SparkSession) -> DataFrame:
        """The DataFrame. The messages are pulled when Spark first plans to read it."""
        from .registration import register

        register(spark)
        # Else it would go on to other rows, which the next `ack` would take for stored.
        options = {**self._texts, READ: str(self._journal.content().next)}
        return spark.read.format("pubsub").options(**options).load()

    @property
    def rows(self) -> int:
        """How many rows were pulled and are not acknowledged."""
        return sum(segment.rows for segment in self._journal.content().pending)

    @property
    def is_all(self) -> bool:
        """Whether the last read, acknowledged or not, had all that was there.

        False: it has come to one of its limits, maxMessages, maxBytes or maxSeconds, and there may
        be more; or there was no read.
        """
        return self._journal.content().is_all

    def ack(self) -> int:
        """Acknowledge the rows: whatever was made of them is safe. Returns how many they were.

        Those that the server does not take, within some seconds or because their leases are over,
        may be delivered again; the next read from this `spoolDir` leaves them out.
        """
        with self._journal.locked():
            read = self._journal.content()
            if not read.pending:
                return 0
            end = read.pending[-1].seq
            # First the journal, which is the proof: killed in between, the next read does the rest.
            self._journal.write(read._replace(committed=end, pending=[], is_over=True))
            settle(self._options.settings, end)
        return sum(segment.rows for segment in read.pending)


class Content(NamedTuple):
    """What a journal says of the last read.

    number: of the read, from 1; 0: there was none.
    is_over: whether its rows are acknowledged.
    is_all: whether there was nothing more when they were pulled.
    committed: the number of the last segment that was acknowledged.
    pending: the segments that are not, in order.
    """

    number: int = 0
    is_over: bool = False
    is_all: bool = False
    committed: int = 0
    pending: Sequence[SegmentFile] = ()

    @property
    def next(self) -> int:
        """The number of the read that a new DataFrame is for."""
        return self.number if self.pending else self.number + 1


class Journal:
    """What was pulled by reads and not acknowledged: a file in the spool's folder.

    To the session it is what the checkpoint is for a stream: it says which segments are committed.
    """

    def __init__(self, settings: IngestSettings) -> None:
        self._folder = settings.spool_dir
        self._path = self._folder / "read.json"

    def refuse_stream(self) -> None:
        """Raise SpoolError if the folder is a batch read's: a stream would take it for its own."""
        if self._path.exists():
            raise SpoolError(
                f"the spool {self._folder} belongs to a batch read: give a stream a folder of its "
                "own"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let others wait, such as a second action on the same DataFrame: Spark plans each in a
        process of its own, and one of the two has to pull.

        Raises:
            SpoolError: the folder is a streaming query's.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "read.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._claim()
            yield

    def _claim(self) -> None:
        """Make the folder a batch read's, before anything is pulled into it."""
        if self._path.exists():
            return
        if (self._folder / META).exists():
            raise SpoolError(
                f"the spool {self._folder} belongs to a streaming query: give a batch read a "
                "folder of its own"
            )
        self.write(Content())

    def write(self, read: Content) -> None:
        """Replace the content. Durable when it returns."""
        pending = [
            [one.path.name, one.seq, one.rows, one.batches, one.size] for one in read.pending
        ]
        content = {"format": _FORMAT, **read._asdict(), "pending": pending}
        Disk().write(self._path, json.dumps(content).encode())

    def content(self) -> Content:
        """What was written last.

        Raises:
            SpoolError: the file is damaged, or of another version.
        """
        try:
            content = json.loads(self._path.read_bytes())
            if (written := content.pop("format")) != _FORMAT:
                raise SpoolError(
                    f"{self._path}: format {written!r} is unknown; this version has {_FORMAT}"
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
    """What is to be read: the rows of the last read if they are not acknowledged, else new ones.

    Raises:
        SpoolError: the spool cannot be used, or takes no more; or the DataFrame is over.
        RpcError: the subscription cannot be pulled from.
    """
    settings = options.settings
    journal = Journal(settings)
    with journal.locked():
        last = journal.content()
        if options.read is not None and options.read <= last.number:
            if options.read < last.number or last.is_over:
                raise SpoolError(
                    f"the rows of this DataFrame, from {settings.spool_dir}, were acknowledged, so "
                    "it has no rows any more. BatchRead.load() makes one of the next rows; to work "
                    "longer with rows, store or cache them before ack()"
                )
            return last.pending
        if last.pending:
            return last.pending
        start = last.committed
        with IngestSession(settings) as session:
            session.prepare_available_now()
            # One call: another, from the end of this one on, would say that this one is committed.
            end = session.latest(start)
            is_all = session.is_caught_up
            pulled = session.segments(start, end)
            journal.write(Content(last.number + 1, False, is_all, start, pulled))
        if not is_all:
            _log.warning(
                "the read of %s has come to a limit (maxMessages %d, maxBytes %d, maxSeconds %g): "
                "there may be more, for the next read",
                settings.subscription,
                settings.max_messages_per_trigger,
                settings.max_bytes_per_trigger,
                settings.linger,
            )
        return pulled


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
