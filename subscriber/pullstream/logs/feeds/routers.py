"""Routers and cursors of the Feeds service: copying between feeds, and named positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty

from pullstream.rpc.paging import AsyncPager, Pager
from pullstream.rpc.rpcs import CallOptions
from pullstream.rpc.unary_client import AsyncUnaryClient, UnaryClient
from pullstream_protocol import names
from pullstream_protocol.messages import feeds_pb2 as feeds

if TYPE_CHECKING:
    from typing_extensions import Unpack

Dict = Mapping[str, Any]


class RoutersClient(UnaryClient):
    """Manages routers, which copy the records of one feed to another: `client.routers`."""

    @staticmethod
    def path(project: str, router: str) -> str:
        """Return `projects/PROJECT/routers/ROUTER`."""
        return names.router_path(project, router)

    def put(self, router: feeds.Router | Dict, **options: Unpack[CallOptions]) -> feeds.Router:
        """Create a router, or replace the settings of an existing one.

        Records that are appended to its `source` from now on are copied to its `dest`, in order and
        at least once.

        Args:
            router: The name and the settings: `{"name": ..., "source": ..., "dest": ...}`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The router. Its `created` is True if the router is new.

        Raises:
            InvalidArgument: The filter is invalid, or the source is the destination.
            NotFound: The source does not exist; or the destination does not exist and `create_dest`
                is false.
            FailedPrecondition: The router would close a cycle, or its destination already has
                another source.
        """
        return self._call("PutRouter", feeds.Router, None, options, router=router)

    def get(self, name: str, **options: Unpack[CallOptions]) -> feeds.Router:
        """Return a router: its settings and its progress.

        Args:
            name: The full name of the router, `projects/P/routers/R`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The router does not exist.
        """
        return self._call("GetRouter", feeds.Router, None, options, name=name)

    def list(
        self,
        project: str,
        *,
        source: str | None = None,
        dest: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[feeds.Router]:
        """List the routers of a project.

        Args:
            project: The full name of the project, `projects/P`.
            source: Only routers that copy from this topic.
            dest: Only routers that copy to this topic.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        fields = {"project": project, "source": source, "dest": dest}
        return self._list("ListRouters", "routers", None, options, **fields)

    def delete(self, name: str, **options: Unpack[CallOptions]) -> None:
        """Delete a router. The records that it has copied are kept.

        Args:
            name: The full name of the router, `projects/P/routers/R`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The router does not exist.
        """
        self._call("DeleteRouter", Empty, None, options, name=name)


class CursorsClient(UnaryClient):
    """Manages cursors, named positions of readers on the broker: `client.cursors`."""

    @staticmethod
    def path(project: str, cursor: str) -> str:
        """Return `projects/PROJECT/cursors/CURSOR`."""
        return names.cursor_path(project, cursor)

    def put(self, cursor: feeds.Cursor | Dict, **options: Unpack[CallOptions]) -> feeds.Cursor:
        """Store a position.

        Args:
            cursor: The name and the position:
                `{"name": ..., "topic": ..., "seq": ..., "epoch": ...}`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The cursor as the broker stores it.
        """
        return self._call("PutCursor", feeds.Cursor, None, options, cursor=cursor)

    def get(self, name: str, **options: Unpack[CallOptions]) -> feeds.Cursor:
        """Return the position that was last stored under a name.

        Args:
            name: The full name of the cursor, `projects/P/cursors/C`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The cursor does not exist.
        """
        return self._call("GetCursor", feeds.Cursor, None, options, name=name)

    def list(self, project: str, **options: Unpack[CallOptions]) -> Pager[feeds.Cursor]:
        """List the cursors of a project.

        Args:
            project: The full name of the project, `projects/P`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListCursors", "cursors", None, options, project=project)

    def delete(self, name: str, **options: Unpack[CallOptions]) -> None:
        """Delete a stored position.

        Args:
            name: The full name of the cursor, `projects/P/cursors/C`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The cursor does not exist.
        """
        self._call("DeleteCursor", Empty, None, options, name=name)


class AsyncRoutersClient(AsyncUnaryClient):
    """Manages routers on an event loop: `client.routers` of an AsyncSubscriberClient.

    The methods are the methods of RoutersClient.
    """

    @staticmethod
    def path(project: str, router: str) -> str:
        """Return `projects/PROJECT/routers/ROUTER`."""
        return names.router_path(project, router)

    async def put(
        self, router: feeds.Router | Dict, **options: Unpack[CallOptions]
    ) -> feeds.Router:
        """Create a router, or replace its settings; see `RoutersClient.put`."""
        return await self._call("PutRouter", feeds.Router, options, router=router)

    async def get(self, name: str, **options: Unpack[CallOptions]) -> feeds.Router:
        """Return a router; see `RoutersClient.get`."""
        return await self._call("GetRouter", feeds.Router, options, name=name)

    def list(
        self,
        project: str,
        *,
        source: str | None = None,
        dest: str | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncPager[feeds.Router]:
        """List the routers of a project for an `async for` loop; see `RoutersClient.list`."""
        fields = {"project": project, "source": source, "dest": dest}
        return self._list("ListRouters", "routers", options, **fields)

    async def delete(self, name: str, **options: Unpack[CallOptions]) -> None:
        """Delete a router; see `RoutersClient.delete`."""
        await self._call("DeleteRouter", Empty, options, name=name)


class AsyncCursorsClient(AsyncUnaryClient):
    """Manages cursors on an event loop: `client.cursors` of an AsyncSubscriberClient.

    The methods are the methods of CursorsClient.
    """

    @staticmethod
    def path(project: str, cursor: str) -> str:
        """Return `projects/PROJECT/cursors/CURSOR`."""
        return names.cursor_path(project, cursor)

    async def put(
        self, cursor: feeds.Cursor | Dict, **options: Unpack[CallOptions]
    ) -> feeds.Cursor:
        """Store a position; see `CursorsClient.put`."""
        return await self._call("PutCursor", feeds.Cursor, options, cursor=cursor)

    async def get(self, name: str, **options: Unpack[CallOptions]) -> feeds.Cursor:
        """Return the position that was last stored under a name; see `CursorsClient.get`."""
        return await self._call("GetCursor", feeds.Cursor, options, name=name)

    def list(self, project: str, **options: Unpack[CallOptions]) -> AsyncPager[feeds.Cursor]:
        """List the cursors of a project for an `async for` loop; see `CursorsClient.list`."""
        return self._list("ListCursors", "cursors", options, project=project)

    async def delete(self, name: str, **options: Unpack[CallOptions]) -> None:
        """Delete a stored position; see `CursorsClient.delete`."""
        await self._call("DeleteCursor", Empty, options, name=name)
