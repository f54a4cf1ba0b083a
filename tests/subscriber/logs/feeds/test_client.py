"""The calls of the Feeds service: requests, results and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pullstream import AsyncSubscriberClient, SubscriberClient, types
from pullstream.feeds import Gap, GapReason
from pullstream_protocol.errors import NotFound, Unavailable
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.scripted_server import Call, ScriptedServer

NEWS = "projects/p/topics/news"


class Server(ScriptedServer):
    """Returns or raises the next answer of the script, then empty ones."""

    client: SubscriberClient

    def __init__(self) -> None:
        super().__init__(self._next_answer)
        self.script: list[Any] = []

    def _next_answer(self, _: Call) -> Any:
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server, SubscriberClient(endpoint=server.endpoint) as server.client:
        yield server


def sent(server: Server) -> Any:
    """Return the only request that was sent."""
    (call,) = server.calls
    return call.request


def test_the_settings_of_a_feed_can_be_given_as_a_dict(server: Server) -> None:
    """Times as timedeltas, choices by their names."""
    server.client.feeds.put(NEWS, {"ttl": timedelta(seconds=5), "discard": "REJECT"})
    config = feeds.FeedConfig(discard=feeds.REJECT)
    config.ttl.FromSeconds(5)
    assert sent(server) == feeds.PutFeedRequest(topic=NEWS, config=config)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("größe", pubsub.PubsubMessage(data="größe".encode())),
        (b"\xff", pubsub.PubsubMessage(data=b"\xff")),
        (
            {"data": b"x", "attributes": {"tag": "t"}, "ordering_key": "k"},
            pubsub.PubsubMessage(data=b"x", attributes={"tag": "t"}, ordering_key="k"),
        ),
        (pubsub.PubsubMessage(data=b"x"), pubsub.PubsubMessage(data=b"x")),
    ],
)
def test_a_record_appended_to_a_feed_may_be_bytes_text_or_a_message(
    server: Server, record: Any, message: pubsub.PubsubMessage
) -> None:
    """Text goes as UTF-8."""
    server.client.feeds.append(NEWS, [record])
    assert list(sent(server).messages) == [message]


def test_a_failed_feed_append_without_an_idempotency_key_is_not_retried(server: Server) -> None:
    """The broker may have carried out the append."""
    server.script = [Unavailable("lost")]
    with pytest.raises(Unavailable):
        server.client.feeds.append(NEWS, ["a"])


def test_a_failed_feed_append_with_an_idempotency_key_is_retried(server: Server) -> None:
    """The key lets the broker recognise the repetition."""
    server.script = [Unavailable("lost"), feeds.AppendResponse(first_seq=4, deduped=True)]
    assert server.client.feeds.append(NEWS, ["a"], idempotency_key="k").first_seq == 4
    assert server.calls[0].request == server.calls[1].request


def test_a_failed_feed_read_is_retried(server: Server) -> None:
    """A read changes nothing."""
    server.script = [Unavailable("lost"), feeds.ReadResponse(next_seq=3)]
    assert server.client.feeds.read(NEWS).position.after_seq == 3
    assert len(server.calls) == 2


def test_a_feed_read_request_contains_all_arguments_of_the_read_call(server: Server) -> None:
    """What is not said is the broker's to choose."""
    server.client.feeds.read(
        NEWS,
        after=7,
        max_messages=5,
        max_bytes=100,
        wait=1.5,
        filter='attributes.tag = "t"',
        exclude_node="me",
        include_data=False,
    )
    expected = feeds.ReadRequest(
        topic=NEWS,
        start=feeds.Position(after_seq=7, filter='attributes.tag = "t"'),
        max_messages=5,
        max_bytes=100,
        exclude_node="me",
        include_data=False,
    )
    expected.wait.FromMilliseconds(1500)
    assert sent(server) == expected


@pytest.mark.parametrize(
    ("start", "position"),
    [
        (0, feeds.Position(after_seq=0)),
        ("tail", feeds.Position(tail=True)),
        (types.Cursor(seq=4, epoch=9), feeds.Position(after_seq=4, epoch=9)),
        (
            types.Position(after_seq=4, epoch=9, filter="f"),
            feeds.Position(after_seq=4, epoch=9, filter="f"),
        ),
    ],
)
def test_the_start_of_a_feed_read_may_be_a_number_a_word_or_a_position_object(
    server: Server, start: Any, position: feeds.Position
) -> None:
    """The start is a number, a word, or what other calls return."""
    server.client.feeds.read(NEWS, after=start)
    assert sent(server).start == position


@pytest.mark.parametrize(
    ("start", "error"), [(-1, ValueError), ("head", TypeError), (True, TypeError), (1.5, TypeError)]
)
def test_the_client_refuses_an_invalid_start_of_a_feed_read(
    server: Server, start: Any, error: type[Exception]
) -> None:
    """The error quotes the value."""
    with pytest.raises(error, match=str(start)):
        server.client.feeds.read(NEWS, after=start)
    assert server.calls == []


def test_the_result_of_a_feed_read_has_the_next_position_and_the_gap_in_the_records(
    server: Server,
) -> None:
    """The position has the filter and the epoch, and it is a copy."""
    lost = feeds.Gap(topic=NEWS, from_seq=5, to_seq=6, reason=feeds.TTL)
    server.script = [
        feeds.ReadResponse(
            messages=[pubsub.PubsubMessage(message_id="7")],
            next_seq=8,
            head_seq=9,
            earliest_seq=7,
            epoch=3,
            gap=lost,
        )
    ]
    start = types.Position(after_seq=4, filter="f")
    reading = server.client.feeds.read(NEWS, after=start)
    assert start == types.Position(after_seq=4, filter="f")
    assert reading.position == types.Position(after_seq=8, epoch=3, filter="f")
    assert reading.gap == Gap(NEWS, 5, 6, GapReason.TTL, GapReason.UNKNOWN, 0, 0)
    assert [message.message_id for message in reading.messages] == ["7"]
    assert (reading.head_seq, reading.earliest_seq, reading.caught_up) == (9, 7, False)


def test_messages_of_a_feed_can_be_deleted_by_sequence_number_and_filter(server: Server) -> None:
    """The call returns the number of deleted messages."""
    server.script = [feeds.DeleteMessagesResponse(deleted=2)]
    assert server.client.feeds.delete_messages(NEWS, before_seq=5, filter="f") == 2
    assert sent(server) == feeds.DeleteMessagesRequest(topic=NEWS, before_seq=5, filter="f")


def test_each_client_method_for_feeds_routers_and_cursors_sends_the_request_of_its_rpc(
    server: Server,
) -> None:
    """The calls have the usual form."""
    router: dict[str, Any] = {
        "name": server.client.routers.path("p", "r"),
        "source": NEWS,
        "dest": f"{NEWS}-web",
    }
    server.client.routers.put(router)
    server.client.routers.get(server.client.routers.path("p", "r"))
    server.client.routers.list("projects/p", source=NEWS)
    server.client.routers.delete(server.client.routers.path("p", "r"))
    server.client.cursors.put(
        {"name": server.client.cursors.path("p", "c"), "topic": NEWS, "seq": 3}
    )
    server.client.cursors.get(server.client.cursors.path("p", "c"))
    server.client.cursors.list("projects/p")
    server.client.cursors.delete(server.client.cursors.path("p", "c"))
    server.client.feeds.get(NEWS)
    server.client.feeds.list("projects/p")
    assert [call.request for call in server.calls] == [
        feeds.PutRouterRequest(router=feeds.Router(**router)),
        feeds.GetRouterRequest(name="projects/p/routers/r"),
        feeds.ListRoutersRequest(project="projects/p", source=NEWS),
        feeds.DeleteRouterRequest(name="projects/p/routers/r"),
        feeds.PutCursorRequest(cursor=feeds.Cursor(name="projects/p/cursors/c", topic=NEWS, seq=3)),
        feeds.GetCursorRequest(name="projects/p/cursors/c"),
        feeds.ListCursorsRequest(project="projects/p"),
        feeds.DeleteCursorRequest(name="projects/p/cursors/c"),
        feeds.GetFeedRequest(topic=NEWS),
        feeds.ListFeedsRequest(project="projects/p"),
    ]


def test_a_failed_feed_call_raises_the_error_class_of_the_brokers_status(server: Server) -> None:
    """The status selects the class of the error."""
    server.script = [NotFound("no such topic")]
    with pytest.raises(NotFound, match="no such topic"):
        server.client.feeds.read(NEWS)


def test_list_calls_of_the_feeds_client_request_further_pages_with_the_page_token(
    server: Server,
) -> None:
    """The second request has the token of the first response."""
    pages = [
        feeds.ListFeedsResponse(feeds=[feeds.Feed(topic="a")], next_page_token="2"),
        feeds.ListFeedsResponse(feeds=[feeds.Feed(topic="b")]),
    ]

    async def listed() -> list[str]:
        async with AsyncSubscriberClient(endpoint=server.endpoint) as client:
            return [feed.topic async for feed in client.feeds.list("projects/p")]

    server.script = [*pages]
    assert [feed.topic for feed in server.client.feeds.list("projects/p")] == ["a", "b"]
    server.script = [*pages]
    assert asyncio.run(listed()) == ["a", "b"]
    assert [call.request.page_token for call in server.calls] == ["", "2", "", "2"]


def test_the_async_feeds_client_sends_the_same_requests_as_the_blocking_feeds_client(
    server: Server,
) -> None:
    """Every method sends the request of its twin, and returns the same type."""
    router = {"name": "projects/p/routers/r", "source": NEWS, "dest": f"{NEWS}-web"}
    cursor = {"name": "projects/p/cursors/c", "topic": NEWS, "seq": 3}

    def blocking(client: SubscriberClient) -> list[object]:
        client.routers.delete("projects/p/routers/r")
        client.cursors.delete("projects/p/cursors/c")
        return [
            client.feeds.put(NEWS, {"cap_records": 1}),
            client.feeds.get(NEWS),
            client.feeds.append(NEWS, ["a"], idempotency_key="k", create=False),
            client.feeds.read(NEWS, "tail", max_messages=3, wait=1, filter="f"),
            client.feeds.delete_messages(NEWS, before_seq=2),
            client.routers.put(router),
            client.routers.get(client.routers.path("p", "r")),
            [*client.routers.list("projects/p", source=NEWS)],
            client.cursors.put(cursor),
            client.cursors.get(client.cursors.path("p", "c")),
            [*client.cursors.list("projects/p")],
        ]

    async def on_loop() -> list[object]:
        async with AsyncSubscriberClient(endpoint=server.endpoint) as client:
            await client.routers.delete("projects/p/routers/r")
            await client.cursors.delete("projects/p/cursors/c")
            return [
                await client.feeds.put(NEWS, {"cap_records": 1}),
                await client.feeds.get(NEWS),
                await client.feeds.append(NEWS, ["a"], idempotency_key="k", create=False),
                await client.feeds.read(NEWS, "tail", max_messages=3, wait=1, filter="f"),
                await client.feeds.delete_messages(NEWS, before_seq=2),
                await client.routers.put(router),
                await client.routers.get(client.routers.path("p", "r")),
                [router async for router in client.routers.list("projects/p", source=NEWS)],
                await client.cursors.put(cursor),
                await client.cursors.get(client.cursors.path("p", "c")),
                [cursor async for cursor in client.cursors.list("projects/p")],
            ]

    with SubscriberClient(endpoint=server.endpoint) as client:
        results = blocking(client)
    sent = [(call.method, call.request) for call in server.calls]
    server.calls.clear()
    assert asyncio.run(on_loop()) == results
    assert [(call.method, call.request) for call in server.calls] == sent
    assert len(sent) == len(results) + 2
