"""Appending to a topic, and deleting from it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from pullstream_emulator.logs.append_limits import MAX_RECORDS
from pullstream_emulator.rest.http_request import MAX_QUICK
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .json_body import Body, WholeNumber, read_body
from .records import Record, to_messages
from .request import V0Request, valid_text


class AppendBody(Body):
    """The body of an append."""

    records: Annotated[list[Record], Meta(min_length=1, max_length=MAX_RECORDS)]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None


class DeleteBody(Body):
    """The body of a deletion."""

    before_seq: WholeNumber | None = None
    match: Any = None


async def append(request: V0Request) -> dict[str, Any]:
    """Append the body's records; a repeated `Idempotency-Key` returns the first result."""
    if len(request.body) > MAX_QUICK:
        message = await asyncio.to_thread(_append_request, request)
    else:
        message = _append_request(request)
    response = await request.call("Append", message)
    return {
        "topic": request.name,
        "first_seq": response.first_seq,
        "last_seq": response.last_seq,
        "seqs": list(range(response.first_seq, response.last_seq + 1)),
        "head_seq": response.head_seq,
        "count": response.count,
        "created": response.created,
        "deduped": response.deduped,
    }


def _append_request(request: V0Request) -> feeds.AppendRequest:
    body = read_body(request.body, AppendBody, Record)
    key = valid_text(request.http.headers.get("Idempotency-Key", ""), "Idempotency-Key")
    return feeds.AppendRequest(
        topic=request.topic,
        messages=to_messages(body.records, body.node),
        idempotency_key=body.idempotency_key or key,
        create=body.create is not False,
    )


async def delete(request: V0Request) -> dict[str, Any]:
    """Delete records. The numbers in the response are those after the deletion."""
    body = request.content(DeleteBody)
    message = feeds.DeleteMessagesRequest(topic=request.topic, before_seq=body.before_seq)
    if body.match is not None:
        message.filter = tag_filter.to_text(body.match, "match")
    elif not message.before_seq:
        raise InvalidArgument("before_seq or match is missing: one of them must select records.")
    response = await request.call("DeleteMessages", message)
    feed = await request.call("GetFeed", feeds.GetFeedRequest(topic=request.topic))
    return {
        "topic": request.name,
        "deleted": response.deleted,
        "earliest_seq": feed.earliest_seq,
        "head_seq": feed.head_seq,
        "count": feed.count,
        "bytes": feed.bytes,
    }
