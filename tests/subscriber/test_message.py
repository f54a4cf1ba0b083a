"""A message: its attributes, and the dispositions that a callback can choose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream import Message
from pullstream.lazy_messages import RawResponse
from pullstream.message import Disposition, MessageBatch, ResponseBatch, ack_ids_of, encoded_of
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import RecordingSettlementSink


def message(outcomes: RecordingSettlementSink | None = None, **fields: object) -> Message:
    delivered = pubsub.ReceivedMessage(
        ack_id="ack-1",
        delivery_attempt=int(str(fields.pop("delivery_attempt", 0))),
        message=pubsub.PubsubMessage(**fields),  # type: ignore[arg-type]
    )
    response = pubsub.PullResponse(received_messages=[delivered])
    (made,) = ResponseBatch(outcomes or RecordingSettlementSink(), 0.0, 0, response).messages()
    return made


def test_a_received_message_has_all_published_fields() -> None:
    """The attributes have the official client's names."""
    stamp = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone.utc)
    published = Timestamp()
    published.FromDatetime(stamp)
    one = message(
        data=b"some data",
        attributes={"colour": "red"},
        message_id="17",
        publish_time=published,
        ordering_key="key",
        delivery_attempt=3,
    )
    assert (one.data, one.message_id, one.ordering_key) == (b"some data", "17", "key")
    assert one.ack_id == "ack-1"
    assert one.publish_time == stamp
    assert one.publish_time.tzinfo is timezone.utc
    assert dict(one.attributes) == {"colour": "red"}
    assert one.delivery_attempt == 3


def test_fields_of_a_received_message_that_were_not_published_are_empty() -> None:
    """A missing attribute reads as "", as in the official client. Unknown attempts are None."""
    one = message()
    assert (one.data, one.message_id, one.ordering_key) == (b"", "", "")
    assert one.attributes["missing"] == ""
    assert one.delivery_attempt is None


def test_the_size_of_a_message_is_the_number_of_bytes_of_the_serialized_message() -> None:
    """Attributes count, as they do for the server's flow control."""
    data, attributes = b"x" * 100, {"a": "b" * 50}
    published = pubsub.PubsubMessage(data=data, attributes=attributes)
    one = message(data=data, attributes=attributes)
    assert one.size == published.ByteSize() > 150


def test_the_exactly_once_flag_of_a_message_follows_the_newest_response_of_the_server() -> None:
    """The newest response decides, also for earlier messages."""
    outcomes = RecordingSettlementSink()
    one = message(outcomes)
    assert not one.exactly_once_enabled
    outcomes.exactly_once = True
    assert one.exactly_once_enabled


def test_the_repr_of_a_message_shows_its_fields_and_shortens_long_data() -> None:
    """Long data would flood a log."""
    text = repr(message(data=b"x" * 1000, message_id="17", attributes={"a": "b"}))
    assert text == (
        f"Message(message_id='17', data={b'x' * 50 + b'...'!r}, ordering_key='', "
        "attributes={'a': 'b'})"
    )
    assert repr(b"x" * 50) in repr(message(data=b"x" * 50))


VERDICTS: list[tuple[Callable[[Message], object], Disposition, int]] = [
    (Message.ack, Disposition.ACK, 0),
    (Message.ack_with_response, Disposition.ACK, 0),
    (Message.nack, Disposition.NACK, 0),
    (Message.nack_with_response, Disposition.NACK, 0),
    (lambda one: one.nack(delay=30), Disposition.NACK, 30),
    (lambda one: one.nack(delay=0.2), Disposition.NACK, 1),
    (lambda one: one.nack_with_response(delay=600), Disposition.NACK, 600),
    (Message.drop, Disposition.DROP, 0),
    (lambda one: one.modify_ack_deadline(0), Disposition.NACK, 0),
    (lambda one: one.modify_ack_deadline_with_response(0), Disposition.NACK, 0),
    (lambda one: one.modify_ack_deadline(600), Disposition.EXTEND, 600),
    (lambda one: one.modify_ack_deadline_with_response(30), Disposition.EXTEND, 30),
]


@pytest.mark.parametrize(("decide", "verdict", "seconds"), VERDICTS)
def test_each_ack_nack_or_lease_extension_of_a_message_reaches_the_settlement_sink_once(
    decide: Callable[[Message], object], verdict: Disposition, seconds: int
) -> None:
    """The sink gets the disposition and the future, if one is returned. A deadline of 0 is a nack.

    A delay is rounded up, or the message would come too early.
    """
    outcomes = RecordingSettlementSink()
    one = message(outcomes)
    future = decide(one)
    assert outcomes.taken == [(verdict, one, seconds, future)]
    assert one.settled is (None if verdict is Disposition.EXTEND else verdict)


def test_the_settled_attribute_of_a_message_is_its_first_disposition() -> None:
    """Later dispositions are still sent to the server, which decides."""
    outcomes = RecordingSettlementSink()
    one = message(outcomes)
    one.modify_ack_deadline(10)
    one.nack()
    one.ack()
    one.drop()
    assert one.settled is Disposition.NACK
    assert [verdict for verdict, *_ in outcomes.taken] == [
        *(Disposition.EXTEND, Disposition.NACK, Disposition.ACK, Disposition.DROP),
    ]


@pytest.mark.parametrize("seconds", [-1, 601])
@pytest.mark.parametrize(
    "modify", [Message.modify_ack_deadline, Message.modify_ack_deadline_with_response]
)
def test_modify_ack_deadline_of_a_message_refuses_seconds_out_of_range(
    modify: Callable[[Message, int], object], seconds: int
) -> None:
    """The error has the value and the limits, and the sink gets nothing."""
    outcomes = RecordingSettlementSink()
    with pytest.raises(ValueError, match=f"seconds is {seconds}; .* between 0 and 600"):
        modify(message(outcomes), seconds)
    assert outcomes.taken == []


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        (-0.1, "delay is -0.1; .* between 0 and 600"),
        (600.5, "delay is 600.5; .* between 0 and 600"),
        (float("nan"), "delay is nan; it must be a number"),
    ],
)
@pytest.mark.parametrize("nack", [Message.nack, Message.nack_with_response])
def test_nack_of_a_message_refuses_a_delay_out_of_range(
    nack: Callable[[Message, float], object], delay: float, text: str
) -> None:
    """The message can still be settled in another way."""
    outcomes = RecordingSettlementSink()
    one = message(outcomes)
    with pytest.raises(ValueError, match=text):
        nack(one, delay)
    assert (outcomes.taken, one.settled) == ([], None)


RECEIVED = [
    pubsub.ReceivedMessage(ack_id=str(number), message=pubsub.PubsubMessage(data=b"x" * number))
    for number in range(6)
]


def messages_of(received: list[pubsub.ReceivedMessage], *, unparsed: bool) -> list[Message]:
    """Return the messages of one response, parsed or in encoded form."""
    response = pubsub.StreamingPullResponse(received_messages=received)
    raw = RawResponse(response.SerializeToString())
    return ResponseBatch(
        RecordingSettlementSink(), 0.0, 0, raw if unparsed else response
    ).messages()


@pytest.mark.parametrize("unparsed", [False, True])
def test_serializing_received_messages_yields_the_received_bytes(unparsed: bool) -> None:
    """The messages are a whole response, a part of one, or several in any order."""
    whole = messages_of(RECEIVED[:3], unparsed=unparsed)
    parts = messages_of(RECEIVED[3:], unparsed=True)
    wanted = [*whole, parts[1], parts[0], whole[2], *parts]
    numbers = (0, 1, 2, 4, 3, 2, 3, 4, 5)
    assert encoded_of(wanted) == [RECEIVED[number].SerializeToString() for number in numbers]
    assert ack_ids_of(wanted) == [str(number) for number in numbers]
    assert (encoded_of([]), ack_ids_of([])) == ([], [])


def test_a_message_parsed_on_access_has_the_same_fields_as_one_parsed_at_once() -> None:
    """Each access parses the message."""
    parsed, unparsed = (messages_of(RECEIVED, unparsed=kind)[5] for kind in (False, True))
    assert (unparsed.ack_id, unparsed.data, unparsed.message_id) == ("5", b"xxxxx", "")
    assert unparsed.received == parsed.received
    assert repr(unparsed) == repr(parsed)


def test_the_unparsed_messages_of_a_pull_response_can_be_iterated_like_a_list() -> None:
    """A message may have no ack id, although no server sends such messages."""
    some = [RECEIVED[1], pubsub.ReceivedMessage(), RECEIVED[3]]
    response = pubsub.PullResponse(received_messages=some)
    unparsed = RawResponse(response.SerializeToString()).received_messages
    assert list(unparsed) == some
    assert list(unparsed[1:]) == some[1:]
    assert list(unparsed.ack_ids) == ["1", "", "3"]


def test_the_ack_method_of_a_message_batch_acknowledges_every_unsettled_message_once() -> None:
    """Messages that were settled before are left out."""
    outcomes = RecordingSettlementSink()
    first, second, third = MessageBatch(message(outcomes) for _ in range(3))
    second.nack()
    batch = MessageBatch([first, second, third])
    batch.ack()
    batch.ack()
    MessageBatch().ack()
    assert [one.settled for one in batch] == [Disposition.ACK, Disposition.NACK, Disposition.ACK]
    assert [(verdict, one) for verdict, one, _, _ in outcomes.taken] == [
        (Disposition.NACK, second),
        (Disposition.ACK, first),
        (Disposition.ACK, third),
    ]


def test_the_ack_method_of_a_message_batch_acks_each_message_at_its_own_subscription() -> None:
    """A message that is in the list twice is acknowledged once."""
    one, other = RecordingSettlementSink(), RecordingSettlementSink()
    first, second = message(one), message(other)
    MessageBatch([first, second, first]).ack()
    assert [taken for _, taken, _, _ in one.taken] == [first]
    assert [taken for _, taken, _, _ in other.taken] == [second]
