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


async def put(asked: V0Request) -> dict[str, Any]:
    """Create or replace a router; create its destination unless `create_dest` is false."""
    body = asked.content(RouterBody)
    router = feeds.Router(
        name=asked.router,
        source=asked.topic_path(body.source),
        dest=asked.topic_path(body.dest),
        preserve_node=body.preserve_node is not False,
        preserve_tag=body.preserve_tag is not False,
        create_dest=body.create_dest is not False,
        allow_cycle=bool(body.allow_cycle),
    )
    if body.filter is not None:
        router.filter = tag_filter.to_text(body.filter, "filter")
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
