"""Routers in a broker without a network: turns, sharing, and refused settings."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pullstream_emulator.broker import Broker, ServerHooks
from pullstream_emulator.engine import Consumer, Record
from pullstream_emulator.logs import routers
from pullstream_emulator.logs.forwarder import MESSAGES_PER_TURN, RETRY
from pullstream_emulator.logs.record_copies import HOPS
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema

PROJECT = "projects/p"
SOURCE = f"{PROJECT}/topics/source"


def topic(name: str) -> str:
    return f"{PROJECT}/topics/{name}"


@pytest.fixture
def broker() -> Broker:
    broker = Broker(ManualClock())
    broker.call("PutFeed", feeds.PutFeedRequest(topic=SOURCE))
    return broker


def route(broker: Broker, source: str, dest: str, **config: Any) -> feeds.Router:
    name = f"{PROJECT}/routers/{source}-to-{dest}"
    config = {"name": name, **config}
    router = feeds.Router(source=topic(source), dest=topic(dest), **config)
    made = broker.call("PutRouter", feeds.PutRouterRequest(router=router))
    assert isinstance(made, feeds.Router)
    return made


def state(broker: Broker, source: str, dest: str) -> feeds.Router:
    request = feeds.GetRouterRequest(name=f"{PROJECT}/routers/{source}-to-{dest}")
    found = broker.call("GetRouter", request)
    assert isinstance(found, feeds.Router)
    return found


def append(broker: Broker, *data: str, to: str = SOURCE, **attributes: str) -> None:
    messages = [pubsub.PubsubMessage(data=d.encode(), attributes=attributes) for d in data]
    broker.call("Append", feeds.AppendRequest(topic=to, messages=messages))


def messages_in(broker: Broker, dest: str) -> list[pubsub.PubsubMessage]:
    return [record.message() for record in broker.feeds.feed(topic(dest)).records()]


def data_in(broker: Broker, dest: str) -> list[str]:
    return [message.data.decode() for message in messages_in(broker, dest)]


# ---- turns ---------------------------------------------------------------------------------------


def test_a_router_copies_a_limited_number_of_messages_in_one_turn_of_the_event_loop(
    broker: Broker,
) -> None:
    """The router asks its owner for another turn. Routers that wait for their turn lose nothing."""
    dests = [f"dest-{number}" for number in range(MESSAGES_PER_TURN // 1000 + 2)]
    requests: list[None] = []
    broker.hooks = ServerHooks(more_to_forward=lambda: requests.append(None))
    broker.call(
        "PutFeed", feeds.PutFeedRequest(topic=SOURCE, config=feeds.FeedConfig(cap_records=1))
    )
    for dest in dests:
        route(broker, "source", dest)
    append(broker, *map(str, range(1000)))
    done = [state(broker, "source", dest).forwarded for dest in dests]
    assert done == [1000] * (len(dests) - 2) + [0, 0]
    assert len(requests) == 1
    # No further turn begins in the meantime, because it would delay the append call.
    append(broker, "one more")
    assert [state(broker, "source", dest).forwarded for dest in dests] == done
    assert len(requests) == 1
    broker.dependents.routers.work()
    assert len(requests) == 1
    last = [data_in(broker, dest)[-2:] for dest in dests]
    assert last == [["999", "one more"]] * len(dests)


def test_two_routers_copy_a_large_append_in_separate_turns(broker: Broker) -> None:
    """The messages count towards the turn, although they are not read again."""
    for dest in ("one", "two"):
        route(broker, "source", dest)
    append(broker, *["x"] * MESSAGES_PER_TURN)
    assert [state(broker, "source", dest).forwarded for dest in ("one", "two")] == [10_000, 0]
    broker.dependents.routers.work()
    assert state(broker, "source", "two").forwarded == 10_000


def test_a_message_appended_to_the_first_topic_reaches_the_end_of_a_long_router_chain(
    broker: Broker,
) -> None:
    """Copies are not nested, so the length of the chain does not matter."""
    names = ["source", *(f"link-{number}" for number in range(300))]
    for source, dest in itertools.pairwise(names):
        broker.call("PutFeed", feeds.PutFeedRequest(topic=topic(dest)))
        route(broker, source, dest)
    append(broker, "all the way")
    assert data_in(broker, names[-1]) == ["all the way"]


def test_a_router_with_a_full_destination_retries_at_regular_intervals(broker: Broker) -> None:
    """The router needs a timer, because acknowledgements may make room without a signal."""
    config = feeds.FeedConfig(cap_records=1, discard=feeds.REJECT)
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("dest"), config=config))
    route(broker, "source", "dest")
    append(broker, "1", "2")
    due = broker.engine.next_due()
    assert due is not None
    assert due - broker.clock.monotonic() == pytest.approx(RETRY)
    broker.clock.advance(RETRY)
    broker.engine.advance()
    assert data_in(broker, "dest") == ["1"]
    again = broker.engine.next_due()
    assert again == pytest.approx(due + RETRY)


def test_a_router_does_not_decode_messages_that_its_full_destination_would_refuse(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each waiting router would copy it ten times a second."""
    config = feeds.FeedConfig(cap_records=1, discard=feeds.REJECT)
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("dest"), config=config))
    route(broker, "source", "dest")
    append(broker, *map(str, range(1000)))
    decoded: list[int] = []
    decode = Record.message

    def counted(record: Record) -> pubsub.PubsubMessage:
        decoded.append(record.seq)
        return decode(record)

    monkeypatch.setattr(Record, "message", counted)
    for _ in range(3):
        broker.clock.advance(RETRY)
        broker.engine.advance()
    assert decoded == [2, 2, 2]
    monkeypatch.undo()
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("dest")))
    assert data_in(broker, "dest") == [str(number) for number in range(1000)]


# ---- losses --------------------------------------------------------------------------------------


def test_a_router_forwards_the_records_after_a_gap_and_reports_the_gap_in_its_destination(
    broker: Broker,
) -> None:
    """The records after it are also forwarded."""
    caps = feeds.FeedConfig(cap_records=2, discard=feeds.REJECT)
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("dest"), config=caps))
    route(broker, "source", "dest")
    source = broker.feeds.feed(SOURCE)
    append(broker, "1", "2", "3", "4")
    source.lose(2)
    append(broker, "7")
    # The router waits after record 2.
    source.delete([3, 4])
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("dest")))
    dest = broker.feeds.feed(topic("dest"))
    assert [record.seq for record in dest.records()] == [1, 2, 5]
    gap = dest.gap(2)
    assert gap is not None
    assert (gap.from_seq, gap.to_seq, gap.reason) == (3, 4, feeds.SOURCE_TRIM)


# ---- creation and deletion of topics -------------------------------------------------------------


def test_a_router_is_deleted_with_its_destination_topic(broker: Broker) -> None:
    broker.call("CreateTopic", pubsub.Topic(name=topic("dest")))
    route(broker, "source", "dest")
    broker.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=topic("dest")))
    with pytest.raises(NotFound):
        state(broker, "source", "dest")
    append(broker, "x")
    assert topic("dest") not in broker.engine.registry.topics


def test_a_refused_append_to_the_destination_topic_does_not_delete_the_router() -> None:
    """The append creates no topic, and so deletes none."""
    broker = Broker(ManualClock(), max_bytes=1000)
    broker.call("PutFeed", feeds.PutFeedRequest(topic=SOURCE))
    route(broker, "source", "dest")
    with pytest.raises(ResourceExhausted):
        append(broker, "x" * 2000, to=topic("dest"))
    append(broker, "y")
    assert data_in(broker, "dest") == ["y"]


# ---- copies --------------------------------------------------------------------------------------


def test_equal_message_copies_made_by_several_routers_share_one_object_in_memory(
    broker: Broker,
) -> None:
    """The copies are equal if destinations have no other publishers and assign the same numbers."""
    for dest in ("one", "two", "three"):
        route(broker, "source", dest)
    append(broker, "first", to=topic("three"))
    append(broker, "x")
    one, two, three = (next(iter(_last(broker, dest))) for dest in ("one", "two", "three"))
    assert one is two
    assert pubsub.PubsubMessage.FromString(three).message_id == "2"


def _last(broker: Broker, dest: str) -> list[bytes]:
    return [list(broker.feeds.feed(topic(dest)).records())[-1].encoded]


def test_a_message_copied_by_a_router_keeps_all_fields_but_its_id_and_publish_time(
    broker: Broker,
) -> None:
    """The copy has the same data, attributes and ordering key."""
    route(broker, "source", "dest")
    append(broker, "elsewhere", to=topic("dest"))
    broker.clock.advance(5)
    original = pubsub.PubsubMessage(data=b"\x00", attributes={"a": "b"}, ordering_key="key")
    broker.call("Append", feeds.AppendRequest(topic=SOURCE, messages=[original]))
    copy = messages_in(broker, "dest")[-1]
    assert copy.message_id == "2"
    assert copy.publish_time.seconds == int(broker.clock.now())
    assert (copy.data, dict(copy.attributes), copy.ordering_key) == (b"\x00", {"a": "b"}, "key")


def test_subscriptions_of_the_destination_of_a_router_receive_the_copied_messages(
    broker: Broker,
) -> None:
    """Subscriptions receive the copies that match their own filters."""
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("dest")))
    for name, pattern in {"one": 'attributes.k = "v"', "two": "attributes:k", "all": ""}.items():
        subscription = pubsub.Subscription(
            name=f"{PROJECT}/subscriptions/{name}", topic=topic("dest"), filter=pattern
        )
        broker.call("CreateSubscription", subscription)
    route(broker, "source", "dest")
    append(broker, "yes", k="v")
    append(broker, "no")
    assert taken(broker, "one") == taken(broker, "two") == [b"yes"]
    assert taken(broker, "all") == [b"yes", b"no"]


def taken(broker: Broker, subscription: str) -> list[bytes]:
    consumer = Consumer(ack_deadline=10, wake=lambda: None)
    joined = broker.engine.join(f"{PROJECT}/subscriptions/{subscription}", consumer)
    return [d.record.message().data for _, d in broker.engine.take(joined, consumer)]


def test_messages_copied_by_routers_have_a_hop_count_only_on_a_router_cycle(broker: Broker) -> None:
    """Copies outside the cycle have no count. Publishers cannot end a cycle with a forged count."""
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("back")))
    route(broker, "source", "back")
    route(broker, "back", "source", allow_cycle=True)
    route(broker, "back", "out")
    append(broker, "x", **{HOPS: "many"})
    hops = [message.attributes[HOPS] for message in messages_in(broker, "back")]
    assert hops == ["1", "3", "5", "7"]
    assert not any(HOPS in message.attributes for message in messages_in(broker, "out"))


# ---- settings ------------------------------------------------------------------------------------


def test_a_router_to_a_destination_topic_with_a_schema_is_refused(broker: Broker) -> None:
    """A router waits for a destination that gets a schema later."""
    avro = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    made = broker.call(
        "CreateSchema",
        schema.CreateSchemaRequest(
            parent=PROJECT,
            schema_id="numbers",
            schema=schema.Schema(type=schema.Schema.AVRO, definition=avro),
        ),
    )
    checked = pubsub.Topic(name=topic("checked"))
    checked.schema_settings.schema = made.name
    checked.schema_settings.encoding = schema.JSON
    broker.call("CreateTopic", checked)
    with pytest.raises(FailedPrecondition, match="has a schema") as refused:
        route(broker, "source", "checked")
    assert refused.value.reason == "ROUTER_DEST_HAS_SCHEMA"

    route(broker, "source", "dest")
    append(broker, "1")
    change = pubsub.UpdateTopicRequest(topic=checked)
    change.topic.name = topic("dest")
    change.update_mask.paths.append("schema_settings")
    broker.call("UpdateTopic", change)
    append(broker, "not a record")
    assert data_in(broker, "dest") == ["1"]
    change.topic.ClearField("schema_settings")
    broker.call("UpdateTopic", change)
    broker.clock.advance(RETRY)
    broker.engine.advance()
    assert data_in(broker, "dest") == ["1", "not a record"]


def test_a_router_with_a_changed_source_or_destination_starts_as_a_new_router(
    broker: Broker,
) -> None:
    """The new router begins at the head of its source. The old source and destination are free."""
    route(broker, "source", "first", name=f"{PROJECT}/routers/moves")
    append(broker, "1")
    moved = route(broker, "source", "second", name=f"{PROJECT}/routers/moves")
    assert (moved.created, moved.forwarded, moved.position) == (False, 0, 1)
    append(broker, "2")
    assert (data_in(broker, "first"), data_in(broker, "second")) == (["1"], ["2"])
    route(broker, "source", "first")


def test_a_router_whose_change_is_refused_keeps_its_settings(broker: Broker) -> None:
    """A router that would close a cycle after the change keeps its old settings."""
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("middle")))
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("other")))
    route(broker, "source", "middle")
    before = route(broker, "other", "end", name=f"{PROJECT}/routers/stays")
    with pytest.raises(FailedPrecondition, match="cycle"):
        route(broker, "middle", "source", name=f"{PROJECT}/routers/stays")
    with pytest.raises(InvalidArgument, match="filter"):
        route(broker, "other", "end", name=f"{PROJECT}/routers/stays", filter="x" * 257)
    found = broker.call("GetRouter", feeds.GetRouterRequest(name=before.name))
    before.created = False
    assert found == before


def test_removing_allow_cycle_from_a_router_is_refused_while_the_cycle_exists(
    broker: Broker,
) -> None:
    """Setting the present values again is allowed."""
    broker.call("PutFeed", feeds.PutFeedRequest(topic=topic("back")))
    route(broker, "source", "back")
    route(broker, "back", "source", allow_cycle=True)
    route(broker, "source", "back", filter='attributes.a = "b"')
    with pytest.raises(FailedPrecondition, match="cycle"):
        route(broker, "back", "source")


def test_creating_more_routers_in_a_project_than_the_maximum_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is per project. Existing routers can still be changed."""
    monkeypatch.setattr(routers, "MAX_ROUTERS", 2)
    route(broker, "source", "one")
    route(broker, "source", "two")
    with pytest.raises(ResourceExhausted, match="routers-per-project"):
        route(broker, "source", "three")
    route(broker, "source", "one", filter='attributes.a = "b"')
