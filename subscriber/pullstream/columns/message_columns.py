"""Columns of received messages, and the means to settle them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from pullstream.message import Message, MessageBatch
from pullstream.message_fields import Columns, MergedColumns, keys_and_values
from pullstream.runtime.computed_once import computed_once

from .portions import (
    AckPortions,
    Unit,
    acknowledge,
    encoded_in,
    messages_of,
    size_of,
    whole_responses,
)

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class ReceivedColumns:
    """The fields of several received messages, in the order of the messages.

    The fields are parsed when one of them is first read. Iterating creates ordinary messages.

    Args:
        units: The messages, as portions where possible.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._count = size_of(units)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return iter(messages_of(self._units))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._count} messages)"

    @computed_once
    def _fields(self) -> Columns | MergedColumns:
        responses = whole_responses(self._units)
        if responses is None:
            return Columns(encoded_in(self._units))
        # Not a method or a lambda: a reference to this object would be a cycle, and would leave the
        # memory of all messages to the garbage collector.
        return MergedColumns(responses, self._count, partial(encoded_in, self._units))

    @computed_once
    def data(self) -> list[bytes]:
        """The payload of each message."""
        return self._fields.data or [b""] * self._count

    @property
    def message_ids(self) -> list[str]:
        """The ID that the server gave each message."""
        return self._fields.message_ids

    @computed_once
    def ordering_keys(self) -> list[str]:
        """The ordering key of each message. "" if it has none."""
        return self._fields.ordering_keys or [""] * self._count

    @computed_once
    def publish_times(self) -> list[datetime]:
        """When the server received each message from its publisher, in UTC."""
        stamps = self._fields.publish_times or [b""] * self._count
        # Messages that were published together have the same time, which is parsed once.
        times = {stamp: _time_of(stamp) for stamp in dict.fromkeys(stamps)}
        return [*map(times.__getitem__, stamps)]

    @computed_once
    def attributes(self) -> list[Mapping[str, str]]:
        """The attributes of each message. Do not change them: messages with the same share them."""
        entries = self._fields.attributes
        none: Mapping[str, str] = {}
        if len(entries) == self._count:
            # Each message has an entry that ends its attributes, and there are no others.
            return [none] * self._count
        # Many messages have the same attributes. Each entry is parsed once, and each combination is
        # one dict: a dict for every message would be work for the garbage collector.
        distinct = [entry for entry in set(entries) if entry]
        pairs = dict(zip(distinct, zip(*keys_and_values(distinct), strict=True), strict=True))
        known: dict[tuple[bytes, ...], Mapping[str, str]] = {(): none}
        attributes: list[Mapping[str, str]] = []
        start = 0
        while start < len(entries):
            end = entries.index(b"", start)
            own = tuple(entries[start:end])
            if own not in known:
                known[own] = dict(map(pairs.__getitem__, own))
            attributes.append(known[own])
            start = end + 1
        return attributes

    @computed_once
    def delivery_attempts(self) -> list[int | None]:
        """The number of delivery attempts, from 1. None without a dead-letter policy."""
        attempts = self._fields.delivery_attempts
        return [attempt or None for attempt in attempts] or [None] * self._count

    def to_arrow(self) -> pa.RecordBatch:
        """Return the messages as rows, without a Python object for each value.

        The columns are `message_id`, `data`, `attributes`, `ordering_key`, `publish_time` (in
        microseconds) and `delivery_attempt`, as in a Spark stream.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        try:
            from .record_batch import to_batch
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "to_arrow() needs pyarrow: pip install pyarrow", name=error.name
            ) from error
        return to_batch(self._fields)

    def _chosen(self, mask: Iterable[bool] | None) -> list[Unit]:
        """Return the messages that a mask chooses; all units if there is no mask.

        Raises:
            TypeError: A value of the mask is not a bool.
            ValueError: The mask does not have one value for each message.
        """
        if mask is None:
            return list(self._units)
        values = _bools(mask)
        if len(values) != self._count:
            raise ValueError(
                f"mask has {len(values)} values; it must have one for each of the {self._count} "
                "messages"
            )
        chosen: list[Unit] = []
        start = 0
        for unit in self._units:
            stop = start + size_of([unit])
            if any(values[start:stop]):
                several = messages_of([unit])
                chosen += [
                    one for one, is_in in zip(several, values[start:stop], strict=True) if is_in
                ]
            start = stop
        return chosen


class MessageColumns(ReceivedColumns):
    """The columns of messages that a callback of `subscribe_batch(columns=True)` gets.

    There is no object for each message. The callback reads lists, such as `data`, or an Arrow
    record batch, and settles the messages together:

        def handle(columns: MessageColumns) -> None:
            valid = store(columns.data)
            columns.nack([not each for each in valid])
            columns.ack()

    Iterating yields ordinary messages, which can be settled one by one. A message that
    is treated singly costs as much as in a MessageBatch.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        ack_portions: AckPortions,
    ) -> None:
        super().__init__(units)
        self._ack_portions = ack_portions

    def ack(self) -> None:
        """Acknowledge every message that is not settled. Returns at once.

        Raises:
            ForkedProcess: This process is a fork of the process that received the messages.
        """
        acknowledge(self._units, self._ack_portions, lambda: self._fields.ack_ids)

    def nack(self, mask: Iterable[bool] | None = None, *, delay: float = 0) -> None:
        """Nack messages that are not settled. Returns at once.

        Args:
            mask: One bool for each message: whether to nack it. Also a numpy or Arrow array of
                bools. None (default): nack every message.
            delay: Seconds until the redelivery, from 0 to 600; see `Message.nack`. Default: 0.

        Raises:
            TypeError: A value of the mask is not a bool.
            ValueError: The mask does not have one value for each message, or `delay` is not between
                0 and 600.
        """
        MessageBatch(messages_of(self._chosen(mask))).nack(delay)


class Parts(NamedTuple):
    """The content of columns.

    Attributes:
        units: The messages.
        fields: Their fields.
        ack_portions: Acknowledges portions of them.
    """

    units: Sequence[Unit]
    fields: Columns | MergedColumns
    ack_portions: AckPortions


def parts_of(received: MessageColumns) -> Parts:
    """Return the content of columns; for the SDK itself."""
    return Parts(received._units, received._fields, received._ack_portions)


def _time_of(stamp: bytes) -> datetime:
    # `ToDatetime` has the same result and takes ten times as long.
    parsed = Timestamp.FromString(stamp)
    return _EPOCH + timedelta(0, parsed.seconds, parsed.nanos // 1_000)


def _bools(mask: Iterable[bool]) -> list[bool]:
    """Return the values of a mask."""
    array: Any = mask
    # Arrow and numpy.
    values = next(
        (
            getattr(array, convert)()
            for convert in ("to_pylist", "tolist")
            if hasattr(array, convert)
        ),
        None,
    )
    values = list(mask) if values is None else values
    for at, value in enumerate(values):
        if not isinstance(value, bool):
            raise TypeError(
                f"mask[{at}] is {value!r}; it must be True, to nack the message, or False"
            )
    return values
