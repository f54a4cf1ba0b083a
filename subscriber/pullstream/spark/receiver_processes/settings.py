"""Settings of a receiver outside of the source's process."""

from __future__ import annotations

from dataclasses import dataclass

from pullstream.runtime.validation import require_positive
from pullstream.spark.settings import IngestSettings


@dataclass(frozen=True, kw_only=True)
class ReceiverSettings:
    """Settings of a ReceiverLoop.

    Attributes:
        source: The subscription, the spool, and the limits of a batch, of which each receiver's
            segments take a share.
        count: Number of receivers that write to the spool. Each one uses this part of
            `max_spool_bytes`, and segments have this part of the limits of a batch.
        available_now: End when the messages of the start are received, and with
            `acknowledge=committed` also committed.

    Raises:
        ValueError: `count` is less than 1.
    """

    source: IngestSettings
    count: int = 1
    available_now: bool = False

    def __post_init__(self) -> None:
        require_positive("count", self.count)

    @property
    def segment_rows(self) -> int:
        """Maximum number of messages in a segment."""
        return max(self.source.max_messages_per_trigger // self.count, 1)

    @property
    def segment_bytes(self) -> int:
        """Maximum size of the messages of a segment in bytes; a single larger one still passes."""
        return max(self.source.max_bytes_per_trigger // self.count, 1)

    @property
    def share(self) -> int:
        """Maximum size of this receiver's segments that are not committed, in bytes."""
        return max(self.source.max_spool_bytes // self.count, 1)
