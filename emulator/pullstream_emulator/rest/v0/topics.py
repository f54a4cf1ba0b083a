"""Endpoints for topics and their feed settings in /v0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from pullstream_emulator.logs.settings import MAX_IDEMPOTENCY_WINDOW, MAX_TTL
from pullstream_protocol.errors import InvalidArgument, NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .json_body import Body, WholeNumber
from .request import V0Request
from .short_names import short

T = TypeVar("T")

_DISCARD = {"old": feeds.OLD, "reject": feeds.REJECT}
_DURABILITY = {"memory": feeds.MEMORY, "disk": feeds.DISK, "fsync": feeds.FSYNC}
_DISCARD_NAMES = {number: name for name, number in _DISCARD.items()}
_DURABILITY_NAMES = {number: name for name, number in _DURABILITY.items()}

_MAX_TTL_MS = round(MAX_TTL * 1000)
_MAX_WINDOW_MS = round(MAX_IDEMPOTENCY_WINDOW * 1000)


class Settings(Body):
    """The settings of a topic's feed."""

    ttl_ms: Annotated[int, Meta(ge=0, le=_MAX_TTL_MS)] | None = None
    cap_records: WholeNumber | None = None
    cap_bytes: WholeNumber | None = None
    discard: str | None = None
    durable: bool | None = None
    durability: str | None = None
    auto_create: bool | None = None
    idempotency_window_ms: Annotated[int, Meta(ge=0, le=_MAX_WINDOW_MS)] | None = None
    dedupe_node: bool | None = None


async def put(request: V0Request) -> dict[str, Any]:
    """Create a topic, or change the feed settings of an existing one."""
    message = feeds.PutFeedRequest(topic=request.topic, config=_config(request.content(Settings)))
    feed = await request.call("PutFeed", message)
    return {"topic": request.name, "created": feed.created, "config": to_json(feed.config)}


async def get(request: V0Request) -> dict[str, Any]:
    """Return a topic's settings and state."""
    return state(await request.call("GetFeed", feeds.GetFeedRequest(topic=request.topic)))


async def list_all(request: V0Request) -> dict[str, Any]:
    """Return a page of the project's feeds, and the cursor of the next page."""
    response = await request.call("ListFeeds", feeds.ListFeedsRequest(**request.page()))
    return {
        "topics": [state(feed) for feed in response.feeds],
        **request.next_page(response.next_page_token),
    }


async def delete(request: V0Request) -> dict[str, Any]:
    """Delete a topic; for an unknown one, report that nothing was deleted."""
    try:
        await request.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=request.topic))
    except NotFound:
        return {"topic": request.name, "deleted": False}
    return {"topic": request.name, "deleted": True}


def _config(settings: Settings) -> feeds.FeedConfig:
    """Return the settings that a PUT asks for. Omitted ones have their defaults.

    Raises:
        InvalidArgument: A setting is invalid.
    """
    if settings.auto_create is False:
        raise InvalidArgument(
            "auto_create must be true; an append that must not create its topic has create: false."
        )
    config = feeds.FeedConfig(
        cap_records=settings.cap_records,
        cap_bytes=settings.cap_bytes,
        discard=_choice("discard", settings.discard, _DISCARD) or feeds.OLD,
        dedupe_node=settings.dedupe_node is not False,
    )
    if settings.ttl_ms:
        config.ttl.FromMilliseconds(settings.ttl_ms)
    if settings.idempotency_window_ms is not None:
        config.idempotency_window.FromMilliseconds(settings.idempotency_window_ms)
    durability = _choice("durability", settings.durability, _DURABILITY)
    if durability is not None:
        config.durability = durability
    elif settings.durable is not None:
        config.durability = feeds.FSYNC if settings.durable else feeds.DISK
    return config


def _choice(field: str, text: str | None, choices: Mapping[str, T]) -> T | None:
    """Return the value that a text selects; None if absent."""
    if text is not None and text not in choices:
        raise InvalidArgument(f"{field}: Expected one of {', '.join(choices)}.")
    return None if text is None else choices[text]


def to_json(config: feeds.FeedConfig) -> dict[str, Any]:
    """Return the settings in force."""
    return {
        "ttl_ms": config.ttl.ToMilliseconds(),
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "discard": _DISCARD_NAMES[config.discard],
        "durable": config.durability == feeds.FSYNC,
        "durability": _DURABILITY_NAMES[config.durability],
        "auto_create": True,
        "idempotency_window_ms": config.idempotency_window.ToMilliseconds(),
        "dedupe_node": config.dedupe_node,
    }


def state(feed: feeds.Feed) -> dict[str, Any]:
    """Return the present state of a topic."""
    return {
        "topic": short(feed.topic),
        "head_seq": feed.head_seq,
        "earliest_seq": feed.earliest_seq,
        "next_seq": feed.head_seq + 1,
        "count": feed.count,
        "bytes": feed.bytes,
        "watchers": feed.watchers,
        # As text, because it has more digits than a number of JavaScript.
        "epoch": str(feed.epoch),
        "config": to_json(feed.config),
    }
