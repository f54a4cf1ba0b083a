"""Pagers request a page when the iteration reaches it."""

from __future__ import annotations

import asyncio

import pytest

from pullstream.rpc.paging import AsyncPager, Pager
from pullstream_protocol.messages import pubsub_pb2 as pubsub

PAGES = {
    "": pubsub.ListTopicsResponse(topics=[{"name": "a"}, {"name": "b"}], next_page_token="2"),
    "2": pubsub.ListTopicsResponse(next_page_token="3"),
    "3": pubsub.ListTopicsResponse(topics=[{"name": "c"}]),
}


def test_iterating_a_pager_of_a_list_call_yields_the_items_of_all_pages() -> None:
    """An empty page is not the end. Each iteration begins with the first page."""
    asked: list[str] = []

    def fetch(token: str) -> pubsub.ListTopicsResponse:
        asked.append(token)
        return PAGES[token]

    pager: Pager[pubsub.Topic] = Pager(fetch, "topics")
    assert asked == [""]
    assert next(iter(pager)).name == "a"
    assert asked == [""]
    assert [topic.name for topic in pager] == ["a", "b", "c"]
    assert asked == ["", "2", "3"]
    assert len(list(pager.pages)) == 3


def test_a_pager_raises_the_error_of_a_refused_list_call_at_construction() -> None:
    """The constructor requests the first page."""

    def refuse(token: str) -> pubsub.ListTopicsResponse:
        raise LookupError(token)

    with pytest.raises(LookupError):
        Pager(refuse, "topics")


def test_iterating_an_async_pager_of_a_list_call_yields_the_items_of_all_pages() -> None:
    """Each iteration requests the first page again."""
    asked: list[str] = []

    async def fetch(token: str) -> pubsub.ListTopicsResponse:
        asked.append(token)
        return PAGES[token]

    async def read() -> list[str]:
        pager: AsyncPager[pubsub.Topic] = AsyncPager(fetch, "topics")
        assert asked == []
        await anext(aiter(pager))
        return [topic.name async for topic in pager]

    assert asyncio.run(read()) == ["a", "b", "c"]
    assert asked == ["", "", "2", "3"]
