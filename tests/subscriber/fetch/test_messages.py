"""Fetched messages: settled as a list or one by one, with leases kept during the work."""

from __future__ import annotations

import logging

import grpc
import pytest

from pullstream import (
    AcknowledgeError,
    AcknowledgeStatus,
    PullTimeout,
    SubscriberClient,
    SubscriberClosed,
)
from pullstream.fetch.background_settler import (
    KEEP_AFTER,
    LONGEST_LEASE,
    BackgroundSettler,
    FetchedDispositions,
)
from pullstream.message import ResponseBatch
from pullstream.rpc.rpcs import Rpcs
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import InvalidArgument, NotFound, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.fetching import NAME, TOPIC, Server
from tests.subscriber.streaming.fakes import eventually

TIMEOUT = 20.0


@pytest.fixture
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent extensions on slow machines, because the work in a block is short."""
    monkeypatch.setattr("pullstream.fetch.background_settler.KEEP_AFTER", TIMEOUT)


# ---- as a list -----------------------------------------------------------------------------------


def test_a_list_of_fetched_messages_can_be_acknowledged_by_one_call(server: Server) -> None:
    """The server has answered when the call returns, and a second call does nothing."""
    messages = server.client.fetch(NAME, 3)
    messages.ack()
    assert server.settled == [("abc", None)]
    assert messages.unsettled == []
    messages.ack()
    messages.nack()
    assert len(server.settled) == 1


def test_a_list_of_fetched_messages_can_be_nacked_or_extended_by_one_call(server: Server) -> None:
    """An extension does not settle a message."""
    messages = server.client.fetch(NAME, 3)
    messages.modify_ack_deadline(30)
    messages.nack(delay=2.5)
    assert server.settled == [("abc", 30), ("abc", 3)]
    assert messages.unsettled == []


@pytest.mark.parametrize(
    ("method", "seconds", "text"),
    [
        ("nack", -1, "delay is -1; it must be between 0 and 600"),
        ("nack", 601, "delay is 601"),
        ("modify_ack_deadline", 0, "seconds is 0; it must be between 1 and 600"),
    ],
)
def test_a_list_of_fetched_messages_refuses_ack_deadlines_out_of_range(
    server: Server, method: str, seconds: int, text: str
) -> None:
    messages = server.client.fetch(NAME, 3)
    with pytest.raises(ValueError, match=text):
        getattr(messages, method)(seconds)
    assert server.settled == []


def test_settling_a_list_of_fetched_messages_is_retried_while_the_server_is_unavailable(
    server: Server,
) -> None:
    """The call is repeated."""
    server.refusals = [Unavailable("away"), Unavailable("away")]
    server.client.fetch(NAME, 3).ack()
    assert server.settled == [("abc", None)] * 3


def test_an_empty_list_of_fetched_messages_can_be_acknowledged_without_an_error(
    broker: Emulator,
) -> None:
    """An empty subscription is an error only without `missing_ok`."""
    with SubscriberClient(endpoint=broker.endpoint) as client:
        with pytest.raises(PullTimeout):
            client.fetch(NAME, timeout=0.05)
        with client.fetch(NAME, timeout=3, missing_ok=True) as messages:
            assert (messages, messages.reason) == ([], "timed_out")
            messages.ack()


def test_the_error_of_an_ack_call_names_the_refused_fetched_messages(broker: Emulator) -> None:
    """With exactly-once delivery the server names the refused messages. The others are settled."""
    name = NAME + "-once"
    with SubscriberClient(endpoint=broker.endpoint) as client:
        client.create_subscription(
            request={"name": name, "topic": TOPIC, "enable_exactly_once_delivery": True}
        )
        for data in ("a", "b", "c"):
            broker.publish(TOPIC, data)
        messages = client.fetch(name, 3)
        broker.inspect(lambda engine: engine.expire(name, [messages[1].ack_id]))
        with pytest.raises(AcknowledgeError, match="1 of 3 messages could not") as raised:
            messages.ack()
        assert raised.value.error_code is AcknowledgeStatus.INVALID_ACK_ID
        assert messages.unsettled == [messages[1]]


def test_fetched_messages_that_an_ack_error_does_not_name_are_retried(server: Server) -> None:
    """A server may have refused the whole request because of one message."""
    refused = {"b": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    server.refusals = [InvalidArgument("b", reason="R", metadata=refused)]
    messages = server.client.fetch(NAME, 3)
    with pytest.raises(AcknowledgeError, match="1 of 3 messages could not") as raised:
        messages.ack()
    assert not raised.value.may_have_succeeded
    assert server.settled == [("abc", None), ("ac", None)]
    # If the server refuses the repetition, too, the first request may have taken effect.
    refused = {"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    server.refusals = [
        InvalidArgument("b", reason="R", metadata={"b": refused["a"]}),
        InvalidArgument("a", reason="R", metadata=refused),
    ]
    with pytest.raises(AcknowledgeError, match="2 of 3 messages could not") as raised:
        server.client.fetch(NAME, 3).ack()
    assert raised.value.may_have_succeeded


# ---- one by one ----------------------------------------------------------------------------------


def test_an_ack_or_nack_of_one_fetched_message_is_sent_in_the_background(server: Server) -> None:
    """The future of `..._with_response` gets the server's answer."""
    a, b, c = server.client.fetch(NAME, 3)
    a.ack()
    assert b.nack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert c.modify_ack_deadline_with_response(20).result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    eventually(lambda: sorted(server.settled, key=str) == [("a", None), ("b", 0), ("c", 20)])


def test_a_refused_ack_of_a_fetched_message_is_reported_by_its_future_and_in_the_log(
    server: Server,
) -> None:
    """The future and the log report the refusal."""
    server.refusals = [NotFound("gone")]
    (message, *_) = server.client.fetch(NAME, 3)
    with pytest.raises(AcknowledgeError, match="gone"):
        message.ack_with_response().result(TIMEOUT)


def test_closing_a_client_sends_the_pending_acks_and_nacks_of_fetched_messages(
    server: Server,
) -> None:
    """The caller does not have to wait for the sending."""
    with SubscriberClient(endpoint=server.scripted.endpoint) as client:
        for message in client.fetch(NAME, 3):
            message.ack()
    assert "".join(sorted("".join(ids for ids, _ in server.settled))) == "abc"


def test_an_ack_or_nack_of_a_fetched_message_fails_after_the_client_was_closed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The future reports the failure. Without a future, the log does."""
    with SubscriberClient(endpoint=server.scripted.endpoint) as client:
        a, b, _ = messages = client.fetch(NAME, 3)
    with pytest.raises(AcknowledgeError, match="this client is closed"):
        a.ack_with_response().result(TIMEOUT)
    with caplog.at_level(logging.WARNING, "pullstream.fetch"):
        b.ack()
    assert "ack of b: OTHER: not sent: this client is closed" in caplog.text
    with pytest.raises(SubscriberClosed):
        messages.ack()


# ---- during the work -----------------------------------------------------------------------------


def test_a_with_block_of_a_fetch_extends_leases_and_nacks_unsettled_messages_at_its_end(
    server: Server,
) -> None:
    """The dispositions of a block have been answered at its end."""
    with server.client.fetch(NAME, 3) as messages:
        eventually(lambda: ("abc", 60) in server.settled)
        messages[1].ack()
    assert server.settled[0] == ("abc", 60)
    assert sorted(server.settled[1:], key=str) == [("ac", 0), ("b", None)]


def test_a_with_block_of_a_fetch_that_raises_nacks_its_messages_and_keeps_the_exception(
    server: Server,
) -> None:
    """The exception of the block is raised even if the return fails."""

    def work() -> None:
        with server.client.fetch(NAME, 3):
            eventually(lambda: ("abc", 60) in server.settled)
            server.refusals = [NotFound("gone")]
            raise KeyError

    with pytest.raises(KeyError):
        work()
    # The nack is refused, and the return is still sent.
    assert server.settled[1:] == [("a", 0), ("bc", 0)]


def test_a_with_block_of_a_fetch_raises_an_error_at_its_end_for_refused_acknowledgements(
    server: Server,
) -> None:
    """A refused acknowledgement is an error at the end of the block."""

    def work() -> None:
        with server.client.fetch(NAME, 3) as messages:
            eventually(lambda: ("abc", 60) in server.settled)
            server.refusals = [NotFound("gone")]
            for message in messages:
                message.ack()

    with pytest.raises(AcknowledgeError, match="gone"):
        work()


def test_a_with_block_of_fetched_messages_cannot_be_entered_twice(server: Server) -> None:
    """A block cannot be entered again while it lasts."""
    with server.client.fetch(NAME, 3) as messages, pytest.raises(RuntimeError, match="already"):
        messages.__enter__()


def test_a_with_block_of_a_fetch_extends_each_lease_until_settlement_but_at_most_one_hour(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Leases are extended after four fifths of a minute, except those of settled messages."""
    clock = ManualClock()
    with grpc.insecure_channel(server.scripted.endpoint) as channel:
        settler = BackgroundSettler(Rpcs(channel), NAME, clock)
        received = [pubsub.ReceivedMessage(ack_id=each) for each in "ab"]
        response = pubsub.PullResponse(received_messages=received)
        messages = ResponseBatch(FetchedDispositions(lambda: settler), 0, 0, response).messages()
        settler.keep_leases(messages)
        clock.advance(KEEP_AFTER)
        eventually(lambda: server.settled == [("ab", 60)])
        messages[0].ack_with_response().result(TIMEOUT)
        clock.advance(48)
        eventually(lambda: server.settled[2:] == [("b", 60)])
        with caplog.at_level(logging.WARNING, "pullstream.fetch"):
            clock.advance(LONGEST_LEASE)
            eventually(lambda: "the leases of 1 fetched messages" in caplog.text)
        number = settler.keep_leases(messages)
        eventually(lambda: server.settled[3:] == [("b", 60)])
        settler.stop_leases(number)
        clock.advance(48)
        settler.begin_close()
        settler.wait_for_end()
    assert len(server.settled) == 4


@pytest.mark.usefixtures("no_extension")
def test_a_short_with_block_of_a_fetch_sends_no_lease_extension(server: Server) -> None:
    """The extension would come after the acknowledgement and be refused."""
    with server.client.fetch(NAME, 3) as messages:
        messages.ack()
    server.client.close()
    assert server.settled == [("abc", None)]


@pytest.mark.usefixtures("no_extension")
def test_closing_a_client_nacks_messages_of_an_open_with_block_of_a_fetch(server: Server) -> None:
    """Nothing could settle the messages afterwards. The block ends as its own code does."""
    with server.client.fetch(NAME, 3) as messages:
        messages[0].ack_with_response().result(TIMEOUT)
        server.client.close()
    assert server.settled == [("a", None), ("bc", 0)]
    with pytest.raises(SubscriberClosed, match="the leases cannot be extended"):
        messages.__enter__()


def test_a_with_block_of_a_fetch_raises_no_error_if_its_nacks_cannot_be_sent(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The channel belongs to the caller and is closed."""
    channel = grpc.insecure_channel(server.scripted.endpoint)
    with SubscriberClient(channel=channel) as client:

        def work() -> None:
            with client.fetch(NAME, 3):
                channel.close()
                raise KeyError

        with caplog.at_level(logging.WARNING, "pullstream.fetch"), pytest.raises(KeyError):
            work()
    assert "could not return all fetched messages" in caplog.text


def test_a_with_block_of_a_fetch_raises_an_error_if_its_acknowledgements_get_no_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing answer is not a success."""
    monkeypatch.setattr("pullstream.fetch.settling.RETRY_FOR", 0.1)
    server.refusals = [Unavailable("away")] * 100

    def work() -> None:
        with server.client.fetch(NAME, 3) as messages:
            for message in messages:
                message.ack()

    with pytest.raises(AcknowledgeError, match="has not answered within"):
        work()
    server.refusals = []


@pytest.mark.usefixtures("no_extension")
def test_a_refused_lease_extension_does_not_fail_the_with_block_of_a_fetch(server: Server) -> None:
    """Only the final disposition counts."""
    server.refusals = [NotFound("gone")]
    with server.client.fetch(NAME, 3) as messages:
        extended = messages[0].modify_ack_deadline_with_response(30)
        with pytest.raises(AcknowledgeError, match="gone"):
            extended.result(TIMEOUT)
        messages.ack()
    assert server.settled == [("a", 30), ("abc", None)]
