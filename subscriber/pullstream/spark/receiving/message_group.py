"""Received messages with their Arrow rows, which are made when the messages arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.columns import MessageColumns
from pullstream.columns.message_columns import parts_of
from pullstream.columns.portions import (
    AckPortions,
    Unit,
    ack_ids_in,
    acknowledge,
    encoded_in,
    messages_of,
    size_of,
)
from pullstream.columns.record_batch import to_batch
from pullstream.message import Message
from pullstream.message_fields import Columns
from pullstream.spark.protocol.message_keys import Key, keys_of


@dataclass(slots=True, eq=False)
class MessageGroup:
    """Messages that follow one another in the buffer.

    Making a row takes longer than everything else that happens to a message. If rows were made when
    a batch is requested, the engine would wait for it. When messages arrive, the engine is still
    processing the batch before.

    Attributes:
        keys: The key of each message.
        units: The newest delivery of each message, in portions where nothing has changed since the
            arrival.
        rows: The row of each message. None: the rows are made when a segment needs them, because a
            message was delivered again, or the messages were put back into the buffer.
        leased_at: When their leases were last known to be held, by a clock that also runs while the
            machine sleeps, in seconds.
        ack_portions: Acknowledges portions.
        ack_ids: The ack id of each message; empty if they are to be read from the messages.
    """

    keys: list[Key]
    units: list[Unit]
    rows: pa.RecordBatch | None
    leased_at: float
    ack_portions: AckPortions
    ack_ids: Sequence[str] = ()
    _oldest: float | None = None
    _size: int | None = None

    @property
    def messages(self) -> list[Message]:
        """The messages one by one, which takes memory and time for each."""
        return messages_of(self.units)

    @property
    def size(self) -> int:
        """Size of the messages in bytes."""
        if self._size is None:
            # Once, because each arrival asks for the size of the whole buffer.
            self._size = sum(size_of((unit,)) * unit.batch.bytes_each for unit in self.units)
        return self._size

    @property
    def oldest_publish_time(self) -> float | None:
        """The earliest publish time, in seconds since the epoch; None without messages."""
        if self._oldest is None:
            if self.rows is not None:
                found = pc.min(self.rows.column("publish_time").cast(pa.int64())).as_py()
                self._oldest = None if found is None else found / 1e6
            else:
                times = (message.publish_time.timestamp() for message in self.messages)
                self._oldest = min(times, default=None)
        return self._oldest

    @classmethod
    def of_arrived(
        cls, received: MessageColumns, subscription: str | None, leased_at: float
    ) -> MessageGroup:
        """Make the rows of received messages.

        Args:
            received: The messages.
            subscription: Value of the column `subscription`. None: there is no such column.
            leased_at: The present time.
        """
        units, fields, ack_portions = parts_of(received)
        keys, rows = keys_of(fields.message_ids), to_batch(fields, subscription)
        return cls(keys, list(units), rows, leased_at, ack_portions, fields.ack_ids)

    def __len__(self) -> int:
        return len(self.keys)

    def take_first(self, count: int) -> MessageGroup:
        """Move the first messages to another group, and return it."""
        units, left = self._divided_at(count)
        rows = self.rows
        first = MessageGroup(
            self.keys[:count],
            units,
            None if rows is None else rows[:count],
            self.leased_at,
            self.ack_portions,
            self.ack_ids[:count],
        )
        del self.keys[:count]
        self.units = left
        self.rows = None if rows is None else rows[count:]
        self.ack_ids = self.ack_ids[count:]
        self._oldest = self._size = None
        return first

    def _divided_at(self, place: int) -> tuple[list[Unit], list[Unit]]:
        """Return the units before and after a place. A portion that has both becomes messages."""
        for number, unit in enumerate(self.units):
            size = size_of((unit,))
            if place < size:
                messages = messages_of((unit,)) if place else [unit]
                before, after = self.units[:number], self.units[number + 1 :]
                return [*before, *messages[:place]], [*messages[place:], *after]
            place -= size
        return self.units, []

    def keep_only(self, places: Sequence[int]) -> None:
        """Remove the messages at other places than these."""
        if len(places) == len(self):
            return
        messages = self.messages
        self.keys = [self.keys[place] for place in places]
        self.units = [messages[place] for place in places]
        self.ack_ids = ()
        if self.rows is not None:
            # A slice would keep the memory of the other rows.
            self.rows = self.rows.take(pa.array(places, pa.int64()))
        self._oldest = self._size = None

    def replace(self, newer: Mapping[Key, Message]) -> list[Message]:
        """Replace messages by newer deliveries, and return the earlier ones."""
        messages = self.messages
        places = [place for place, key in enumerate(self.keys) if key in newer]
        outdated = [messages[place] for place in places]
        for place in places:
            messages[place] = newer[self.keys[place]]
        self.units = [*messages]
        self.ack_ids = ()
        self._size = None
        return outdated

    def drop_rows(self) -> None:
        """Free the memory of the rows, which a segment has."""
        # It is computed from the rows.
        _ = self.oldest_publish_time
        self.rows = None

    def acknowledge(self) -> None:
        """Acknowledge the messages."""
        acknowledge(self.units, self.ack_portions, lambda: self.ack_ids or ack_ids_in(self.units))


def rows_of(groups: Iterable[MessageGroup], subscription: str | None) -> pa.RecordBatch:
    """Return the rows of groups, of which there is at least one, and make missing rows."""
    return pa.concat_batches(
        to_batch(Columns(encoded_in(group.units)), subscription)
        if group.rows is None
        else group.rows
        for group in groups
    )
