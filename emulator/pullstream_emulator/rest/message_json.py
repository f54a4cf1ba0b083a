"""Messages and events as JSON, for the requests below /v0 that show them."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from pullstream_emulator.admin.admin import date
from pullstream_emulator.engine.record import Record
from pullstream_emulator.history import Event

# Bytes of a message's data that lists and streams show. A request for one message shows all.
SHOWN_BYTES = 4096


def message_json(record: Record, most_bytes: int | None = SHOWN_BYTES) -> dict[str, Any]:
    """Return a message in the form of the API, with `dataBytes`, the size of its data.

    Args:
        record: The message.
        most_bytes: Bytes of data to include; None for all.
    """
    message = record.message()
    data = message.data
    if most_bytes is not None and len(data) > most_bytes:
        message.data = data[:most_bytes]
    fields: dict[str, Any] = MessageToDict(message)
    return {**fields, "dataBytes": len(data)}


def event_json(event: Event, topic: str) -> dict[str, Any]:
    """Return an event with its message.

    Args:
        event: The event.
        topic: The topic of its message; empty if it is unknown.
    """
    return {
        "number": event.number,
        "kind": event.kind.value,
        "time": date(event.time),
        "resource": event.resource,
        "topic": topic,
        "messageId": event.message_id,
        "ackId": event.ack_id,
        "attempt": event.attempt,
        "seconds": event.seconds,
        "detail": event.detail,
        "message": message_json(event.record),
    }
