"""One parsed request to /v0."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web
from google.protobuf.message import Message

from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument

from .json_body import Body, read_body
from .short_names import router_path, topic_path

T = TypeVar("T", bound=Body)

# Limit for requests other than an append. The longest filters for 256 topics take a third of it.
# Parsing a text of this length takes 10 to 40 ms.
MAX_BODY_BYTES = 512 * 1024

# Most digits of a page size, so that it fits into its field. The broker's maximum is lower.
_MAX_DIGITS = 9


@dataclass(frozen=True)
class V0Request:
    """The request that an endpoint handles.

    Attributes:
        http: The HTTP request; its query has only parameters of the endpoint.
        name: Name of the resource in the path; empty for a collection.
        project: Id of the project. The caller's access to it has been checked.
        body: The body.
        call: Runs an RPC by its name; raises the error that it ends with.
    """

    http: web.Request
    name: str
    project: str
    body: bytes
    call: Callable[[str, Message], Awaitable[Any]]

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; the endpoint knows all of them."""
        return self.http.query

    @property
    def topic(self) -> str:
        """Full name of the topic in the path; raises InvalidArgument for an invalid name."""
        return self.topic_path(self.name)

    @property
    def router(self) -> str:
        """Full name of the router in the path; raises InvalidArgument for an invalid name."""
        return _checked("routers", router_path(self.project, self.name), self.name)

    def topic_path(self, name: str) -> str:
        """Return a topic's full name; raise InvalidArgument if the name is invalid."""
        return _checked("topics", topic_path(self.project, name), name)

    def content(self, kind: type[T]) -> T:
        """Read the body.

        Raises:
            InvalidArgument: The body is not JSON, too large, or not of this kind.
        """
        if len(self.body) > MAX_BODY_BYTES:
            raise InvalidArgument(
                f"The body has {len(self.body)} bytes; this endpoint accepts {MAX_BODY_BYTES}."
            )
        return read_body(self.body, kind)

    def page(self) -> dict[str, Any]:
        """Return the fields of a request for a page of a list. A page size of 0 is the largest.

        Raises:
            InvalidArgument: The page size is not a number.
        """
        value = self.query.get("page_size", "0")
        if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
            raise InvalidArgument(
                f"page_size must be a whole number of at most {_MAX_DIGITS} digits: "
                f"{value[:100]!r}."
            )
        return {
            "project": names.project_path(self.project),
            "page_size": int(value),
            "page_token": self.query.get("cursor", ""),
        }

    @staticmethod
    def next_page(token: str) -> dict[str, str]:
        """Return the cursor of the next page, as a member of the response; empty if none."""
        return {"next_cursor": token} if token else {}


def valid_text(text: str, at: str) -> str:
    """Return a text of the request's head; raise InvalidArgument if its bytes are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{at} must be text in Unicode: {error.reason}.") from error
    return text


def _checked(collection: str, path: str, name: str) -> str:
    """Return a valid path; an error quotes the name in the caller's form."""
    try:
        return names.validate(collection, path)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{json.dumps(name[:100])} cannot name a {collection[:-1]}: percent-encoded, a name "
            "has 3 to 255 characters, the first of them a letter, and does not begin with goog."
        ) from error
