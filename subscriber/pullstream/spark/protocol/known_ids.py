"""Ids of committed messages, by which redeliveries are recognized, in sorted files.

A committed plan adds a file with its ids. Files of similar size are merged, so there are few. A
file is never changed, and is forgotten as a whole. Files remain open: on a disk they take hardly
any memory, from a bucket 8 bytes for an id that is a number.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.spark.stores import StoredFile

from .layout import KNOWN
from .message_keys import keys_of
from .storage import Delete, List, Open, Steps, put

_NAME = re.compile(rf"{KNOWN}/(\d{{12}})-(\d{{12}})\.(number|text)\.arrow")

# Rows of an Arrow batch. A batch is read only if a new id lies between its first and last one.
_BATCH = 65_536

# This many files of a similar number of ids are merged into one.
_MERGED = 8

# No file is merged to more than this part of the limits, so that forgetting a file is no great
# loss.
_SHARES = 8

# Numbers of up to 63 bits; other ids are texts.
_BIGGEST = 2**63 - 1

_TIME = b"time"


@dataclass(slots=True)
class _File:
    """An open file.

    Attributes:
        path: The file.
        first: First plan whose ids it has.
        last: Last plan.
        count: Number of ids.
        time: When the last plan was committed, in the uptime of coordinators.
        bounds: The lowest and highest key of each Arrow batch.
    """

    path: str
    first: int
    last: int
    is_text: bool
    reader: pa.ipc.RecordBatchFileReader
    count: int
    time: float
    bounds: Sequence[tuple[Any, Any]]

    def find(self, keys: Sequence[Any]) -> Iterator[Any]:
        """Yield the sorted keys that the file has."""
        for number, (low, high) in enumerate(self.bounds):
            some = keys[bisect_left(keys, low) : bisect_right(keys, high)]
            if some:
                yield from _found(self.reader.get_batch(number).column(0), some, self.is_text)


class KnownIds:
    """Ids of the messages of committed plans. One thread uses it.

    The age of an id is the time for which coordinators have run since. So no clock that somebody
    sets, and no pause of the query, makes an id older than it is.

    Args:
        window: Ids are kept for this time, in seconds.
        capacity: Number of the newest ids that are kept; older ones are forgotten before the end
            of the window.
        elapsed: A clock that no one sets, in seconds.
    """

    def __init__(self, window: float, capacity: int, elapsed: Callable[[], float]) -> None:
        self._window = window
        self._capacity = capacity
        self._elapsed = elapsed
        # The uptime of earlier coordinators, minus the time of the clock at the start.
        self._offset: float | None = None
        self._files: list[_File] = []
        # Number of ids that were forgotten before the end of the window.
        self.forgotten_early: int = 0

    def __len__(self) -> int:
        return sum(file.count for file in self._files)

    @property
    def newest(self) -> int:
        """The last plan whose ids are here; 0 if there is none."""
        return max((file.last for file in self._files if not file.is_text), default=0)

    @property
    def oldest_age(self) -> float:
        """The time for which all ids are here, in seconds."""
        return self.uptime() - min((file.time for file in self._files), default=self.uptime())

    def uptime(self) -> float:
        """Return the time for which coordinators have run in this folder, in seconds."""
        return self._elapsed() + (self._offset or 0.0)

    def load(self) -> Steps[None]:
        """Open the files of the storage that are not open."""
        listed: list[StoredFile] = yield List(KNOWN)
        known = {file.path for file in self._files}
        for file in listed:
            if file.path not in known and (match := _NAME.fullmatch(file.path)):
                self._files.append(_opened(match, (yield Open(file.path))))
        if self._offset is None:
            newest = max((file.time for file in self._files), default=0.0)
            self._offset = newest - self._elapsed()
        # A merge that has not ended leaves files whose ids are in another file as well.
        inside = [one for one in self._files if any(_covers(other, one) for other in self._files)]
        yield from self._remove(inside)
        self._files.sort(key=lambda file: file.last)

    def find(self, ids: Iterable[str], long_ago: float) -> tuple[set[str], set[str]]:
        """Look up ids in the open files.

        Args:
            ids: The ids.
            long_ago: A duration in seconds.

        Returns:
            The known ids, and a subset of them, known for this time.
        """
        numbers, texts = _divided(ids)
        found: set[str] = set()
        old: set[str] = set()
        for file in self._files:
            some = {str(key) for key in file.find(texts if file.is_text else numbers)} - found
            found |= some
            if self.uptime() - file.time > long_ago:
                old |= some
        return found, old

    def add(self, plan: int, ids: Iterable[str]) -> Steps[None]:
        """Record the ids of a committed plan. Durable at the end of the steps."""
        now = self.uptime()
        numbers, texts = _divided(ids)
        if texts:
            yield from self._write(plan, plan, pa.array(texts, pa.string()), now)
        # The file with the numbers comes last and also if there are none: it says that all ids of
        # the plan are here.
        yield from self._write(plan, plan, pa.array(numbers, pa.int64()), now)

    def merge(self) -> Steps[None]:
        """Merge files of a similar number of ids."""
        for is_text in (False, True):
            files = [file for file in self._files if file.is_text is is_text]
            for place in range(len(files) - _MERGED + 1):
                some = files[place : place + _MERGED]
                count = sum(file.count for file in some)
                largest = max(file.count for file in some)
                is_small = count <= self._capacity / _SHARES
                is_short = some[-1].time - some[0].time <= self._window / _SHARES
                if is_small and is_short and largest * 2 <= count + _MERGED:
                    columns = [_column(file) for file in some]
                    merged = pa.concat_arrays(columns)
                    ids = merged.take(pc.sort_indices(merged))
                    time = max(file.time for file in some)
                    first = min(file.first for file in some)
                    yield from self._write(first, some[-1].last, ids, time)
                    yield from self._remove(some)
                    return

    def forget(self, until: float) -> Steps[None]:
        """Delete files that are older than the window, or for which there is no room.

        Args:
            until: The uptime at which all segments that are in no plan were written or later. They
                may have redeliveries.
        """
        while len(self._files) > 1:
            oldest = min(self._files, key=lambda file: file.time)
            is_old = oldest.time + self._window < until
            is_too_much = len(self) - oldest.count >= self._capacity
            if oldest.last == self.newest or not (is_old or is_too_much):
                return
            self.forgotten_early += 0 if is_old else oldest.count
            yield from self._remove([oldest])

    def _write(self, first: int, last: int, ids: pa.Array, time: float) -> Steps[None]:
        kind = "text" if ids.type == pa.string() else "number"
        path = f"{KNOWN}/{first:012}-{last:012}.{kind}.arrow"
        schema = pa.schema([pa.field("message_id", ids.type)], {_TIME: repr(time).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            for start in range(0, len(ids), _BATCH):
                writer.write_batch(pa.record_batch([ids.slice(start, _BATCH)], schema=schema))
        # Another writer's file with this name has the same ids.
        yield from put(path, sink.getvalue().to_pybytes())
        match = _NAME.fullmatch(path)
        assert match is not None
        if path not in (file.path for file in self._files):
            self._files.append(_opened(match, (yield Open(path))))
        self._files.sort(key=lambda file: file.last)

    def _remove(self, files: Sequence[_File]) -> Steps[None]:
        if files:
            self._files = [file for file in self._files if file not in files]
            yield Delete([file.path for file in files])


def _opened(match: re.Match[str], file: pa.NativeFile) -> _File:
    reader = pa.ipc.open_file(file)
    count, bounds = 0, []
    for number in range(reader.num_record_batches):
        column = reader.get_batch(number).column(0)
        count += len(column)
        bounds.append((column[0].as_py(), column[-1].as_py()))
    time = float(reader.schema.metadata[_TIME])
    is_text = match[3] == "text"
    return _File(match[0], int(match[1]), int(match[2]), is_text, reader, count, time, bounds)


def _covers(one: _File, other: _File) -> bool:
    return (
        one is not other
        and one.is_text is other.is_text
        and one.first <= other.first
        and other.last <= one.last
    )


def _divided(ids: Iterable[str]) -> tuple[list[int], list[str]]:
    """Return the ids that are numbers, and the others, both sorted."""
    keys: list[Any] = keys_of(list(ids))
    try:
        # Texts and numbers cannot be compared with each other.
        highest = max(keys, default=0)
    except TypeError:
        highest = ""
    if isinstance(highest, int) and highest <= _BIGGEST:
        # The normal case: all are numbers, and nearly in order.
        return sorted(keys), []
    numbers = [key for key in keys if isinstance(key, int) and key <= _BIGGEST]
    texts = [str(key) for key in keys if isinstance(key, str) or key > _BIGGEST]
    return sorted(numbers), sorted(texts)


def _column(file: _File) -> pa.Array:
    return file.reader.read_all().column(0).combine_chunks()


def _found(column: pa.Array, keys: Sequence[Any], is_text: bool) -> Iterator[Any]:
    """Yield the keys that a sorted column has."""
    if is_text or len(keys) * 50 > len(column):
        mask = pc.is_in(column, value_set=pa.array(keys, column.type))
        yield from column.filter(mask).to_pylist()
        return
    # Few keys: no pass over all rows.
    values = memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]
    for key in keys:
        place = bisect_left(values, key)
        if place < len(values) and values[place] == key:
            yield key
