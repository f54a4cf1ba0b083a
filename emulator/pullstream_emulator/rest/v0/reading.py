"""Reading of a topic from a position: the endpoint `diff`."""

from __future__ import annotations

import asyncio
from typing import Any

from pullstream_emulator.rest.json_text import Json
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .fields import MAX_INT32, Fields
from .records import MAX_RECORDS_WRITTEN, View, to_json
from .request import V0Request

FIELDS = (
    "from_seq", "tail", "epoch", "filter", "limit", "max_batch_bytes", "wait_ms", "node",
    "include_data", "include_tags", "include_meta",
)  # fmt: skip

# Longest wait, in milliseconds. Longer ones are reduced to this.
MAX_WAIT_MS = 30_000

_MAX_EPOCH = 2**64 - 1

_REASONS = {
    feeds.CAP: "cap",
    feeds.TTL: "ttl",
    feeds.MIXED: "mixed",
    feeds.FROM_SEQ_TOO_OLD: "from_seq_too_old",
    feeds.RECREATED: "recreated",
    feeds.SOURCE_TRIM: "source_trim",
}


async def diff(asked: V0Request) -> dict[str, Any]:
    """Return the records after a position, and the gap before them if records were lost."""
    fields = Fields(asked.content(), FIELDS)
    view = View.from_fields(fields)
    request = feeds.ReadRequest(
        topic=asked.topic,
        start=position(fields),
        max_messages=fields.clamped("limit", MAX_INT32),
        max_bytes=fields.whole("max_batch_bytes"),
        exclude_node=fields.text("node"),
        include_data=view.data,
    )
    request.wait.FromMilliseconds(fields.clamped("wait_ms", MAX_WAIT_MS))
    response: encoded.EncodedReadResponse = await asked.call("Read", request)
    return {
        "topic": asked.name,
        "records": await _records(list(response.messages), view),
        "next_from_seq": response.next_seq,
        "head_seq": response.head_seq,
        "earliest_seq": response.earliest_seq,
        "caught_up": response.caught_up,
        "lag": response.head_seq - response.next_seq,
        "tombstone": tombstone(response.gap) if response.HasField("gap") else None,
        "epoch": str(response.epoch),
    }


async def _records(messages: list[bytes], view: View) -> Json:
    if sum(map(len, messages)) <= MAX_RECORDS_WRITTEN:
        return to_json(messages, view)
    return await asyncio.to_thread(to_json, messages, view)


def position(fields: Fields) -> feeds.Position:
    """Return the start position from the members from_seq, tail, epoch and filter."""
    start = feeds.Position()
    if fields.flag("tail", False):
        start.tail = True
    else:
        start.after_seq = fields.whole("from_seq")
    if "epoch" in fields:
        start.epoch = _epoch(fields)
    if "filter" in fields:
        start.filter = tag_filter.to_text(fields.value("filter"), fields.path("filter"))
    return start


def _epoch(fields: Fields) -> int:
    told = fields.text("epoch")
    if not (told.isascii() and told.isdigit() and len(told) <= len(str(_MAX_EPOCH))):
        raise InvalidArgument(f"{fields.path('epoch')} must be the text of a topic's epoch.")
    return min(int(told), _MAX_EPOCH)


def tombstone(gap: feeds.Gap) -> dict[str, Any]:
    """Return the range of a gap and its reason; for a position that was too old, also the cause."""
    told = {
        "reason": _REASONS[gap.reason],
        "gap_from": gap.from_seq,
        "gap_to": gap.to_seq,
        "earliest_seq": gap.earliest_seq,
        "head_seq": gap.head_seq,
    }
    return {**told, "cause": _REASONS[gap.cause]} if gap.cause else told
