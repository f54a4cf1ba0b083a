"""Endpoints for routers in /v0."""

from __future__ import annotations

from typing import Any

from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import tag_filter
from .json_body import Body
from .request import V0Request
from .short_names import short


class RouterBody(Body):
    """The settings of a router."""

    source: str
    dest: str
    preserve_node: bool | None = None
    preserve_tag: bool | None = None
    create_dest: bool | None = None
    filter: Any = None
    allow_cycle: bool | None = None


async def put(request: V0Request) -> dict[str, Any]:
    """Create or replace a router; create its destination unless `create_dest` is false."""
    body = request.content(RouterBody)
    router = feeds.Router(
        name=request.router,
        source=request.topic_path(body.source),
        dest=request.topic_path(body.dest),
        preserve_node=body.preserve_node is not False,
        preserve_tag=body.preserve_tag is not False,
        create_dest=body.create_dest is not False,
        allow_cycle=bool(body.allow_cycle),
    )
    if body.filter is not None:
        router.filter = tag_filter.to_text(body.filter, "filter")
    made = await request.call("PutRouter", feeds.PutRouterRequest(router=router))
    return {"router": request.name, "created": made.created, **_settings(made)}


async def get(request: V0Request) -> dict[str, Any]:
    """Return a router's settings and progress."""
    return _state(await request.call("GetRouter", feeds.GetRouterRequest(name=request.router)))


async def list_all(request: V0Request) -> dict[str, Any]:
    """List all routers, or only the routers of one source or one destination."""
    message = feeds.ListRoutersRequest(**request.page())
    if source := request.query.get("source"):
        message.source = request.topic_path(source)
    if dest := request.query.get("dest"):
        message.dest = request.topic_path(dest)
    response = await request.call("ListRouters", message)
    return {
        "routers": [_state(router) for router in response.routers],
        **request.next_page(response.next_page_token),
    }


async def delete(request: V0Request) -> dict[str, Any]:
    """Delete a router; for an unknown one, report that nothing was deleted."""
    try:
        await request.call("GetRouter", feeds.GetRouterRequest(name=request.router))
    except NotFound:
        return {"router": request.name, "deleted": False}
    await request.call("DeleteRouter", feeds.DeleteRouterRequest(name=request.router))
    return {"router": request.name, "deleted": True}


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
