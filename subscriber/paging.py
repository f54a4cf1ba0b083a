"""Lists that arrive page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pager(Generic[T]):
    """The items of a list call. Iterating asks for the next page only when it is reached.

    The first page is there from the start, so that a refused call raises where it was made. Each
    iteration begins with that page again.
    """

    def __init__(self, fetch: Callable[[str], Any], items: str) -> None:
        """`fetch` gets the page with a token ("" is the first); `items` is its repeated field."""
        self._fetch = fetch
        self._items = items
        self._first = fetch("")

    @property
    def pages(self) -> Iterator[Any]:
        """The responses themselves, one for each call."""
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
