"""Writing of received messages as segments, and the decisions about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.elapsed import elapsed as since_boot
from pullstream.spark.protocol.layout import Manifest, Segment
from pullstream.spark.protocol.receiver import Decision, Receiver, Seen
from pullstream.spark.protocol.storage import Storage, run
from pullstream.spark.settings import IngestSettings
from pullstream.spark.store_errors import is_of_storage, store_cause
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .message_buffer import MessageBuffer
from .message_group import rows_of


class WrittenSegment(NamedTuple):
    """A segment that was written.

    Attributes:
        manifest: Its manifest. None: the segment was abandoned, and its messages were returned.
        publish_times: The publish time of each row.
        is_all: Whether the buffer was empty then.
    """

    manifest: Manifest | None
    publish_times: pa.Array
    is_all: bool


class SegmentWriter:
    """Owner of a receiver and its buffer. One thread at a time uses it.

    Attributes:
        receiver: The receiver.
        buffer: The buffer, which is the callback of the subscription.

    Args:
        settings: The settings of the source.
        storage: The folder.
        share: Maximum size of the segments that are not committed, in bytes. Default: the limit
            of the spool.
        clock: Source of time.
        elapsed: A clock that no one sets and that also runs while the machine sleeps, in seconds.
    """

    def __init__(
        self,
        settings: IngestSettings,
        storage: Storage,
        *,
        share: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        elapsed: Callable[[], float] = since_boot,
    ) -> None:
        self._storage = storage
        self._subscription = settings.column_subscription
        self.receiver: Receiver = Receiver(
            settings.subscription,
            settings.acknowledge,
            max_age=settings.lease_seconds,
            share=share or settings.max_spool_bytes,
            elapsed=elapsed,
        )
        self.buffer: MessageBuffer = MessageBuffer(
            clock, self._subscription, settings.lease_seconds, elapsed
        )

    def start(self) -> None:
        """Found the folder, or check that it belongs to the subscription.

        Raises:
            SpoolError: The folder belongs to another subscription, or has another format.
        """
        run(self.receiver.start(), self._storage)

    def write(self, max_messages: int, max_bytes: int) -> WrittenSegment | None:
        """Write the first messages of the buffer as a segment, and settle or hold them.

        Args:
            max_messages: Maximum number of messages.
            max_bytes: Maximum size in bytes; a single larger message still passes.

        Returns:
            The segment. None: the buffer is empty.

        Raises:
            SpoolError: The segment cannot be written; its messages are in the buffer again.
        """
        groups, is_all = self.buffer.cut(max_messages, max_bytes)
        if not groups:
            return None
        try:
            rows = rows_of(groups, self._subscription)
            since = min(group.leased_at for group in groups)
            # A message without a time would count as one of 1970.
            times = filter(None, (group.oldest_publish_time for group in groups))
            oldest = min(times, default=None)
            attempts = pc.max(rows.column("delivery_attempt")).as_py() or 0
            written = run(self.receiver.write(rows, since, oldest, attempts), self._storage)
        except BaseException as error:
            with self.buffer.messages() as waiting:
                waiting.put_back()
            if is_of_storage(error):
                raise SpoolError(
                    f"cannot write {sum(map(len, groups))} messages to the spool: "
                    f"{store_cause(error)}. "
                    "Nothing is lost: these messages are not acknowledged"
                ) from error
            raise
        with self.buffer.messages() as waiting:
            waiting.hold(written.segment)
        match written.decision:
            case Decision.ACKNOWLEDGE:
                self.buffer.acknowledge([written.segment])
            case Decision.RETURN:
                self.buffer.return_held([written.segment])
        return WrittenSegment(written.manifest, rows.column("publish_time"), is_all)

    def look(self) -> Seen:
        """Read the new marks. Acknowledge messages that are committed, and return lost ones.

        Raises:
            SpoolError: The folder is not the one at the start. All held messages are returned.
        """
        try:
            seen = run(self.receiver.look(), self._storage)
        except SpoolError:
            with self.buffer.messages() as waiting:
                held = waiting.segments
            self.buffer.return_held(held)
            raise
        self.buffer.acknowledge(seen.committed)
        self.buffer.return_held(seen.vanished)
        return seen

    def committed(self, segments: Sequence[Segment]) -> None:
        """Acknowledge the messages of segments that a mark of this process names."""
        self.receiver.committed(segments)
        self.buffer.acknowledge(segments)
