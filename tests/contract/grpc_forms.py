"""Translation between the forms of /v0 and the messages of the Feeds service."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import grpc

from pullstream_protocol.errors import from_rpc_error
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.contract.face import FaceError, Json

PROJECT = "projects/default"

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: (400, "invalid_request"),
    grpc.StatusCode.NOT_FOUND: (404, "not_found"),
    grpc.StatusCode.ALREADY_EXISTS: (409, "conflict"),
    grpc.StatusCode.ABORTED: (409, "conflict"),
    grpc.StatusCode.FAILED_PRECONDITION: (409, "conflict"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "throttled"),
    grpc.StatusCode.UNAVAILABLE: (503, "unavailable"),
}
_REASONS = {
    feeds.CAP: "cap",
    feeds.TTL: "ttl",
    feeds.MIXED: "mixed",
    feeds.FROM_SEQ_TOO_OLD: "from_seq_too_old",
    feeds.RECREATED: "recreated",
    feeds.SOURCE_TRIM: "source_trim",
}
_DURABILITY = {"memory": feeds.MEMORY, "disk": feeds.DISK, "fsync": feeds.FSYNC}
_DURABILITY_NAMES = {value: name for name, value in _DURABILITY.items()}


def topic_path(name: str) -> str:
    """Return the resource name of a topic of /v0, in its default project."""
    return f"{PROJECT}/topics/{quote(name, safe='-_.~+%')}"


def router_path(name: str) -> str:
    return f"{PROJECT}/routers/{quote(name, safe='-_.~+%')}"


def short(path: str) -> str:
    return unquote(path.rsplit("/", 1)[-1])


def face_error(error: grpc.RpcError) -> FaceError:
    """Return the error of /v0 that corresponds to the status of a failed call."""
    ours = from_rpc_error(error)
    status, code = _STATUS.get(ours.grpc_status_code, (500, "internal"))
    if ours.reason:
        code = ours.reason.lower()
    return FaceError(422 if code == "topic_full" else status, code, ours.message)


def to_config(config: Json) -> feeds.FeedConfig:
    given = dict(config)
    message = feeds.FeedConfig(
        cap_records=given.pop("cap_records", 0),
        cap_bytes=given.pop("cap_bytes", 0),
        discard=feeds.REJECT if given.pop("discard", "old") == "reject" else feeds.OLD,
        dedupe_node=given.pop("dedupe_node", True),
    )
    message.ttl.FromMilliseconds(given.pop("ttl_ms", 0))
    if "idempotency_window_ms" in given:
        message.idempotency_window.FromMilliseconds(given.pop("idempotency_window_ms"))
    if "durable" in given:
        message.durability = feeds.FSYNC if given.pop("durable") else feeds.DISK
    if "durability" in given:
        message.durability = _DURABILITY[given.pop("durability")]
    assert not given, f"unknown settings: {given}"
    return message


def config_of(config: feeds.FeedConfig) -> Json:
    return {
        "ttl_ms": config.ttl.ToMilliseconds(),
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "discard": "reject" if config.discard == feeds.REJECT else "old",
        "durable": config.durability == feeds.FSYNC,
        "durability": _DURABILITY_NAMES[config.durability],
        "auto_create": True,
        "idempotency_window_ms": config.idempotency_window.ToMilliseconds(),
        "dedupe_node": config.dedupe_node,
    }


def topic_of(feed: feeds.Feed) -> Json:
    return {
        "topic": short(feed.topic),
        "head_seq": feed.head_seq,
        "earliest_seq": feed.earliest_seq,
        "next_seq": feed.head_seq + 1,
        "count": feed.count,
        "bytes": feed.bytes,
        "watchers": feed.watchers,
        "epoch": str(feed.epoch),
        "config": config_of(feed.config),
    }


def router_of(router: feeds.Router) -> Json:
    return {
        "router": short(router.name),
        "source": short(router.source),
        "dest": short(router.dest),
        "preserve_node": router.preserve_node,
        "preserve_tag": router.preserve_tag,
        "filter": filter_of(router.filter),
        "allow_cycle": router.allow_cycle,
        "create_dest": router.create_dest,
        "forwarded_total": router.forwarded,
        "position": router.position,
    }


def to_filter(value: Any) -> str:
    """Return the broker's filter for ["tag", "Eq" or "Glob", text]. Other values pass unchanged."""
    if value is None:
        return ""
    match value:
        case ["tag", "Eq", str() as tag]:
            return f"attributes.tag = {json.dumps(tag)}"
        case ["tag", "Glob", str() as glob] if glob.find("*") == len(glob) - 1:
            return f"hasPrefix(attributes.tag, {json.dumps(glob[:-1])})"
    return json.dumps(value)


def filter_of(text: str) -> Any:
    if not text:
        return None
    value = json.loads(text[text.index('"') : text.rindex('"') + 1])
    return ["tag", "Glob", value + "*"] if text.startswith("hasPrefix") else ["tag", "Eq", value]


def to_position(start: Mapping[str, Any]) -> feeds.Position:
    position = feeds.Position(
        epoch=int(start.get("epoch", 0)), filter=to_filter(start.get("filter"))
    )
    if start.get("tail"):
        position.tail = True
    else:
        position.after_seq = start.get("from_seq", 0)
    return position


def to_message(record: Json, node: str | None) -> pubsub.PubsubMessage:
    attributes = dict(record.get("meta", {}))
    if "tag" in record:
        attributes["tag"] = record["tag"]
    if record.get("node", node) is not None:
        attributes["node"] = record.get("node", node)
    return pubsub.PubsubMessage(
        data=json.dumps(record["data"]).encode(),
        attributes=attributes,
        ordering_key=record.get("key", ""),
    )


def records_of(messages: Sequence[pubsub.PubsubMessage], *, data: bool, tags: bool) -> list[Json]:
    return [record_of(message, data=data, tags=tags) for message in messages]


def record_of(message: pubsub.PubsubMessage, *, data: bool, tags: bool) -> Json:
    attributes = dict(message.attributes)
    tag, node = attributes.pop("tag", None), attributes.pop("node", None)
    record: Json = {
        "$seq": int(message.message_id),
        "$ts": message.publish_time.ToMilliseconds(),
    }
    if tags and tag is not None:
        record["$tag"] = tag
    if node is not None:
        record["$node"] = node
    if message.ordering_key and data:
        record["$key"] = message.ordering_key
    if data:
        record["data"] = value_of(message.data)
    elif message.data:
        raise AssertionError("data came that was not wanted")
    if attributes:
        record["meta"] = attributes
    return record


def value_of(data: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(data)
    return {"$bytes": b64encode(data).decode()}


def tombstone_of(gap: feeds.Gap) -> Json:
    told: Json = {
        "reason": _REASONS[gap.reason],
        "gap_from": gap.from_seq,
        "gap_to": gap.to_seq,
        "earliest_seq": gap.earliest_seq,
        "head_seq": gap.head_seq,
    }
    return {**told, "cause": _REASONS[gap.cause]} if gap.cause else told
