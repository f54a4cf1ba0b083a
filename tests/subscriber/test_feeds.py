"""The calls of the Feeds service: what is sent, what comes back, what is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from protocol.errors import NotFound, Unavailable
from protocol.messages import feeds_pb2 as feeds
from protocol.messages import pubsub_pb2 as pubsub
from subscriber import FeedsClient, SubscriberClient, types
from subscriber.feeds import Gap, GapReason
from tests.subscriber.scripted_server import Call, ScriptedServer

NEWS = "projects/p/topics/news"


class Answers:
    """Gives the next answer, or raises it; then empty ones."""

    def __init__(self) -> None:
        self.script: list[Any] = []

    def __call__(self, call: Call) -> Any:
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server(answers: Answers) -> Iterator[ScriptedServer]:
    with ScriptedServer(answers) as server:
        yield server


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[FeedsClient]:
    with FeedsClient(endpoint=server.endpoint) as client:
        yield client


def sent(server: ScriptedServer) -> Any:
    """The one request that was sent."""
    (call,) = server.calls
    return call.request


def test_settings_are_written_as_a_dict(client: FeedsClient, server: ScriptedServer) -> None:
    """Times as timedeltas, choices by their names."""
    client.put_feed(topic=NEWS, config={"ttl": timedelta(seconds=5), "discard": "REJECT"})
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
def test_a_record_is_its_data_or_a_message(
    client: FeedsClient, server: ScriptedServer, record: Any, message: pubsub.PubsubMessage
) -> None:
    """Text goes as UTF-8."""
    client.append(NEWS, [record])
    assert list(sent(server).messages) == [message]


def test_an_append_is_not_tried_again(client: FeedsClient, answers: Answers) -> None:
    """It may have been carried out."""
    answers.script = [Unavailable("lost")]
    with pytest.raises(Unavailable):
        client.append(NEWS, ["a"])


def test_an_append_with_a_key_is_tried_again(
    client: FeedsClient, server: ScriptedServer, answers: Answers
) -> None:
    """The broker knows that it is the same."""
    answers.script = [Unavailable("lost"), feeds.AppendResponse(first_seq=4, deduped=True)]
    assert client.append(NEWS, ["a"], idempotency_key="k").first_seq == 4
    assert server.calls[0].request == server.calls[1].request


def test_a_read_is_tried_again(
    client: FeedsClient, server: ScriptedServer, answers: Answers
) -> None:
    """Reading changes nothing."""
    answers.script = [Unavailable("lost"), feeds.ReadResponse(next_seq=3)]
    assert client.read(NEWS).position.after_seq == 3
    assert len(server.calls) == 2


def test_a_read_says_all_that_it_is_asked_for(client: FeedsClient, server: ScriptedServer) -> None:
    """What is not said is the broker's to choose."""
    client.read(
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
def test_where_to_begin_is_said_in_several_ways(
    client: FeedsClient, server: ScriptedServer, start: Any, position: feeds.Position
) -> None:
    """By a number, a word, or what other calls return."""
    client.read(NEWS, after=start)
    assert sent(server).start == position


@pytest.mark.parametrize(
    ("start", "error"), [(-1, ValueError), ("head", TypeError), (True, TypeError), (1.5, TypeError)]
)
def test_a_start_that_is_none_is_refused_here(
    client: FeedsClient, server: ScriptedServer, start: Any, error: type[Exception]
) -> None:
    """The error shows it."""
    with pytest.raises(error, match=str(start)):
        client.read(NEWS, after=start)
    assert server.calls == []


def test_a_reading_tells_where_to_go_on_and_what_was_lost(
    client: FeedsClient, answers: Answers
) -> None:
    """The position has the filter and the epoch, and is not the caller's own object."""
    lost = feeds.Gap(topic=NEWS, from_seq=5, to_seq=6, reason=feeds.TTL)
    answers.script = [
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
    reading = client.read(NEWS, after=start)
    assert start == types.Position(after_seq=4, filter="f")
    assert reading.position == types.Position(after_seq=8, epoch=3, filter="f")
    assert reading.gap == Gap(NEWS, 5, 6, GapReason.TTL, GapReason.UNKNOWN, 0, 0)
    assert [message.message_id for message in reading.messages] == ["7"]
    assert (reading.head_seq, reading.earliest_seq, reading.caught_up) == (9, 7, False)


def test_messages_are_deleted_by_number_and_filter(
    client: FeedsClient, server: ScriptedServer, answers: Answers
) -> None:
    """How many is returned."""
    answers.script = [feeds.DeleteMessagesResponse(deleted=2)]
    assert client.delete_messages(NEWS, before_seq=5, filter="f") == 2
    assert sent(server) == feeds.DeleteMessagesRequest(topic=NEWS, before_seq=5, filter="f")


def test_routers_and_cursors_are_managed(client: FeedsClient, server: ScriptedServer) -> None:
    """By calls of the usual form."""
    router: dict[str, Any] = {
        "name": client.router_path("p", "r"),
        "source": NEWS,
        "dest": f"{NEWS}-web",
    }
    client.put_router(router=router)
    client.get_router(name=client.router_path("p", "r"))
    client.list_routers(project="projects/p", source=NEWS)
    client.delete_router(name=client.router_path("p", "r"))
    client.put_cursor(cursor={"name": client.cursor_path("p", "c"), "topic": NEWS, "seq": 3})
    client.get_cursor(name=client.cursor_path("p", "c"))
    client.list_cursors(project="projects/p")
    client.delete_cursor(name=client.cursor_path("p", "c"))
    client.get_feed(topic=NEWS)
    client.list_feeds(project="projects/p")
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


def test_an_error_is_the_brokers(client: FeedsClient, answers: Answers) -> None:
    """By its status."""
    answers.script = [NotFound("no such topic")]
    with pytest.raises(NotFound, match="no such topic"):
        client.read(NEWS)


def test_a_subscriber_client_has_all_of_it() -> None:
    """One client is enough for whoever does both."""
    assert issubclass(SubscriberClient, FeedsClient)
