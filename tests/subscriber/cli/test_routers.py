"""`pullstream routers`."""

from __future__ import annotations

import pytest

from pullstream_protocol import names
from tests.subscriber.command_line import pullstream

pytestmark = pytest.mark.usefixtures("broker")

NEWS = names.topic_path("test-project", "news")
WEB = names.topic_path("test-project", "news-web")
ROUTER = names.router_path("test-project", "to-web")


def test_the_routers_command_creates_shows_lists_and_deletes_routers() -> None:
    """Records appended in between are copied."""
    pullstream("feeds", "put", "news")
    options = ("--source", "news", "--dest", "news-web", "--message-filter", 'attributes.tag = "t"')
    assert pullstream("routers", "put", "to-web", *options).lines == [f"{ROUTER} created"]
    assert pullstream("routers", "put", "to-web", *options).lines == [f"{ROUTER} updated"]
    pullstream("feeds", "append", "news", "a", "--tag", "t")
    pullstream("feeds", "append", "news", "b")
    assert pullstream("feeds", "read", "news-web").lines == ["a"]
    (router,) = pullstream("routers", "list", "--source", "news", "--json").objects
    assert (router["name"], router["source"], router["dest"]) == (ROUTER, NEWS, WEB)
    assert pullstream("routers", "list", "--dest", "news").lines == []
    assert "forwarded: 1" in pullstream("routers", "get", "to-web").lines
    assert pullstream("routers", "delete", "to-web").lines == [f"{ROUTER} deleted"]
    assert pullstream("routers", "get", "to-web").code == 1
