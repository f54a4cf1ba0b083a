"""Names and formats of the files of a spool. docs/spark-format.md describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pyarrow as pa

from pullstream.spark.errors import DamagedFile, MissingSegment, SpoolError
from pullstream.spark.stores import StoredFile

from .acknowledge import Acknowledge
from .encoding import encode

FORMAT = 1

# The folders. Ids of committed messages are in KNOWN.
OWNERS, SEGMENTS, MANIFESTS, PLANS, MARKS, KNOWN, SKIPS = (
    *("owner", "seg", "man", "plan", "mark"),
    *("known", "skip"),
)

_NUMBER = re.compile(r"(?:owner|plan|mark)/(\d{12})\.json")
_OF_RECEIVER = re.compile(r"(?:seg|man)/([0-9a-z]{1,64})/(\d{12})\.(?:arrow|json)")
_SKIP = re.compile(rf"{SKIPS}/(\d{{12}})-([0-9a-z]{{1,64}})-(\d{{12}})\.json")
_HEADER = b"pullstream"


def numbered(folder: str, number: int) -> str:
    """Return the path of an owner, a plan or a mark."""
    return f"{folder}/{number:012}.json"


def numbers_of(files: Iterable[StoredFile]) -> dict[int, StoredFile]:
    """Return the owners, plans or marks of a list by their numbers; other files are ignored."""
    found = ((_NUMBER.fullmatch(file.path), file) for file in files)
    return {int(match[1]): file for match, file in found if match}


class Segment(NamedTuple):
    """The name of a segment: its receiver, and its number from 1. Receivers leave no gaps."""

    receiver: str
    number: int

    @property
    def path(self) -> str:
        """The file with the rows."""
        return f"{SEGMENTS}/{self.receiver}/{self.number:012}.arrow"

    @property
    def manifest(self) -> str:
        """The manifest, or the tombstone in its place."""
        return f"{MANIFESTS}/{self.receiver}/{self.number:012}.json"

    def __str__(self) -> str:
        return f"{self.receiver}/{self.number}"

    @classmethod
    def parse(cls, name: str) -> Segment:
        """Return the segment of a text: its `str`, or the path of its file.

        Raises:
            ValueError: The text has another form.
        """
        match = re.fullmatch(r"(?:seg/)?([0-9a-z]{1,64})/(\d{1,12})(?:\.arrow)?", name)
        if match is None or not int(match[2]):
            raise ValueError(f"{name!r} is no segment; it must have the form RECEIVER/NUMBER")
        return cls(match[1], int(match[2]))

    @classmethod
    def of(cls, value: Any) -> Segment:
        """Return the segment of a value in a file; the name must not lead out of the folder."""
        receiver, number = value
        if not re.fullmatch("[0-9a-z]{1,64}", receiver) or not 0 < number < 10**12:
            raise ValueError(f"{value!r} is no name of a segment")
        return cls(receiver, number)


def segments_of(files: Iterable[StoredFile]) -> dict[Segment, StoredFile]:
    """Return the segments of a list of segments or manifests; other files are ignored."""
    found = ((_OF_RECEIVER.fullmatch(file.path), file) for file in files)
    return {Segment(match[1], int(match[2])): file for match, file in found if match}


def skip_path(plan: int, segment: Segment) -> str:
    """Return the path of the decision to leave a segment out of a plan."""
    return f"{SKIPS}/{plan:012}-{segment.receiver}-{segment.number:012}.json"


def skips_of(files: Iterable[StoredFile]) -> list[tuple[int, Segment]]:
    """Return the plan and segment of each decision of a list."""
    found = (_SKIP.fullmatch(file.path) for file in files)
    return [(int(match[1]), Segment(match[2], int(match[3]))) for match in found if match]


# ---- texts ---------------------------------------------------------------------------------------


def text(nonce: str, **content: Any) -> bytes:
    """Return the content of a file: a JSON object with the format and its writer's nonce."""
    return json.dumps({"format": FORMAT, "nonce": nonce, **content}, separators=(",", ":")).encode()


@contextmanager
def _parsed(path: str, data: bytes | None) -> Iterator[dict[str, Any]]:
    """Provide the object of a file; errors in the block are errors of the file."""
    try:
        content = json.loads(data or b"")
        if (written := content["format"]) != FORMAT:
            raise SpoolError(
                f"{path}: format {written!r} is unknown; this version supports {FORMAT}"
            )
        yield content
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        state = "is missing" if data is None else f"is damaged ({error!r})"
        raise DamagedFile(f"{path} {state}. Nothing was acknowledged because of it") from error


class Owner(NamedTuple):
    """The right to plan. Owner 0 founds the folder, and owns nothing.

    Attributes:
        number: Number of the owner; the highest one has the right.
        subscription: The subscription of the folder.
        chain: Name of the chain of plans; empty for owner 0.
        after: The chain's plans follow this number.
        nonce: Nonce of the writer.
    """

    number: int
    subscription: str
    chain: str
    after: int
    nonce: str

    def text(self) -> bytes:
        """Return the content of the file."""
        return text(self.nonce, subscription=self.subscription, chain=self.chain, after=self.after)

    @classmethod
    def read(cls, number: int, data: bytes | None) -> Owner:
        """Return the owner of a file."""
        with _parsed(numbered(OWNERS, number), data) as found:
            return cls(
                number, found["subscription"], found["chain"], int(found["after"]), found["nonce"]
            )


class Manifest(NamedTuple):
    """The proof that a segment is complete, or a tombstone: the proof that it never will be.

    Attributes:
        ids: The message ids in the order of the rows. None: this is a tombstone.
        size: Size of the segment in bytes.
        acknowledge: When the messages are acknowledged.
        oldest: The earliest publish time, in seconds since the epoch; None without messages.
        attempts: The highest delivery attempt; 0 if the server does not count attempts.
    """

    segment: Segment
    ids: Sequence[str] | None
    size: int
    acknowledge: Acknowledge = Acknowledge.COMMITTED
    oldest: float | None = None
    attempts: int = 0

    def text(self, nonce: str) -> bytes:
        """Return the content of the file."""
        if self.ids is None:
            return text(nonce, tombstone=True)
        return text(
            nonce,
            rows=len(self.ids),
            size=self.size,
            acknowledge=self.acknowledge.value,
            oldest=self.oldest,
            attempts=self.attempts,
            ids=self.ids,
        )

    @classmethod
    def if_whole(cls, segment: Segment, data: bytes | None) -> Manifest | None:
        """Return the manifest of a file; None if it is missing or damaged."""
        with suppress(DamagedFile):
            return cls.read(segment, data)
        return None

    @classmethod
    def read(cls, segment: Segment, data: bytes | None) -> Manifest:
        """Return the manifest of a file."""
        with _parsed(segment.manifest, data) as found:
            if found.get("tombstone"):
                return cls(segment, None, 0)
            ids, rows = found["ids"], found["rows"]
            if len(ids) != rows:
                raise ValueError(f"{len(ids)} ids for {rows} rows")
            acknowledge = Acknowledge(found["acknowledge"])
            # Absent in manifests of earlier versions.
            oldest, attempts = found.get("oldest"), int(found.get("attempts", 0))
            oldest = None if oldest is None else float(oldest)
            return cls(segment, ids, int(found["size"]), acknowledge, oldest, attempts)


class Part(NamedTuple):
    """A segment of a plan.

    Attributes:
        segment: The segment.
        rows: Number of its rows.
        left_out: Numbers of the rows, from 0, that the batch does not have, because their messages
            are known.
    """

    segment: Segment
    rows: int
    left_out: Sequence[int]

    @property
    def taken(self) -> int:
        """Number of rows that the batch has from this segment. If 0, it is not read."""
        return self.rows - len(self.left_out)

    def taken_from(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids that the batch has, of the ids of the segment."""
        if not self.left_out:
            return ids
        left_out = set(self.left_out)
        return [one for row, one in enumerate(ids) if row not in left_out]


class Plan(NamedTuple):
    """One batch.

    Attributes:
        number: Number of the plan.
        owner: Number of the owner that has planned it.
        nonce: Nonce of the writer.
        parts: The segments in their order.
    """

    number: int
    owner: int
    nonce: str
    parts: Sequence[Part]

    def text(self) -> bytes:
        """Return the content of the file."""
        return text(self.nonce, owner=self.owner, parts=self.parts)

    @classmethod
    def read(cls, number: int, data: bytes | None) -> Plan:
        """Return the plan of a file."""
        with _parsed(numbered(PLANS, number), data) as found:
            parts = [Part(Segment.of(one), int(rows), out) for one, rows, out in found["parts"]]
            return cls(number, int(found["owner"]), found["nonce"], parts)


class Mark(NamedTuple):
    """The proof that a plan and all plans before it are committed.

    Attributes:
        number: Number of the plan.
        replayable_from: Lowest plan whose files are still there.
        segments: The segments of the plan, whose messages may be acknowledged.
    """

    number: int
    replayable_from: int
    segments: Sequence[Segment]

    def text(self, nonce: str) -> bytes:
        """Return the content of the file."""
        return text(nonce, replayable_from=self.replayable_from, segments=self.segments)

    @classmethod
    def read(cls, number: int, data: bytes | None) -> Mark:
        """Return the mark of a file."""
        with _parsed(numbered(MARKS, number), data) as found:
            segments = [Segment.of(one) for one in found["segments"]]
            return cls(number, int(found["replayable_from"]), segments)


# ---- rows ----------------------------------------------------------------------------------------


def segment_file(rows: pa.RecordBatch, nonce: str) -> bytes:
    """Return the content of a segment's file."""
    header = {_HEADER: text(nonce)}
    return encode(rows.replace_schema_metadata(header))


def read_segment(plan: int, part: Part, data: bytes | None) -> pa.Table:
    """Return all rows of a segment.

    Args:
        plan: Number of the plan.
        part: Its part with the segment.
        data: The file of the segment. None: it is missing.

    Raises:
        MissingSegment: The segment is missing or damaged.
    """
    try:
        table = _table(data)
        if table.num_rows != part.rows:
            raise ValueError(f"it has {table.num_rows} rows, not {part.rows}")
    except (pa.ArrowInvalid, ValueError, OSError) as error:
        state = "is missing" if data is None else f"is damaged ({error})"
        segment = part.segment
        raise MissingSegment(
            f"{segment.path} of plan {plan} {state}. {part.taken} messages of the batch are in it; "
            f"{segment.manifest} has their ids, if it is there. If the segment cannot be restored, "
            f"read the batch without it: pullstream spool skip {plan} {segment} --spool PLACE"
        ) from error
    return table


def manifest_of_rows(segment: Segment, data: bytes | None, problem: str) -> Manifest:
    """Return the manifest of a segment that is in no plan, made from its rows.

    Args:
        segment: The segment.
        data: The file of the segment. None: it is missing.
        problem: Why the manifest that is there cannot be read.

    Raises:
        DamagedFile: The segment cannot be read either.
    """
    try:
        ids = _table(data).column("message_id").to_pylist()
    except (pa.ArrowInvalid, ValueError, OSError, KeyError) as error:
        state = "is missing" if data is None else f"is damaged ({error})"
        raise DamagedFile(
            f"{problem}. {segment.path}, whose rows have the same ids, {state}, too. If neither "
            "can be restored, go on without the segment: pullstream spool skip 0 "
            f"{segment} --spool PLACE"
        ) from error
    return Manifest(segment, ids, len(data or b""))


def _table(data: bytes | None) -> pa.Table:
    if data is None:
        raise FileNotFoundError("it is missing")
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    table.validate(full=True)
    return table
