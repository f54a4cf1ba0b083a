"""A bounded read: pulled once, read as often as one likes, acknowledged by the caller."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .disk import Disk
from .errors import SpoolError
from .options import BatchOptions
from .segment import SegmentFile
from .session import IngestSession
from .settings import IngestSettings
from .settling import settle
from .spool import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        return spark.read.format("pubsub").options(**self._texts).load()

    @property
    def rows(self) -> int:
        """How many rows were pulled and are not acknowledged."""
        return sum(segment.rows for segment in self._journal.pending())

    def ack(self) -> int:
        """Acknowledge the rows: whatever was made of them is safe. Returns how many they were.

        Those that the server does not take, within some seconds or because their leases are over,
        may be delivered again; the next read from this `spoolDir` leaves them out.
        """
        with self._journal.locked():
            pending = self._journal.pending()
            if not pending:
                return 0
            end = pending[-1].seq
            # First the journal, which is the proof: killed in between, the next read does the rest.
            self._journal.write(end, [])
            settle(self._options.settings, end)
        return sum(segment.rows for segment in pending)


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

    def pending(self) -> list[SegmentFile]:
        """The segments to read, in order."""
        return self._content()[1]

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
        self.write(0, [])

    @property
    def committed(self) -> int:
        """The number of the last segment that was acknowledged."""
        return self._content()[0]

    def write(self, committed: int, pending: Sequence[SegmentFile]) -> None:
        """Replace the content. Durable when it returns."""
        content = {
            "format": _FORMAT,
            "committed": committed,
            "pending": [
                [segment.path.name, segment.seq, segment.rows, segment.batches, segment.size]
                for segment in pending
            ],
        }
        Disk().write(self._path, json.dumps(content).encode())

    def _content(self) -> tuple[int, list[SegmentFile]]:
        try:
            content = json.loads(self._path.read_bytes())
            if content["format"] != _FORMAT:
                raise SpoolError(
                    f"{self._path}: format {content['format']!r} is unknown; this version has "
                    f"{_FORMAT}"
                )
            pending = [
                SegmentFile(self._folder / name, *numbers) for name, *numbers in content["pending"]
            ]
            return content["committed"], pending
        except FileNotFoundError:
            return 0, []
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolError(f"{self._path} is damaged: {error}") from error


def pull(options: BatchOptions) -> list[SegmentFile]:
    """What is to be read: the rows of the last read if they are not acknowledged, else new ones.

    Raises:
        SpoolError: the spool cannot be used, or takes no more.
        RpcError: the subscription cannot be pulled from.
    """
    journal = Journal(options.settings)
    with journal.locked():
        if pending := journal.pending():
            return pending
        start = journal.committed
        with IngestSession(options.settings) as session:
            session.prepare_available_now()
            # One call: another, from the end of this one on, would say that this one is committed.
            pulled = session.segments(start, session.latest(start))
            journal.write(start, pulled)
        return pulled


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
