"""Received messages with their Arrow rows, which are made when the messages arrive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pullstream.message import Message, encoded_of
from pullstream.spark.rows.columns import Columns
from pullstream.spark.rows.rows import to_batch
from pullstream.spark.spool.message_keys import Key, keys_of
from pullstream.spark.spool.segment import ACK_ID, oldest_of


@dataclass(slots=True, eq=False)
class MessageGroup:
    """Messages that follow one another in the buffer.

    Making a row takes longer than everything else that happens to a message. If rows were made when
    a batch is requested, the engine would wait for it. When messages arrive, the engine is still
    processing the batch before.

    Attributes:
        keys: The key of each message.
        messages: The newest delivery of each message.
        rows: The row of each message. None: the rows are made when a segment needs them, because a
            message was delivered again, or the messages were put back into the buffer.
    """

    keys: list[Key]
    messages: list[Message]
    rows: pa.RecordBatch | None
    _oldest: float | None = None

    @property
    def oldest_publish_time(self) -> float | None:
        """The earliest publish time, in seconds since the epoch; None without messages."""
        if self._oldest is None:
            if self.rows is not None:
                self._oldest = oldest_of(self.rows)
            else:
                times = (message.publish_time.timestamp() for message in self.messages)
                self._oldest = min(times, default=None)
        return self._oldest

    @classmethod
    def of_arrived(cls, messages: Sequence[Message], subscription: str | None) -> MessageGroup:
        """Make the rows of received messages.

        Args:
            messages: The messages.
            subscription: Value of the column `subscription`. None: there is no such column.
        """
        columns = Columns(encoded_of(messages))
        return cls(keys_of(columns.message_ids), list(messages), _rows(columns, subscription))

    def __len__(self) -> int:
        return len(self.keys)

    def take_first(self, count: int) -> MessageGroup:
        """Move the first messages to another group, and return it."""
        rows = self.rows
        first = MessageGroup(
            self.keys[:count], self.messages[:count], None if rows is None else rows[:count]
        )
        del self.keys[:count], self.messages[:count]
        self.rows = None if rows is None else rows[count:]
        self._oldest = None
        return first

    def keep_only(self, places: list[int]) -> None:
        """Remove the messages at other places than these."""
        self.keys = [self.keys[place] for place in places]
        self.messages = [self.messages[place] for place in places]
        if self.rows is not None:
            # A slice would keep the memory of the other rows.
            self.rows = self.rows.take(pa.array(places, pa.int64()))
        self._oldest = None


def rows_of(groups: Iterable[MessageGroup], subscription: str | None) -> pa.RecordBatch:
    """Return the rows of groups, of which there is at least one, and make missing rows."""
    return pa.concat_batches(
        _rows(Columns(encoded_of(group.messages)), subscription)
        if group.rows is None
        else group.rows
        for group in groups
    )


def _rows(columns: Columns, subscription: str | None) -> pa.RecordBatch:
    ack_ids = pa.array(columns.ack_ids, pa.string())
    return to_batch(columns, subscription).append_column(ACK_ID, ack_ids)
