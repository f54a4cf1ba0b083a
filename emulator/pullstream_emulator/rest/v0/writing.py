"""Appending to a topic, and deleting from it."""

from __future__ import annotations

import asyncio
from typing import Any

from pullstream_emulator.rest.http_request import MAX_QUICK
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .fields import Fields, text
from .json_text import loads_records
from .records import to_messages
from .request import V0Request

APPEND_FIELDS = ("records", "node", "idempotency_key", "create")
DELETE_FIELDS = ("before_seq", "match")


async def append(asked: V0Request) -> dict[str, Any]:
    """Append the body's records; a repeated `Idempotency-Key` returns the first result."""
    key = asked.http.headers.get("Idempotency-Key", "")
    if len(asked.body) > MAX_QUICK:
        request = await asyncio.to_thread(_append_request, asked.topic, asked.body, key)
    else:
        request = _append_request(asked.topic, asked.body, key)
    response = await asked.call("Append", request)
    return {
        "topic": asked.name,
        "first_seq": response.first_seq,
        "last_seq": response.last_seq,
        "seqs": list(range(response.first_seq, response.last_seq + 1)),
        "head_seq": response.head_seq,
        "count": response.count,
        "created": response.created,
        "deduped": response.deduped,
    }


def _append_request(topic: str, body: bytes, key: str) -> feeds.AppendRequest:
    """Build an Append; `key` is the header's idempotency key, used if the body has none."""
    fields = Fields(loads_records(body), APPEND_FIELDS)
    return feeds.AppendRequest(
        topic=topic,
        messages=to_messages(fields.required("records"), "records", fields.text("node")),
        idempotency_key=fields.text("idempotency_key") or text(key, "Idempotency-Key"),
        create=fields.flag("create", True),
    )


async def delete(asked: V0Request) -> dict[str, Any]:
    """Delete records. The numbers in the response are those after the deletion."""
    fields = Fields(asked.content(), DELETE_FIELDS)
    request = feeds.DeleteMessagesRequest(topic=asked.topic, before_seq=fields.whole("before_seq"))
    if "match" in fields:
        request.filter = tag_filter.to_text(fields.value("match"), "match")
    elif not request.before_seq:
        raise InvalidArgument("before_seq or match is missing: one of them must select records.")
    response = await asked.call("DeleteMessages", request)
    feed = await asked.call("GetFeed", feeds.GetFeedRequest(topic=asked.topic))
    return {
        "topic": asked.name,
        "deleted": response.deleted,
        "earliest_seq": feed.earliest_seq,
        "head_seq": feed.head_seq,
        "count": feed.count,
        "bytes": feed.bytes,
    }
