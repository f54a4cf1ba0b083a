"""The done index: ids of committed messages, by which redeliveries are recognized."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pullstream.spark.errors import SpoolError
from pullstream.spark.session.settings import IngestSettings
from pullstream_protocol.clock import Clock

from .atomic_files import AtomicFiles
from .message_keys import Key, keys_of

_NAME = re.compile(r"done-(\d{20})\.ids")

# Approximate number of files in the index. The oldest file is dropped as a whole, so more files
# keep the index closer to its limits.
_FILES = 8


@dataclass(slots=True)
class _Generation:
    """The contents of one file, which is dropped as a whole.

    Attributes:
        path: The file.
        oldest: Wall time of the first line.
        newest: Wall time of the last line.
        keys: Keys of the messages.
        segments: Numbers of the segments.
        is_torn: Whether a crash has truncated the last line, so that nothing may be appended.
    """

    path: Path
    oldest: float
    newest: float
    keys: list[Key] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    is_torn: bool = False


class DoneIndex:
    r"""Ids of committed messages, in memory and in a journal.

    Each line of the journal is one segment: `{"seq": n, "time": t, "ids": "1\n2\n3"}`, or with a
    list of the ids if one of them contains a line break. Entries are dropped when they are older
    than the settings' `dedup_window`, or when there are `dedup_messages` newer ids, whichever
    comes first.

    One thread loads and adds. Another thread may look up messages at the same time.
    """

    def __init__(self, settings: IngestSettings, disk: AtomicFiles, clock: Clock) -> None:
        self._folder = settings.spool_dir
        self._window = settings.dedup_window
        self._capacity = settings.dedup_messages
        self._disk = disk
        self._clock = clock
        self._keys: set[Key] = set()
        self._generations: deque[_Generation] = deque()
        self._files = 0
        self._newest = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def isdisjoint(self, keys: Iterable[Key]) -> bool:
        """Return whether none of these keys is in the index."""
        return self._keys.isdisjoint(keys)

    @property
    def newest(self) -> int:
        """The highest number of a committed segment; 0 if none is known."""
        return self._newest

    def knows(self, seq: int) -> bool:
        """Return whether a segment is committed; False for a segment that is already dropped."""
        return any(seq in generation.segments for generation in self._generations)

    @property
    def size(self) -> int:
        """Size on disk in bytes."""
        return sum(generation.path.stat().st_size for generation in self._generations)

    def load(self) -> None:
        """Read the journal.

        Raises:
            SpoolError: A file is damaged.
        """
        self._keys.clear()
        self._generations.clear()
        self._newest = 0
        for path in sorted(self._folder.iterdir()):
            if match := _NAME.fullmatch(path.name):
                self._files = int(match[1])
                self._read(path)
        self._forget()

    def add(self, seq: int, keys: Iterable[Key]) -> None:
        """Record the segment `seq` as committed. Durable when the method returns.

        Args:
            seq: Number of the segment.
            keys: Keys of its messages.

        Raises:
            OSError: The journal cannot be written, for example because the disk is full; nothing
                has changed.
        """
        now = self._clock.now()
        new = self._new(seq, keys)
        line = json.dumps({"seq": seq, "time": now, "ids": _text(new)}, separators=(",", ":"))
        generation = self._open(now)
        self._disk.append(generation.path, line.encode() + b"\n")
        self._remember(seq, generation, now, new)
        self._forget()

    def _new(self, seq: int, keys: Iterable[Key]) -> list[Key]:
        """Return the keys that are not recorded yet.

        No message of a done segment gets into another segment. But a segment may be recorded twice,
        with a crash in between.
        """
        if seq > self._newest:
            return list(keys)
        return [key for key in keys if key not in self._keys]

    def _open(self, now: float) -> _Generation:
        """Return the file for the next line: the last one, or a new one when that is full."""
        if self._generations:
            last = self._generations[-1]
            is_young = now - last.oldest < self._window / _FILES
            if is_young and len(last.keys) < self._capacity / _FILES and not last.is_torn:
                return last
        self._files += 1
        return _Generation(self._folder / f"done-{self._files:020}.ids", now, now)

    def _remember(self, seq: int, generation: _Generation, time: float, keys: list[Key]) -> None:
        if not self._generations or self._generations[-1] is not generation:
            self._generations.append(generation)
        generation.newest = time
        generation.keys += keys
        generation.segments.append(seq)
        self._keys.update(keys)
        self._newest = max(self._newest, seq)

    def _forget(self) -> None:
        """Drop the oldest files while their contents are too old or exceed the capacity."""
        limit = self._clock.now() - self._window
        while len(self._generations) > 1:
            oldest = self._generations[0]
            if oldest.newest >= limit and len(self._keys) - len(oldest.keys) < self._capacity:
                return
            self._disk.delete(oldest.path)
            self._generations.popleft()
            self._keys.difference_update(oldest.keys)

    def _read(self, path: Path) -> None:
        """Read one file. If its last line is truncated, that segment does not count as done."""
        *lines, rest = path.read_bytes().split(b"\n")
        generation = None
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                seq, time, ids = int(entry["seq"]), float(entry["time"]), _ids(entry["ids"])
            except (ValueError, KeyError, TypeError) as error:
                raise SpoolError(
                    f"{path}, line {number}, is damaged ({error}). The file lists committed "
                    "messages. To continue, delete the file; redeliveries of these messages "
                    "are then not recognized as duplicates"
                ) from error
            generation = generation or _Generation(path, time, time)
            self._remember(seq, generation, time, self._new(seq, keys_of(ids)))
        if generation is None:
            self._disk.delete(path)
        else:
            generation.is_torn = bool(rest)


def _text(keys: list[Key]) -> str | list[str]:
    """Return the ids as one text, which JSON writes in one step, if that is unambiguous."""
    ids = list(map(str, keys))
    text = "\n".join(ids)
    return text if text.count("\n") == len(ids) - 1 else ids


def _ids(text: str | list[str]) -> list[str]:
    return text.split("\n") if isinstance(text, str) else text
