"""Routers and cursors of the Feeds service: copies from feed to feed, and positions by name.

Methods take requests, keywords and call options as those of `subscriber.admin` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from protocol import names
from protocol.messages import feeds_pb2 as feeds
from subscriber.paging import Pager
from subscriber.rpc import CallOptions
from subscriber.service import ServiceClient

if TYPE_CHECKING:
    from typing_extensions import Unpack

Dict = Mapping[str, Any]


class RouterAdmin(ServiceClient):
    """Manages routers, which copy what is appended to one feed to another."""

    @staticmethod
    def router_path(project: str, router: str) -> str:
        """`projects/PROJECT/routers/ROUTER`."""
        return names.router_path(project, router)

    def put_router(
        self,
        request: feeds.PutRouterRequest | Dict | None = None,
        *,
        router: feeds.Router | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Router:
        """Make a router, or give the one of this name other settings.

        What is appended to its `source` from now on is copied to its `dest`, in order, at least
        once. `created` of what is returned tells whether it is new.

        Raises:
            InvalidArgument: the filter is wrong, or the source is the destination.
            NotFound: there is no such source, or no destination and `create_dest` is false.
            FailedPrecondition: it would close a cycle, or its destination has another source.
        """
        return self._call("PutRouter", feeds.Router, request, options, router=router)

    def get_router(
        self,
        request: feeds.GetRouterRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Router:
        """A router: its settings, and how far it has come."""
        return self._call("GetRouter", feeds.Router, request, options, name=name)

    def list_routers(
        self,
        request: feeds.ListRoutersRequest | Dict | None = None,
        *,
        project: str | None = None,
        source: str | None = None,
        dest: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[feeds.Router]:
        """The routers of a project, `projects/P`, or of those the ones of a `source` or `dest`."""
        fields = {"project": project, "source": source, "dest": dest}
        return self._list("ListRouters", "routers", request, options, **fields)

    def delete_router(
        self,
        request: feeds.DeleteRouterRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete a router. What it has copied stays."""
        self._call("DeleteRouter", Empty, request, options, name=name)


class CursorAdmin(ServiceClient):
    """Manages cursors: positions of readers, kept by the broker under a name."""

    @staticmethod
    def cursor_path(project: str, cursor: str) -> str:
        """`projects/PROJECT/cursors/CURSOR`."""
        return names.cursor_path(project, cursor)

    def put_cursor(
        self,
        request: feeds.PutCursorRequest | Dict | None = None,
        *,
        cursor: feeds.Cursor | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Cursor:
        """Keep a position: `{"name": ..., "topic": ..., "seq": ..., "epoch": ...}`."""
        return self._call("PutCursor", feeds.Cursor, request, options, cursor=cursor)

    def get_cursor(
        self,
        request: feeds.GetCursorRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Cursor:
        """The position that was kept last under a name."""
        return self._call("GetCursor", feeds.Cursor, request, options, name=name)

    def list_cursors(
        self,
        request: feeds.ListCursorsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[feeds.Cursor]:
        """The cursors of a project, `projects/P`; later pages are got as they are reached."""
        return self._list("ListCursors", "cursors", request, options, project=project)

    def delete_cursor(
        self,
        request: feeds.DeleteCursorRequest | Dict | None = None,
        *,
        name: str | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Forget a position."""
        self._call("DeleteCursor", Empty, request, options, name=name)
