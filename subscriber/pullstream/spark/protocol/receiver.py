"""Rules of a receiver: it writes segments, and says which messages may be acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from secrets import token_hex
from typing import NamedTuple

import pyarrow as pa

from pullstream.spark.errors import SpoolError
from pullstream.spark.stores import StoredFile

from .acknowledge import Acknowledge
from .layout import (
    MANIFESTS,
    MARKS,
    OWNERS,
    Manifest,
    Mark,
    Owner,
    Segment,
    numbered,
    numbers_of,
    segment_file,
    segments_of,
)
from .storage import Get, List, Steps, put

# With fewer delivery attempts, kills alone may send committed messages to the dead-letter topic.
_ENOUGH_ATTEMPTS = 10


class Decision(Enum):
    """What to do with the messages of a segment that `Receiver.write` has handled."""

    ACKNOWLEDGE = "acknowledge"
    HOLD = "hold"
    RETURN = "return"


class Written(NamedTuple):
    """The result of `Receiver.write`.

    Attributes:
        segment: The segment.
        decision: What to do with its messages.
        manifest: The manifest. None: the segment was abandoned.
    """

    segment: Segment
    decision: Decision
    manifest: Manifest | None = None


class Seen(NamedTuple):
    """The result of `Receiver.look`.

    Attributes:
        committed: Segments whose batches are committed.
        vanished: Segments of which neither a manifest nor a mark is left. Their messages must be
            returned, and never acknowledged.
    """

    committed: Sequence[Segment]
    vanished: Sequence[Segment]


class Receiver:
    """A writer of segments. It has a name that no other receiver has ever had.

    One thread uses it. The numbers in the comments are the steps in docs/spark-format.md.

    Args:
        subscription: Full name of the subscription.
        acknowledge: When messages may be acknowledged.
        max_age: Age in seconds at which a segment without a manifest is abandoned: the length of a
            lease.
        share: Maximum size of the segments that are not committed, in bytes.
        elapsed: A clock that no one sets and that also runs while the machine sleeps, in seconds.
        new_name: Makes names and nonces.
    """

    def __init__(
        self,
        subscription: str,
        acknowledge: Acknowledge,
        *,
        max_age: float,
        share: int,
        elapsed: Callable[[], float],
        new_name: Callable[[], str] = lambda: token_hex(16),
    ) -> None:
        self._subscription = subscription
        self._acknowledge = acknowledge
        self._max_age = max_age
        self._share = share
        self._elapsed = elapsed
        self._new_name = new_name
        self._nonce = new_name()
        self._founder: Owner | None = None
        self._is_writing = False
        # The newest mark that was read.
        self._mark = 0
        # Segments that are not known to be committed, with their sizes.
        self._waiting: dict[Segment, int] = {}
        self._take_name()

    def start(self) -> Steps[None]:
        """Found the folder, or check that it belongs to the subscription.

        Raises:
            SpoolError: The folder belongs to another subscription, or has another format.
        """
        self._founder = yield from found_folder(self._subscription, self._nonce)
        marks: list[StoredFile] = yield List(MARKS)
        self._mark = max(numbers_of(marks), default=0)

    @property
    def name(self) -> str:
        """The present name."""
        return self._name

    @property
    def waiting_segments(self) -> int:
        """Number of segments that are not known to be committed."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Size of the segments that are not known to be committed."""
        # Another thread may ask for a report.
        return sum(list(self._waiting.values()))

    def has_room(self, size: int) -> bool:
        """Return whether there is room for a segment. Without room, pull no more messages."""
        return not self._waiting or self.waiting_bytes + size <= self._share  # 7

    def write(
        self, rows: pa.RecordBatch, since: float, oldest: float | None = None, attempts: int = 0
    ) -> Steps[Written]:
        """Write a segment and its manifest.

        After an error, the messages must be returned; the manifest may be there nevertheless.

        Args:
            rows: The messages, each as a row.
            since: When their leases were last known to be held, by the clock `elapsed`.
            oldest: As in Manifest.
            attempts: As in Manifest.

        Returns:
            What to do with the messages.
        """
        if self._is_writing:
            # The last segment has no known outcome. Nothing follows it under its name.
            self._take_name()
        self._is_writing = True
        segment = Segment(self._name, self._next)
        data = segment_file(rows, self._nonce)
        if (yield from put(segment.path, data)) != data:  # 2
            return self._abandon(segment)
        if not self._is_young(since):  # 3
            return self._abandon(segment)
        ids = rows.column("message_id").to_pylist()
        manifest = Manifest(segment, ids, len(data), self._acknowledge, oldest, attempts)
        content = manifest.text(self._nonce)
        if (yield from put(segment.manifest, content)) != content:  # 4
            return self._abandon(segment)
        self._is_writing = False
        self._next += 1
        self._waiting[segment] = len(data)
        if self._acknowledge is Acknowledge.COMMITTED:
            return Written(segment, Decision.HOLD, manifest)
        # 5: in the time of a lease, no one has taken the segment for a remainder.
        decision = Decision.ACKNOWLEDGE if self._is_young(since) else Decision.RETURN
        return Written(segment, decision, manifest)

    def committed(self, segments: Iterable[Segment]) -> None:
        """Record segments that a mark names, which this process itself has written."""
        for segment in segments:
            self._waiting.pop(segment, None)

    def look(self) -> Steps[Seen]:
        """Read the new marks, which say which segments are committed.

        Raises:
            SpoolError: The folder is not the one at the start. All messages must be returned.
        """
        if not self._waiting:
            return Seen([], [])
        founder = (yield Get([numbered(OWNERS, 0)]))[0]
        if self._founder is None or founder != self._founder.text():
            raise SpoolError(
                f"{numbered(OWNERS, 0)} is not the file that it was at the start: the folder of "
                "the spool is gone or was exchanged. No message was acknowledged because of it"
            )
        present: set[Segment] = set()
        for name in sorted({segment.receiver for segment in self._waiting}):
            listed: list[StoredFile] = yield List(f"{MANIFESTS}/{name}")
            present |= segments_of(listed).keys()
        # After the manifests: a manifest is deleted after its mark was written.
        marks: list[StoredFile] = yield List(MARKS)
        new = sorted(number for number in numbers_of(marks) if number > self._mark)
        contents = yield Get([numbered(MARKS, number) for number in new])
        committed = []
        for number, content in zip(new, contents, strict=True):
            if content is not None:
                for segment in Mark.read(number, content).segments:  # 6
                    if self._waiting.pop(segment, None) is not None:
                        committed.append(segment)
        self._mark = max([self._mark, *new])
        vanished = [segment for segment in self._waiting if segment not in present]
        for segment in vanished:
            del self._waiting[segment]
        return Seen(committed, vanished)

    def _take_name(self) -> None:
        self._name = self._new_name()  # 1
        self._next = 1

    def _is_young(self, since: float) -> bool:
        return self._elapsed() - since <= self._max_age

    def _abandon(self, segment: Segment) -> Written:
        """Leave a segment to the coordinator, and its number unused."""
        self._take_name()
        self._is_writing = False
        return Written(segment, Decision.RETURN)


def found_folder(subscription: str, nonce: str) -> Steps[Owner]:
    """Write owner 0, or read the one that is there.

    Raises:
        SpoolError: The folder belongs to another subscription, or has another format.
    """
    owner = Owner(0, subscription, "", 0, nonce)
    content = yield from put(numbered(OWNERS, 0), owner.text())
    founder = Owner.read(0, content)
    if founder.subscription != subscription:
        raise SpoolError(
            f"the spool belongs to {founder.subscription}, not to {subscription}; use a separate "
            "spool for each subscription"
        )
    return founder


def attempts_warning(acknowledge: Acknowledge, max_delivery_attempts: int) -> str | None:
    """Return a warning if kills may send committed messages to the dead-letter topic.

    Args:
        acknowledge: When messages are acknowledged.
        max_delivery_attempts: The limit of the dead-letter policy; 0 if there is none.
    """
    is_enough = not max_delivery_attempts or max_delivery_attempts >= _ENOUGH_ATTEMPTS
    if acknowledge is Acknowledge.STORED or is_enough:
        return None
    return (
        f"the dead-letter policy allows {max_delivery_attempts} delivery attempts. With "
        "acknowledge=committed, each kill of a receiver may be one, so messages may be in the "
        f"table and in the dead-letter topic. Allow at least {_ENOUGH_ATTEMPTS}, or take "
        "acknowledge=stored"
    )


def check_order(receivers: int, *, by_key: bool) -> None:
    """Refuse an order that several receivers cannot keep.

    Raises:
        ValueError: The rows of a key shall be in order, and there are several receivers.
    """
    if by_key and receivers > 1:
        raise ValueError(
            f"partitionBy is orderingKey and there are {receivers} receivers; the order of a key "
            "holds with one receiver only. Use one receiver with more streams"
        )
