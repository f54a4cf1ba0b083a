"""One request to /v0, taken apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from google.protobuf.message import Message

from protocol import names
from protocol.errors import InvalidArgument

from .fields import quoted
from .json_text import loads
from .short_names import router_path, topic_path

# Of a page's size, so that it fits into its field. The broker has a smaller maximum.
_MAX_DIGITS = 9


@dataclass(frozen=True)
class V0Request:
    """What an endpoint is asked.

    http: with no parameters in its query that the endpoint has not.
    name: of the resource in the path, empty for a collection.
    project: its id. The caller may use it.
    call: carries out an RPC of this name; raises what it ends with.
    """

    http: web.Request
    name: str
    project: str
    body: bytes
    call: Callable[[str, Message], Awaitable[Any]]

    @property
    def query(self) -> Mapping[str, str]:
        return self.http.query

    @property
    def parent(self) -> str:
        return names.project_path(self.project)

    @property
    def topic(self) -> str:
        return self.topic_path(self.name)

    @property
    def router(self) -> str:
        return _checked("routers", router_path(self.project, self.name), self.name)

    def topic_path(self, name: str) -> str:
        return _checked("topics", topic_path(self.project, name), name)

    def content(self) -> Any:
        """The body's value.

        Raises:
            InvalidArgument: it is not JSON.
        """
        return loads(self.body)

    def page_size(self) -> int:
        """Of a list; 0 for the largest.

        Raises:
            InvalidArgument: the parameter is no number.
        """
        value = self.query.get("page_size", "0")
        if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
            raise InvalidArgument(
                f"page_size must be a whole number of at most {_MAX_DIGITS} digits: "
                f"{value[:100]!r}."
            )
        return int(value)

    def page_token(self) -> str:
        return self.query.get("cursor", "")

    @staticmethod
    def next_page(token: str) -> dict[str, str]:
        """The member of a list's answer that says where it goes on, if it does."""
        return {"next_cursor": token} if token else {}


def _checked(collection: str, path: str, name: str) -> str:
    """The path, if the broker takes it; an error quotes the name as the caller knows it."""
    try:
        return names.validate(collection, path)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{quoted(name)} cannot name a {collection[:-1]}: percent-encoded, a name has 3 to 255 "
            "characters, the first of them a letter, and does not begin with goog."
        ) from error
