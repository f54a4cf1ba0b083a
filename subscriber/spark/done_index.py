"""The done index: which messages are committed, so that a redelivery is not taken for a new one."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from protocol.clock import Clock

from .disk import Disk
from .errors import SpoolError
from .keys import Key, keys_of
from .settings import IngestSettings

_NAME = re.compile(r"done-(\d{20})\.ids")

# Files in which the index is kept, roughly. The oldest is forgotten as a whole, so more of them
# keep closer to the limits.
_FILES = 8


@dataclass(slots=True)
class _Generation:
    """What one file says, which is forgotten as a whole.

    segments: the numbers of its segments.
    oldest, newest: wall times of its first and last line.
    is_torn: its last line was cut short by a crash, so nothing may be appended.
    """

    path: Path
    oldest: float
    newest: float
    keys: list[Key] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    is_torn: bool = False


class DoneIndex:
    """Ids of committed messages, in memory and in a journal.

    Each line of the journal is one segment: `{"seq": n, "time": t, "ids": "1\\n2\\n3"}`, or with a
    list of the ids if one of them has a line break. What it says is forgotten when it is older than
    the settings' `dedup_window`, or when there are `dedup_messages` newer ids, whichever comes
    first.

    One thread loads and adds; whether a message is here may be asked by another.
    """

    def __init__(self, settings: IngestSettings, disk: Disk, clock: Clock) -> None:
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
        """Whether none of these is here."""
        return self._keys.isdisjoint(keys)

    @property
    def newest(self) -> int:
        """The highest number of a segment that is committed; 0: none is known."""
        return self._newest

    def knows(self, seq: int) -> bool:
        """Whether a segment is committed; of one that is forgotten that is not known any more."""
        return any(seq in generation.segments for generation in self._generations)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(generation.path.stat().st_size for generation in self._generations)

    def load(self) -> None:
        """Read the journal.

        Raises:
            SpoolError: a file of it is damaged.
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
        """The segment `seq` is committed. Durable when it returns.

        Raises:
            OSError: the disk is full, say; then nothing has changed.
        """
        now = self._clock.now()
        new = self._new(seq, keys)
        line = json.dumps({"seq": seq, "time": now, "ids": _text(new)}, separators=(",", ":"))
        generation = self._open(now)
        self._disk.append(generation.path, line.encode() + b"\n")
        self._remember(seq, generation, now, new)
        self._forget()

    def _new(self, seq: int, keys: Iterable[Key]) -> list[Key]:
        """Without those that were noted before. No message gets into a segment that is done; but a
        segment may be noted twice, with a crash in between."""
        if seq > self._newest:
            return list(keys)
        return [key for key in keys if key not in self._keys]

    def _open(self, now: float) -> _Generation:
        """The file for the next line: the last one, or another when that has its share."""
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
        """Drop the oldest files while what they say is too old, or is more than there may be."""
        limit = self._clock.now() - self._window
        while len(self._generations) > 1:
            oldest = self._generations[0]
            if oldest.newest >= limit and len(self._keys) - len(oldest.keys) < self._capacity:
                return
            self._disk.delete(oldest.path)
            self._generations.popleft()
            self._keys.difference_update(oldest.keys)

    def _read(self, path: Path) -> None:
        """Take in one file. Its last line may be cut short: that segment is not done then."""
        *lines, rest = path.read_bytes().split(b"\n")
        generation = None
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                seq, time, ids = int(entry["seq"]), float(entry["time"]), _ids(entry["ids"])
            except (ValueError, KeyError, TypeError) as error:
                raise SpoolError(
                    f"{path}, line {number}, is damaged ({error}). Messages that it names are "
                    "committed; remove the file to go on, and they may come twice"
                ) from error
            generation = generation or _Generation(path, time, time)
            self._remember(seq, generation, time, self._new(seq, keys_of(ids)))
        if generation is None:
            self._disk.delete(path)
        else:
            generation.is_torn = bool(rest)


def _text(keys: list[Key]) -> str | list[str]:
    """The ids as one text, which JSON writes in one step, if that can be read again."""
    ids = list(map(str, keys))
    text = "\n".join(ids)
    return text if text.count("\n") == len(ids) - 1 else ids


def _ids(text: str | list[str]) -> list[str]:
    return text.split("\n") if isinstance(text, str) else text
