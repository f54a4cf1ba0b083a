"""The parts of an ingestion job that run on the server of Spark Connect.

State, spool and tables belong to the server, so the code that reads and writes them runs in Python
processes there. Both classes are pickled, with nothing but the configuration.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pullstream
from pullstream.spark.errors import FailureCause, caused_by, ingest_error
from pullstream.spark.local.java_error import reason_of
from pullstream.spark.store_errors import is_of_storage
from pullstream.spark.stores import LocalFolder

from .batch_handler import BatchHandler
from .config import IngestJob
from .decoding import Decoding
from .preparation import Rows, mark_last, prepared, source_settings, tables_for
from .query_run import FilesHere
from .report import IngestReport, Phase
from .state import IngestState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Files in the state folder: the results of a run's handler, the request to end, and the contents
# that the looks have read from the spool.
_NOTE, _STOP, _SEEN = "batches-", "stop-", "seen-"


@dataclass(frozen=True)
class ServerJob:
    """A job whose state and tables are on this machine; see `ServerObject`.

    Attributes:
        job: The configuration.
        rows: The columns that Spark has found.
        run: Id of the run.
    """

    job: IngestJob
    rows: Rows
    run: str

    @property
    def state(self) -> IngestState:
        """The state, without its lock."""
        folder = self.job.state_folder.absolute()
        return IngestState(folder, self.run, self.job.identity, self.job.spool_store())

    def prepare(self, waited: float, version: str) -> dict[str, Any]:
        """Check the job, open its tables, and note the run in the state.

        Args:
            waited: Number of seconds for which the subscription's server was waited for before.
            version: The client's version of pullstream.

        Returns:
            The `offset` that is committed, the `server`, and the tables `to` and `badTo`. If the
            server does not answer, the `outage` and the `server`.
        """
        if version != pullstream.__version__:
            raise ingest_error(
                f"the server of Spark Connect has pullstream {pullstream.__version__}, and this is "
                f"{version}; install the same version on both sides",
                FailureCause.SPARK,
            )
        stop = threading.Event()
        outages: list[dict[str, Any]] = []

        def watch(report: IngestReport) -> None:
            if report.outage is not None:
                outages.append({"outage": report.outage, "server": report.server})
                # One attempt. The client waits, because it shows the outage.
                stop.set()

        with prepared(self.job, stop, watch, rows=self.rows, waited=waited, run=self.run) as ready:
            if ready is None:
                return outages[0]
            folder = ready.state.folder
            for kind in (_NOTE, _STOP, _SEEN):
                for path in folder.glob(f"{kind}*"):
                    path.unlink(missing_ok=True)
            with caused_by(FailureCause.STATE):
                offset = ready.begin(None)
            target, bad = ready.opened
            return {
                "offset": offset,
                "server": ready.server,
                "to": target.place,
                "badTo": None if bad is None else bad.place,
            }

    def look(self, stop: bool, offset: int) -> dict[str, Any]:
        """Return the handler's note and the state of the files.

        Args:
            stop: Whether the handler shall start no more batches.
            offset: The source's offset before the first batch of this run.
        """
        state = self.state
        folder = LocalFolder(state.folder)
        if stop:
            folder.put(f"{_STOP}{self.run}", b"")
        note = json.loads(folder.get(f"{_NOTE}{self.run}") or b"{}")
        # Each look runs in a new process.
        seen = folder.get(f"{_SEEN}{self.run}")
        files = FilesHere(state, seen)
        try:
            segments = files.segments(note.get("offset", offset))
            if files.seen() != seen:
                folder.put(f"{_SEEN}{self.run}", files.seen())
        except Exception as error:
            if not is_of_storage(error):
                raise
            # The source reports a spool that cannot be read.
            segments = []
        return {
            "note": note,
            "segments": segments,
            "outage": files.outage(),
            "committed": files.committed(),
            "isReplaced": state.is_replaced,
        }

    def mark_last(self) -> None:
        """Mark the last batches as committed; see `preparation.mark_last`."""
        mark_last(self.state.folder, source_settings(self.job))

    def handler(self, decoding: Decoding) -> BatchHandler:
        """Return the handler of batches, with its tables open."""
        tables = tables_for(self.job, self.rows)
        tables.open(None, self.rows)
        return BatchHandler(decoding, *tables, name=self.state.batch)


class ServerBatches:
    """The function of the query, which Spark Connect calls in one process until the query ends.

    After each batch it notes its results in the state folder.

    Args:
        server: The job.
        decoding: Decoding of the messages. Its columns are made in the process that uses them.
        offset: The source's offset that is committed at the start.
    """

    def __init__(self, server: ServerJob, decoding: Decoding, offset: int) -> None:
        self._server = server
        self._decoding = decoding
        self._offset = offset
        self._handler: BatchHandler | None = None

    def __call__(self, messages: DataFrame, number: int) -> None:
        """Write a batch, unless the job is ending or a later run has begun."""
        state = self._server.state
        folder = LocalFolder(state.folder)
        if self._handler is None:
            self._handler = self._server.handler(self._decoding)
            self._handler.offset = self._offset
        handler, run = self._handler, self._server.run
        # The note comes before the look, as the client's file comes before its look at the note.
        folder.put(f"{_NOTE}{run}", note_of(handler, Phase.WRITING))
        # The next run stops this query only when it starts its own.
        if folder.get(f"{_STOP}{run}") is not None or state.is_replaced:
            handler.close()
        try:
            handler(messages, number)
        finally:
            folder.put(f"{_NOTE}{run}", note_of(handler, handler.phase))


def note_of(handler: BatchHandler, phase: Phase) -> bytes:
    """Return the results of a handler as JSON."""
    failure = handler.failure
    note: Mapping[str, Any] = {
        "totals": asdict(handler.totals),
        "reasons": handler.reasons,
        "unknown": handler.unknown,
        "phase": phase.name,
        "offset": handler.offset,
        "written": handler.written,
        "refused": handler.refused,
        "failure": None if failure is None else reason_of(failure),
    }
    return json.dumps(note).encode()
