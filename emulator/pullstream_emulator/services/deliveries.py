"""Deliveries as parts of a response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pullstream_emulator.engine import Delivery
from pullstream_emulator.engine.delivery.lease_runs import DeliverySpan
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# The field `delivery_attempt` of a first delivery.
_FIRST_ATTEMPT = b"\x18\x01"


def add_deliveries(
    response: encoded.EncodedPullResponse | encoded.EncodedStreamingPullResponse,
    deliveries: Sequence[Delivery],
    config: pubsub.Subscription,
) -> None:
    """Add deliveries to a response, with the stored bytes of each message.

    Args:
        response: The response to which the messages are added.
        deliveries: The deliveries.
        config: The subscription's settings.
    """
    # The response has delivery attempts only with a dead-letter policy.
    with_attempts = config.HasField("dead_letter_policy")
    if type(deliveries) is DeliverySpan:
        response.MergeFromString(received_messages(deliveries, with_attempts=with_attempts))
        return
    # Creating the entries in the response takes half the time of copying a list into it.
    add = response.received_messages.add
    for delivery in deliveries:
        received = add()
        received.ack_id = delivery.ack_id
        received.message = delivery.record.encoded
        if with_attempts:
            received.delivery_attempt = delivery.attempts + 1


def received_messages(span: DeliverySpan, *, with_attempts: bool) -> bytes:
    """Return the serialized field `received_messages` of a response.

    One formatting call writes the IDs and copies the bytes of many messages: 0.2 us for a message
    of 100 bytes. Its record, its ack ID as a text and its entry in a response took 1.1.

    Args:
        span: First deliveries.
        with_attempts: Whether they have the field `delivery_attempt`.
    """
    texts: list[bytes] = []
    begun = 0
    for bodies, time in span.records.stored():
        place = slice(begun, begun + len(bodies))
        begun = place.stop
        numbers, seqs = span.ack_ids.numbers[place], span.seqs[place]
        for part in _with_equal_digits(numbers, seqs):
            end = _FIRST_ATTEMPT if with_attempts else b""
            ids = numbers[part], span.ack_ids.mark, seqs[part]
            texts.append(_entries(*ids, bodies[part], time, end))
    return b"".join(texts)


def _with_equal_digits(numbers: range, seqs: range) -> Iterator[slice]:
    """Yield parts whose ack numbers have equally many digits, and their sequence numbers too."""
    begun = 0
    while begun < len(numbers):
        number, seq = numbers[begun], seqs[begun]
        count = min(16 ** len(f"{number:x}") - number, 10 ** len(f"{seq}") - seq)
        yield slice(begun, begun + count)
        begun += count


def _entries(
    numbers: range, mark: str, seqs: range, bodies: Sequence[bytes], time: bytes | None, end: bytes
) -> bytes:
    """Return serialized entries of `received_messages`, whose IDs have equally many digits.

    Args:
        numbers: The numbers of the ack IDs.
        mark: The part of the ack IDs after the number.
        seqs: The message IDs.
        bodies: The serialized messages.
        time: The publish time that they lack, as they lack the message ID; None: they are complete.
        end: The end of each entry.
    """
    ack_id_size = len(f"{numbers[0]:x}{mark}")
    columns: list[Sequence[object]] = [numbers, bodies]
    tail, tail_size = b"", 0
    if time is not None:
        columns.append(seqs)
        digits = len(f"{seqs[0]}")
        tail = _literal(b"\x1a" + _varint(digits)) + b"%d" + _literal(time)
        tail_size = 2 + digits + len(time)
    forms: dict[int, bytes] = {}
    for size in set(map(len, bodies)):
        message = b"\x12" + _varint(size + tail_size)
        head = b"\n" + _varint(ack_id_size)
        total = len(head) + ack_id_size + len(message) + size + tail_size + len(end)
        before = b"\n" + _varint(total) + head
        ack_id = b"%x" + _literal(mark.encode())
        forms[size] = _literal(before) + ack_id + _literal(message) + b"%b" + tail + end
    values: list[object] = [None] * (len(columns) * len(bodies))
    for at, column in enumerate(columns):
        values[at :: len(columns)] = column
    if len(forms) == 1:
        form = forms[len(bodies[0])] * len(bodies)
    else:
        form = b"".join([forms[len(body)] for body in bodies])
    return form % tuple(values)


def _literal(text: bytes) -> bytes:
    """Return a text as it is written in a format."""
    return text.replace(b"%", b"%%")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
