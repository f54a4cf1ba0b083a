"""Pager and AsyncPager: results of list calls, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pager(Generic[T]):
    """The items of a list call. The iteration requests a page when it reaches it.

    The constructor requests the first page, so a refused call raises its error there. Each
    iteration begins with this first page.
    """

    def __init__(self, fetch: Callable[[str], Any], items: str) -> None:
        """Request the first page.

        Args:
            fetch: Returns the page for a page token; "" stands for the first page.
            items: Name of the repeated field that holds a page's items.
        """
        self._fetch = fetch
        self._items = items
        self._first = fetch("")

    @property
    def pages(self) -> Iterator[Any]:
        """The responses, one for each call."""
        page = self._first
        yield page
        while page.next_page_token:
            page = self._fetch(page.next_page_token)
            yield page

    def __iter__(self) -> Iterator[T]:
        for page in self.pages:
            yield from getattr(page, self._items)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._items}>"


class AsyncPager(Generic[T]):
    """The items of a list call on an event loop. The iteration requests each page it reaches.

    A refused call raises its error in the iteration. Each iteration begins with a new first page.

    Args:
        fetch: Returns the page for a page token; "" stands for the first page.
        items: Name of the repeated field that holds a page's items.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[Any]], items: str) -> None:
        self._fetch = fetch
        self._items = items

    @property
    async def pages(self) -> AsyncIterator[Any]:
        """The responses, one for each call."""
        token = ""
        while True:
            page = await self._fetch(token)
            yield page
            token = page.next_page_token
            if not token:
                return

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages:
            for item in getattr(page, self._items):
                yield item

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._items}>"
