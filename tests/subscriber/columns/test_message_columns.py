"""Columns have the fields of their messages, and portions the state of theirs."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream import Message, MessageColumns
from pullstream.columns.portions import Portion, Unit, ack_ids_in, messages_of, unsettled_in
from pullstream.lazy_messages import RawResponse
from pullstream.message import Disposition, ResponseBatch, has_begun
from pullstream.runtime.computed_once import computed_once
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.columns.random_messages import RECEIVED
from tests.subscriber.streaming.fakes import RecordingSettlementSink, received

RESPONSES = st.lists(st.lists(RECEIVED, min_size=1, max_size=6), max_size=4)


def units_of(response: Sequence[pubsub.ReceivedMessage], longest: int) -> list[Portion]:
    """Return the messages of a response as portions."""
    encoded = pubsub.StreamingPullResponse(received_messages=response).SerializeToString()
    batch = ResponseBatch(RecordingSettlementSink(), 0.0, 1, RawResponse(encoded))
    assert len(batch.received) == len(response)
    lock = CallLock()
    return [
        Portion(batch, start, min(start + longest, len(response)), lock)
        for start in range(0, len(response), longest)
    ]


def portion(*ack_ids: str) -> Portion:
    (made,) = units_of([received(ack_id) for ack_id in ack_ids], len(ack_ids))
    return made


def columns_of(units: Sequence[Unit]) -> tuple[MessageColumns, list[str]]:
    """Return columns, and the list of the ack ids that are acknowledged in portions."""
    acked: list[str] = []
    return MessageColumns(units, lambda portions, ack_ids: acked.extend(ack_ids)), acked


@given(RESPONSES, st.integers(1, 6), st.booleans())
def test_columns_have_the_fields_of_the_messages_of_any_responses(
    responses: list[list[pubsub.ReceivedMessage]], longest: int, some_are_messages: bool
) -> None:
    """Of whole responses, of parts of them, and together with single messages."""
    units: list[Unit] = [unit for each in responses for unit in units_of(each, longest)]
    if some_are_messages:
        units = [*messages_of(units[:1]), *units[1:]]
    columns, acked = columns_of(units)
    messages = [one for response in responses for one in response]
    assert len(columns) == len(messages)
    assert columns.data == [one.message.data for one in messages]
    assert columns.message_ids == [one.message.message_id for one in messages]
    assert columns.ordering_keys == [one.message.ordering_key for one in messages]
    assert columns.attributes == [dict(one.message.attributes) for one in messages]
    assert columns.delivery_attempts == [one.delivery_attempt or None for one in messages]
    assert columns.publish_times == [
        one.message.publish_time.ToDatetime(tzinfo=timezone.utc) for one in messages
    ]
    ack_ids = [one.ack_id for one in messages]
    assert ack_ids_in(units) == ack_ids
    columns.ack()
    singly = [each for unit in units if isinstance(unit, Message) for each in [unit.ack_id]]
    assert singly + acked == ack_ids
    assert [one.received for one in columns] == messages


@given(RESPONSES)
def test_the_arrow_rows_of_columns_have_the_values_of_the_columns(
    responses: list[list[pubsub.ReceivedMessage]],
) -> None:
    """Times are in microseconds."""
    pytest.importorskip("pyarrow")
    columns, _ = columns_of([unit for each in responses for unit in units_of(each, 9)])
    rows = columns.to_arrow()
    rows.validate(full=True)
    assert rows.num_rows == len(columns)
    assert rows.column("data").to_pylist() == columns.data
    assert rows.column("message_id").to_pylist() == columns.message_ids
    assert rows.column("ordering_key").to_pylist() == columns.ordering_keys
    assert rows.column("publish_time").to_pylist() == columns.publish_times
    assert rows.column("delivery_attempt").to_pylist() == columns.delivery_attempts
    assert [dict(each) for each in rows.column("attributes").to_pylist()] == columns.attributes


def test_a_response_without_message_ids_has_all_its_messages() -> None:
    """The number of messages is then found by dividing the response."""
    response = [pubsub.ReceivedMessage(ack_id=ack_id) for ack_id in "ab"]
    columns, acked = columns_of(units_of(response, 9))
    assert (len(columns), columns.message_ids, columns.data) == (2, ["", ""], [b"", b""])
    assert columns.publish_times == [datetime(1970, 1, 1, tzinfo=timezone.utc)] * 2
    columns.ack()
    assert acked == ["a", "b"]


def test_a_portion_gives_its_messages_the_state_that_it_had() -> None:
    """From then on, they have their own."""
    begun, settled, plain = portion("a", "b"), portion("c"), portion("d")
    assert begun.begin()
    assert settled.settle(Disposition.ACK)
    assert not settled.settle(Disposition.ACK)
    assert [has_begun(one) for one in begun.messages()] == [True, True]
    assert [one.settled for one in settled.messages()] == [Disposition.ACK]
    assert [one.settled for one in plain.messages()] == [None]
    assert plain.messages() is plain.messages()
    assert not plain.begin()
    assert not plain.settle(Disposition.ACK)
    assert [one.leased for one in plain.messages()] == [True]
    assert not plain.leased


def test_unsettled_units_are_undivided_portions_and_single_messages() -> None:
    """A settled portion and a settled message are left out."""
    whole, acked, divided = portion("a", "b"), portion("c"), portion("d", "e")
    acked.settle(Disposition.ACK)
    first, second = divided.messages()
    first.settled = Disposition.NACK
    assert unsettled_in([whole, acked, divided, first]) == [whole, second]


def test_to_arrow_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other columns do not need it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pullstream.columns.record_batch", raising=False)
    columns, _ = columns_of([portion("a")])
    with pytest.raises(ModuleNotFoundError, match=r"to_arrow\(\) needs pyarrow: pip install"):
        columns.to_arrow()


def test_columns_are_freed_without_the_garbage_collector() -> None:
    """Their memory would otherwise stay until the collector's next run."""
    columns, _ = columns_of([portion("a", "b")])
    assert columns.attributes == [{}, {}]
    assert columns.data == [b"", b""]
    freed = weakref.ref(columns)
    gc.disable()
    try:
        del columns
        assert freed() is None
    finally:
        gc.enable()


def test_an_attribute_is_computed_once_when_it_is_read() -> None:
    """Later reads return the same object."""

    class Counting:
        count = 0

        @computed_once
        def value(self) -> list[int]:
            self.count += 1
            return []

    counting = Counting()
    assert counting.value is counting.value
    assert counting.count == 1
    assert isinstance(Counting.__dict__["value"].__get__(None, Counting), computed_once)
