"""Rows that were made early equal rows that are made late."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pullstream.message import Message
from pullstream.spark.rows.columns import Columns
from pullstream.spark.rows.rows import to_batch
from pullstream.spark.session.arrow_rows import ArrowRows
from pullstream.spark.spool.segment import ACK_ID
from tests.subscriber.spark.session.messages import batch


def add(rows: ArrowRows, messages: list[Message]) -> None:
    if messages:
        rows.keep(rows.make(messages), messages)


def taken(rows: ArrowRows, messages: list[Message]) -> None:
    """Take the rows of messages, and compare them with rows made now."""
    found = rows.take(messages)
    assert found.column(ACK_ID).to_pylist() == [message.ack_id for message in messages]
    again = Columns([message.received.SerializeToString() for message in messages])
    assert found.drop_columns([ACK_ID]) == to_batch(again)


def test_what_is_prepared_is_not_made_again() -> None:
    """Rows are taken by batch size, not by response."""
    rows = ArrowRows(None)
    messages = batch([str(number) for number in range(10)])
    add(rows, messages[:4])
    add(rows, messages[4:])
    for message in messages:
        # A message that is converted from now on has another id.
        message.received.message.message_id += "!"
    found = [rows.take(messages[start:end]) for start, end in ((0, 3), (3, 7), (7, 10))]
    ids = [one for part in found for one in part.column("message_id").to_pylist()]
    assert ids == [str(number) for number in range(10)]


def test_rows_may_have_the_subscription() -> None:
    """The settings decide whether there is such a column."""
    rows = ArrowRows("projects/p/subscriptions/s")
    messages = batch(["a", "b"])
    add(rows, messages[:1])
    assert (
        rows.take(messages).column("subscription").to_pylist() == ["projects/p/subscriptions/s"] * 2
    )


def test_what_is_not_wanted_takes_no_memory() -> None:
    """Rows of duplicates and of lost messages are removed.

    The other rows are not made again.
    """
    rows = ArrowRows(None)
    messages = batch([str(number) for number in range(6)])
    rows.keep(rows.make(messages), messages[1:5])
    assert len(rows) == 4
    rows.drop([messages[0], messages[2], messages[4]])
    assert len(rows) == 2
    for message in messages:
        message.received.message.message_id += "!"
    assert rows.take([messages[1], messages[3]]).column("message_id").to_pylist() == ["1", "3"]
    assert len(rows) == 0


@given(
    sizes=st.lists(st.integers(0, 5), max_size=8),
    limit=st.integers(1, 7),
    seed=st.integers(),
)
def test_any_history_gives_the_right_rows(sizes: list[int], limit: int, seed: int) -> None:
    """Messages are lost, redelivered in other places, and put back."""
    chance = random.Random(seed)
    rows = ArrowRows(None)
    buffer: dict[str, Message] = {}
    count = 0
    for size in sizes:
        ids = [str(number) for number in range(count, count + size)]
        count += size
        if buffer and chance.random() < 0.4:
            ids.append(chance.choice(list(buffer)))
        arrived = batch(ids, delivery=count)
        add(rows, arrived)
        buffer.update({message.message_id: message for message in arrived})
        if buffer and chance.random() < 0.3:
            lost = buffer.pop(chance.choice(list(buffer)))
            if chance.random() < 0.5:
                rows.drop([lost])
        if buffer and chance.random() < 0.6:
            wanted = list(buffer.values())[:limit]
            taken(rows, wanted)
            if chance.random() < 0.7:
                for message in wanted:
                    del buffer[message.message_id]
    if buffer:
        taken(rows, list(buffer.values()))
