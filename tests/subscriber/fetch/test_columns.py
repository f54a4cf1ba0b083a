"""Fetched columns: settled together or by a mask, with leases kept during the work."""

from __future__ import annotations

import pytest

from pullstream import (
    AcknowledgeError,
    AcknowledgeStatus,
    AsyncSubscriberClient,
    Message,
    SubscriberClient,
)
from pullstream_emulator import Emulator
from pullstream_protocol.errors import InvalidArgument, NotFound, Unavailable
from tests.subscriber.fetching import NAME, TOPIC, Server
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


def ids(messages: list[Message]) -> str:
    return "".join(message.message_id for message in messages)


def test_fetched_columns_have_the_fields_of_the_messages(broker: Emulator) -> None:
    """The end has a reason, as for a list."""
    broker.publish(TOPIC, "a", color="red")
    broker.publish(TOPIC, "b")
    with SubscriberClient(endpoint=broker.endpoint) as client:
        columns = client.fetch(NAME, 2, columns=True)
        assert (len(columns), columns.reason) == (2, "filled")
        assert columns.data == [b"a", b"b"]
        assert columns.attributes == [{"color": "red"}, {}]
        assert [message.data for message in columns] == [b"a", b"b"]
        columns.ack()
        nothing = client.fetch(NAME, timeout=3, missing_ok=True, columns=True)
        assert (len(nothing), nothing.data, nothing.message_ids) == (0, [], [])
        nothing.ack()
        nothing.nack([])
    assert broker.backlog(NAME) == 0


def test_fetched_columns_are_acknowledged_by_one_call(server: Server) -> None:
    """The server has answered when the call returns, and a second call does nothing."""
    columns = server.client.fetch(NAME, 3, columns=True)
    columns.ack()
    assert server.settled == [("abc", None)]
    columns.ack()
    columns.nack()
    assert len(server.settled) == 1
    assert columns.unsettled == []


def test_a_mask_nacks_some_fetched_columns(server: Server) -> None:
    """The others stay unsettled."""
    columns = server.client.fetch(NAME, 3, columns=True)
    columns.modify_ack_deadline(30)
    columns.nack([False, True, False], delay=2.5)
    assert ids(columns.unsettled) == "ac"
    columns.ack()
    assert server.settled == [("abc", 30), ("b", 3), ("ac", None)]


def test_an_invalid_mask_or_delay_of_fetched_columns_is_refused(server: Server) -> None:
    """No request is sent."""
    columns = server.client.fetch(NAME, 3, columns=True)
    with pytest.raises(ValueError, match="mask has 2 values; it must have one for each of the 3"):
        columns.nack([True, False])
    with pytest.raises(ValueError, match="delay is 601"):
        columns.nack(delay=601)
    with pytest.raises(ValueError, match="seconds is 0"):
        columns.modify_ack_deadline(0)
    assert server.settled == []


def test_fetched_columns_that_the_server_refused_stay_unsettled(server: Server) -> None:
    """The error names their number. A lasting error refuses all."""
    refused = {"b": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    server.refusals = [InvalidArgument("b", reason="R", metadata=refused)]
    columns = server.client.fetch(NAME, 3, columns=True)
    with pytest.raises(AcknowledgeError, match="1 of 3 messages could not"):
        columns.ack()
    assert ids(columns.unsettled) == "b"
    server.refusals = [NotFound("gone")]
    again = server.client.fetch(NAME, 3, columns=True)
    with pytest.raises(AcknowledgeError, match="3 of 3 messages could not"):
        again.ack()
    assert ids(again.unsettled) == "abc"


def test_settling_fetched_columns_is_retried_while_the_server_is_unavailable(
    server: Server,
) -> None:
    """The call is repeated."""
    server.refusals = [Unavailable("away"), Unavailable("away")]
    server.client.fetch(NAME, 3, columns=True).ack()
    assert server.settled == [("abc", None)] * 3


def test_messages_of_fetched_columns_can_be_settled_one_by_one(server: Server) -> None:
    """The future has the server's answer, and the columns settle the rest."""
    columns = server.client.fetch(NAME, 3, columns=True)
    first, *_ = columns
    assert first.ack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    columns.nack()
    assert server.settled == [("a", None), ("bc", 0)]


def test_a_with_block_of_fetched_columns_extends_leases_and_returns_unsettled_messages(
    server: Server,
) -> None:
    """Messages that a mask has nacked are not extended again."""
    with server.client.fetch(NAME, 3, columns=True) as columns:
        eventually(lambda: ("abc", 60) in server.settled)
        columns.nack([True, False, False])
    assert server.settled == [("abc", 60), ("a", 0), ("bc", 0)]


def test_a_with_block_of_fetched_columns_that_raises_nacks_the_first_message(
    server: Server,
) -> None:
    """It counts as the cause, as with a list, and the others are returned."""

    def work() -> None:
        with server.client.fetch(NAME, 3, columns=True):
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert [one for one in server.settled if one[1] == 0] == [("a", 0), ("bc", 0)]


def test_closing_a_client_returns_fetched_columns_of_an_open_block(server: Server) -> None:
    """Nothing could settle them afterwards."""
    with server.client.fetch(NAME, 3, columns=True):
        server.client.close()
    assert [one for one in server.settled if one[1] != 60] == [("abc", 0)]


async def test_a_coroutine_can_fetch_and_settle_columns(broker: Emulator) -> None:
    """The methods of the columns are awaited."""
    for data in ("a", "b", "c"):
        broker.publish(TOPIC, data)
    async with AsyncSubscriberClient(endpoint=broker.endpoint) as client:
        columns = await client.fetch(NAME, 3, min_messages=3, columns=True)
        await columns.modify_ack_deadline(30)
        await columns.nack([True, False, False])
        async with columns:
            await columns.ack()
        (again,) = await client.fetch(NAME, 3, columns=True)
        assert again.data == b"a"
        again.ack()
    assert broker.backlog(NAME) == 0
