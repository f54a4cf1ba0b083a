"""Reading of a topic from a position: the endpoint `diff`."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .json_body import MAX_INT32, Body, WholeNumber
from .records import MAX_RECORDS_WRITTEN, View, to_array
from .request import V0Request

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


class Start(Body):
    """A start position in a topic."""

    from_seq: WholeNumber | None = None
    tail: bool | None = None
    epoch: str | None = None
    filter: Any = None


class DiffBody(Start):
    """The body of a diff."""

    limit: WholeNumber | None = None
    max_batch_bytes: WholeNumber | None = None
    wait_ms: WholeNumber | None = None
    node: str | None = None
    include_data: bool | None = None
    include_tags: bool | None = None
    include_meta: bool | None = None


async def diff(request: V0Request) -> dict[str, Any]:
    """Return the records after a position, and the gap before them if records were lost."""
    body = request.content(DiffBody)
    view = View.of(body.include_data, body.include_tags, body.include_meta)
    message = feeds.ReadRequest(
        topic=request.topic,
        start=position(body),
        max_messages=min(body.limit or 0, MAX_INT32),
        max_bytes=body.max_batch_bytes,
        exclude_node=body.node,
        include_data=view.data,
    )
    message.wait.FromMilliseconds(min(body.wait_ms or 0, MAX_WAIT_MS))
    response: encoded.EncodedReadResponse = await request.call("Read", message)
    return {
        "topic": request.name,
        "records": await _records(list(response.messages), view),
        "next_from_seq": response.next_seq,
        "head_seq": response.head_seq,
        "earliest_seq": response.earliest_seq,
        "caught_up": response.caught_up,
        "lag": response.head_seq - response.next_seq,
        "tombstone": tombstone(response.gap) if response.HasField("gap") else None,
        "epoch": str(response.epoch),
    }


async def _records(messages: list[bytes], view: View) -> Raw:
    if sum(map(len, messages)) <= MAX_RECORDS_WRITTEN:
        return to_array(messages, view)
    return await asyncio.to_thread(to_array, messages, view)


def position(start: Start, at: str = "") -> feeds.Position:
    """Return a start position; `at` is the place of its fields in the body, for errors.

    Raises:
        InvalidArgument: The epoch or the filter is invalid.
    """
    result = feeds.Position()
    if start.tail:
        result.tail = True
    else:
        result.after_seq = start.from_seq or 0
    if start.epoch is not None:
        result.epoch = _epoch(start.epoch, f"{at}epoch")
    if start.filter is not None:
        result.filter = tag_filter.to_text(start.filter, f"{at}filter")
    return result


def _epoch(text: str, at: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_EPOCH))):
        raise InvalidArgument(f"{at} must be the text of a topic's epoch.")
    return min(int(text), _MAX_EPOCH)


def tombstone(gap: feeds.Gap) -> dict[str, Any]:
    """Return the range of a gap and its reason; for a position that was too old, also the cause."""
    content = {
        "reason": _REASONS[gap.reason],
        "gap_from": gap.from_seq,
        "gap_to": gap.to_seq,
        "earliest_seq": gap.earliest_seq,
        "head_seq": gap.head_seq,
    }
    return {**content, "cause": _REASONS[gap.cause]} if gap.cause else content
