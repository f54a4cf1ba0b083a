"""Writing to a topic, and deleting from it."""

from __future__ import annotations

from typing import Any

from protocol.errors import InvalidArgument
from protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .fields import Fields, text
from .json_text import loads_records
from .records import to_messages
from .request import V0Request

APPEND_FIELDS = ("records", "node", "idempotency_key", "create")
DELETE_FIELDS = ("before_seq", "match")


async def append(asked: V0Request) -> dict[str, Any]:
    fields = Fields(loads_records(asked.body), APPEND_FIELDS)
    key = fields.text("idempotency_key") or text(
        asked.http.headers.get("Idempotency-Key", ""), "Idempotency-Key"
    )
    request = feeds.AppendRequest(
        topic=asked.topic,
        messages=to_messages(fields.required("records"), "records", fields.text("node")),
        idempotency_key=key,
        create=fields.flag("create", True),
    )
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


async def delete(asked: V0Request) -> dict[str, Any]:
    """Remove records on purpose. The numbers of the answer are those after it."""
    fields = Fields(asked.content(), DELETE_FIELDS)
    request = feeds.DeleteMessagesRequest(topic=asked.topic, before_seq=fields.whole("before_seq"))
    if "match" in fields:
        request.filter = tag_filter.to_text(fields.value("match"), "match")
    elif not request.before_seq:
        raise InvalidArgument("One of before_seq and match must say what to delete.")
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
