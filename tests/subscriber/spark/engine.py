"""Spark's engine in plain Python: the calls of MicroBatchExecution to a source, in order.

A run is an engine on a checkpoint, which outlives it as Spark's logs do. It may be killed between
any two steps. The model of Spark 4.2 and 4.3:

- the first calls of a run: with "available now" the preparation, then the read limit, then the
  initial offset if nothing was planned before, or the partitions of a batch that was planned and
  not committed;
- the initial offset is asked again when the first batch is read;
- `latestOffset` comes when a batch has been committed, and again and again while there is no data;
- a planned batch is in the offset log before the source gets it; `commit` of the batch before
  follows the planning of the next, so that there is none when idle, and none at the end;
- with "available now" a run ends when `latestOffset` says that there is nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

Offset = dict[str, Any]


class Killed(BaseException):
    """The process ends here, without a chance to do anything."""


class Reader(Protocol):
    """A DataSourceStreamReader, as the engine sees it through the source worker."""

    def getDefaultReadLimit(self) -> Any: ...  # noqa: N802

    def prepareForTriggerAvailableNow(self) -> None: ...  # noqa: N802

    def initialOffset(self) -> Offset: ...  # noqa: N802

    def latestOffset(self, start: Offset, limit: Any) -> Offset: ...  # noqa: N802

    def reportLatestOffset(self) -> Any: ...  # noqa: N802

    def partitions(self, start: Offset, end: Offset) -> Sequence[Any]: ...

    def commit(self, end: Offset) -> None: ...


@dataclass
class Checkpoint:
    """The offset log (batch id -> offset as a text) and the commit log of one query."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)


class Sink:
    """Stores the rows of each batch under its id, so that a batch written twice is there once.

    A batch that is written again must be the same, byte for byte.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[pa.RecordBatch]] = {}

    def write(self, batch_id: int, rows: list[pa.RecordBatch]) -> None:
        earlier = self.batches.get(batch_id)
        assert earlier is None or _bytes(earlier) == _bytes(rows), f"batch {batch_id} has changed"
        self.batches[batch_id] = rows

    def column(self, name: str, checkpoint: Checkpoint) -> list[Any]:
        """Return the values of a column in all committed batches, in order."""
        return [
            value
            for batch_id in sorted(checkpoint.commits)
            for rows in self.batches[batch_id]
            for value in rows.column(name).to_pylist()
        ]


class Engine:
    """One run of a query. `calls` has the calls to the reader with their numbers, in order.

    Args:
        read: The rows of one partition, as an executor would read them.
        step: Called with a name before each step. It raises Killed to end the run.
    """

    def __init__(
        self,
        reader: Reader,
        checkpoint: Checkpoint,
        sink: Sink,
        *,
        read: Callable[[Any], Iterator[pa.RecordBatch]],
        step: Callable[[str], None] = lambda name: None,
        available_now: bool = False,
    ) -> None:
        self._reader = reader
        self._checkpoint = checkpoint
        self._sink = sink
        self._read = read
        self._step = step
        self._available_now = available_now
        self.calls: list[str] = []
        self._batch_id = 0
        self._is_planned = False
        # As texts, which is how Spark compares them. None: no commit yet.
        self._committed: str | None = None
        self._available: str | None = None

    def run(self) -> None:
        """Run until there is no more data with "available now", or else until `step` raises."""
        self._start()
        while self.trigger() or not self._available_now:
            pass

    def _start(self) -> None:
        if self._available_now:
            self._ask("prepareForTriggerAvailableNow")
        self._limit = self._ask("getDefaultReadLimit")
        offsets, commits = self._checkpoint.offsets, self._checkpoint.commits
        if offsets:
            self._batch_id = max(offsets)
            self._available = offsets[self._batch_id]
            self._committed = offsets.get(self._batch_id - 1)
            self._is_planned = True
            if self._batch_id in commits:
                self._committed = self._available
                self._batch_id += 1
                self._is_planned = False

    def trigger(self) -> bool:
        """Run one turn of the engine's loop, and return whether there was a batch."""
        if not self._is_planned:
            self._is_planned = self._plan()
        if not self._is_planned:
            return False
        self._run_batch()
        return True

    def _plan(self) -> bool:
        start = self._offset(self._available)
        end = self._ask("latestOffset", start, self._limit)
        self._ask("reportLatestOffset")
        self._available = json.dumps(end)
        if self._available == (self._committed or json.dumps(start)):
            return False
        self._step("offset log")
        self._checkpoint.offsets[self._batch_id] = self._available
        if self._batch_id > 0:
            self._ask("commit", json.loads(self._checkpoint.offsets[self._batch_id - 1]))
        return True

    def _run_batch(self) -> None:
        assert self._available is not None
        start, end = self._offset(self._committed), json.loads(self._available)
        partitions = self._ask("partitions", start, end)
        self._step("read")
        rows = [batch for partition in partitions for batch in self._read(partition)]
        self._step("sink")
        self._sink.write(self._batch_id, rows)
        self._step("commit log")
        self._checkpoint.commits.add(self._batch_id)
        self._committed = self._available
        self._batch_id += 1
        self._is_planned = False

    def _offset(self, text: str | None) -> Offset:
        """Return the offset of a text, or the source's initial offset."""
        offset: Offset = self._ask("initialOffset") if text is None else json.loads(text)
        return offset

    def _ask(self, method: str, *args: Any) -> Any:
        self._step(method)
        self.calls.append(call(method, *args))
        answer = getattr(self._reader, method)(*args)
        self._step(f"{method} answered")
        return answer


def call(method: str, *args: Any) -> str:
    """Return a method and the numbers of its offsets as a line."""
    numbers = [str(each["plan"]) for each in args if isinstance(each, dict)]
    return " ".join([method, *numbers])


def _bytes(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    for batch in batches:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
