"""Endpoints for routers in /v0."""

from __future__ import annotations

from typing import Any

from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .fields import Fields, text
from .request import V0Request
from .short_names import short

FIELDS = (
    "source", "dest", "preserve_node", "preserve_tag", "create_dest", "filter", "allow_cycle",
)  # fmt: skip


async def put(asked: V0Request) -> dict[str, Any]:
    """Create or replace a router; create its destination unless `create_dest` is false."""
    fields = Fields(asked.content(), FIELDS)
    router = feeds.Router(
        name=asked.router,
        source=asked.topic_path(text(fields.required("source"), "source")),
        dest=asked.topic_path(text(fields.required("dest"), "dest")),
        preserve_node=fields.flag("preserve_node", True),
        preserve_tag=fields.flag("preserve_tag", True),
        create_dest=fields.flag("create_dest", True),
        allow_cycle=fields.flag("allow_cycle", False),
    )
    if "filter" in fields:
        router.filter = tag_filter.to_text(fields.value("filter"), "filter")
    made = await asked.call("PutRouter", feeds.PutRouterRequest(router=router))
    return {"router": asked.name, "created": made.created, **_settings(made)}


async def get(asked: V0Request) -> dict[str, Any]:
    """Return a router's settings and progress."""
    return _state(await asked.call("GetRouter", feeds.GetRouterRequest(name=asked.router)))


async def list_all(asked: V0Request) -> dict[str, Any]:
    """List all routers, or only the routers of one source or one destination."""
    request = feeds.ListRoutersRequest(
        project=asked.parent, page_size=asked.page_size(), page_token=asked.page_token()
    )
    if source := asked.query.get("source"):
        request.source = asked.topic_path(source)
    if dest := asked.query.get("dest"):
        request.dest = asked.topic_path(dest)
    response = await asked.call("ListRouters", request)
    return {
        "routers": [_state(router) for router in response.routers],
        **asked.next_page(response.next_page_token),
    }


async def delete(asked: V0Request) -> dict[str, Any]:
    """Delete a router; for an unknown one, report that nothing was deleted."""
    try:
        await asked.call("GetRouter", feeds.GetRouterRequest(name=asked.router))
    except NotFound:
        return {"router": asked.name, "deleted": False}
    await asked.call("DeleteRouter", feeds.DeleteRouterRequest(name=asked.router))
    return {"router": asked.name, "deleted": True}


def _settings(router: feeds.Router) -> dict[str, Any]:
    return {
        "source": short(router.source),
        "dest": short(router.dest),
        "preserve_node": router.preserve_node,
        "preserve_tag": router.preserve_tag,
        "filter": tag_filter.to_json(router.filter),
        "allow_cycle": router.allow_cycle,
    }


def _state(router: feeds.Router) -> dict[str, Any]:
    return {
        "router": short(router.name),
        **_settings(router),
        "create_dest": router.create_dest,
        "forwarded_total": router.forwarded,
        "position": router.position,
    }
