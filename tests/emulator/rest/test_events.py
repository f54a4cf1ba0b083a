"""The history of messages over HTTP: lists, one message, and the live stream."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.rest.events import MAX_BATCH
from pullstream_emulator.rest.message_json import SHOWN_BYTES
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import RestClient
from tests.emulator.v0_client import V0
from tests.emulator.wire import Wire

START = "2023-11-14T22:13:20Z"


def kinds(answer: Any) -> list[str]:
    return [event["kind"] for event in answer["events"]]


# ---- lists ---------------------------------------------------------------------------------------


def test_history_events_are_listed_over_http(
    rest: RestClient, emulator: Emulator, wire: Wire
) -> None:
    """Events can be selected by kind, resource and message. A limit selects the newest ones."""
    wire.create()
    message_id = emulator.publish(TOPIC, "a", colour="red")
    wire.publish("b")
    a, b = wire.pull()
    wire.modify(0, a.ack_id)
    wire.acknowledge(b.ack_id)
    listed = rest.ok("GET", "/v0/events")
    assert kinds(listed) == ["publish", "publish", "delivery", "delivery", "nack", "ack"]
    assert (listed["oldest"], listed["newest"], listed["skipped"]) == (1, 6, 0)
    assert listed["events"][2] == {
        "number": 3,
        "kind": "delivery",
        "time": START,
        "resource": SUBSCRIPTION,
        "topic": TOPIC,
        "messageId": message_id,
        "ackId": a.ack_id,
        "attempt": 1,
        "seconds": 0,
        "detail": listed["events"][2]["detail"],
        "message": {
            "data": "YQ==",
            "dataBytes": 1,
            "attributes": {"colour": "red"},
            "messageId": message_id,
            "publishTime": START,
        },
    }
    assert listed["events"][2]["detail"].startswith("grpc-")
    chosen = f"/v0/events?kind=nack,ack&resource=billing&message={message_id}"
    assert kinds(rest.ok("GET", chosen)) == ["nack"]
    newest = rest.ok("GET", "/v0/events?limit=1")
    assert (kinds(newest), newest["skipped"]) == (["ack"], 5)
    assert kinds(rest.ok("GET", "/v0/events?after=4")) == ["nack", "ack"]
    assert kinds(rest.ok("GET", f"/v0/events?topic={TOPIC}&kind=ack")) == ["ack"]
    assert kinds(rest.ok("GET", "/v0/events?topic=projects/p/topics/other")) == []


def test_history_events_of_messages_can_be_searched_over_http_by_filter_and_text(
    rest: RestClient, emulator: Emulator
) -> None:
    """The filter is Pub/Sub's; a text is in the data, an attribute, or the ordering key."""
    rest.create()
    emulator.publish(TOPIC, "one book", colour="red")
    emulator.publish(TOPIC, "two books", colour="blue")
    emulator.publish(TOPIC, "a pen", "customer-7")

    def found(query: str) -> list[str]:
        return [event["messageId"] for event in rest.ok("GET", f"/v0/events?{query}")["events"]]

    assert found("filter=attributes.colour%3D%22red%22") == ["1"]
    assert found("text=book") == ["1", "2"]
    assert found("text=customer-7") == ["3"]
    assert found("text=book&limit=1") == ["2"]
    assert found("text=pencil") == []


def test_history_events_of_the_broker_can_be_cleared_over_http(
    rest: RestClient, emulator: Emulator
) -> None:
    """Later events have higher numbers."""
    rest.create()
    emulator.publish(TOPIC, "a")
    rest.ok("DELETE", "/v0/events")
    assert rest.ok("GET", "/v0/events")["events"] == []
    emulator.publish(TOPIC, "b")
    assert [event["number"] for event in rest.ok("GET", "/v0/events")["events"]] == [2]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("kind=song", "kind is 'song'; it must be one or more of publish, delivery"),
        ("limit=0", "limit is '0'; it must be a number from 1"),
        ("limit=-1", "limit is '-1'"),
        ("limit=many", "limit is 'many'"),
        ("after=" + "9" * 30, "after is"),
        ("filter=colour", "filter"),
        ("song=1", "no parameter 'song'; there are kind, resource"),
    ],
)
def test_the_error_for_an_invalid_query_of_history_events_states_the_allowed_form(
    query: str, text: str, emulator: Emulator
) -> None:
    """The error contains the value and the allowed form."""
    assert text in V0(emulator.endpoint).message("GET", f"/v0/events?{query}")


def test_listing_history_events_over_http_fails_if_the_broker_keeps_no_history(
    clock: ManualClock,
) -> None:
    """The error says how to enable it."""
    with Emulator(clock=clock, rest=True, history=0) as emulator:
        status, content = RestClient(emulator.endpoint).call("GET", "/v0/events")
    assert status == 409
    assert "--history 0" in content["error"]["message"]


# ---- one message ---------------------------------------------------------------------------------


def test_the_http_report_about_a_message_has_all_its_events_and_its_complete_data(
    rest: RestClient, emulator: Emulator, wire: Wire
) -> None:
    """The data is complete, which lists shorten."""
    wire.create()
    data = b"x" * (SHOWN_BYTES + 1)
    emulator.publish(TOPIC, data)
    emulator.publish(TOPIC, "other")
    wire.modify(0, *(each.ack_id for each in wire.pull()))
    (listed, *_) = rest.ok("GET", "/v0/events")["events"]
    assert listed["message"]["data"] == b64encode(data[:SHOWN_BYTES]).decode()
    assert listed["message"]["dataBytes"] == len(data)
    shown = rest.ok("GET", f"/v0/messages/1?topic={TOPIC}")
    assert shown["message"]["data"] == b64encode(data).decode()
    assert shown["topic"] == TOPIC
    assert kinds(shown) == ["publish", "delivery", "nack"]
    assert "decoded" not in shown


def test_the_http_report_about_a_message_decodes_the_data_by_the_schema_of_the_topic(
    rest: RestClient, emulator: Emulator
) -> None:
    """The topic's schema and the message's revision decide."""
    definition = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    schema = {"type": "AVRO", "definition": json.dumps(definition)}
    rest.ok("POST", "/v1/projects/test/schemas?schemaId=order", schema)
    settings = {"schema": "projects/test/schemas/order", "encoding": "BINARY"}
    rest.ok("PUT", f"/v1/{TOPIC}", {"schemaSettings": settings})
    emulator.publish(TOPIC, b"\x0e\x04\x02a\x02b\x00")
    shown = rest.ok("GET", f"/v0/messages/1?topic={TOPIC}")
    assert shown["decoded"] == {"id": 7, "tags": ["a", "b"]}
    # 2**62, which a browser would round.
    emulator.publish(TOPIC, b"\x80" * 8 + b"\x80\x01" + b"\x00")
    shown = rest.ok("GET", f"/v0/messages/2?topic={TOPIC}")
    assert shown["decoded"] == {"id": str(2**62), "tags": []}


def test_the_http_report_about_an_unknown_message_id_ends_with_not_found(
    emulator: Emulator, rest: RestClient
) -> None:
    """The error says how many events the history keeps. Without a topic, ids are ambiguous."""
    rest.create()
    v0 = V0(emulator.endpoint)
    assert v0.refused("GET", f"/v0/messages/7?topic={TOPIC}") == (404, "not_found")
    assert "topic is missing" in v0.message("GET", "/v0/messages/7")


def test_the_http_report_about_a_message_id_of_a_recreated_topic_shows_the_newest_message(
    rest: RestClient, emulator: Emulator
) -> None:
    """The newest message of the name is shown."""
    for data in ("old", "new"):
        rest.ok("PUT", f"/v1/{TOPIC}")
        emulator.publish(TOPIC, data)
        rest.ok("DELETE", f"/v1/{TOPIC}")
    shown = rest.ok("GET", f"/v0/messages/1?topic={TOPIC}")
    assert shown["message"]["data"] == b64encode(b"new").decode()
    assert kinds(shown) == ["publish"]


def test_a_history_clear_keeps_the_http_report_about_an_unacknowledged_message(
    rest: RestClient, emulator: Emulator
) -> None:
    """The events of the message are unknown then."""
    rest.create()
    emulator.publish(TOPIC, "a")
    emulator.history.clear()
    shown = rest.ok("GET", f"/v0/messages/1?topic={TOPIC}")
    assert (shown["message"]["data"], shown["events"]) == ("YQ==", [])


# ---- live ----------------------------------------------------------------------------------------


def test_the_live_event_stream_sends_the_broker_status_and_new_history_events(
    emulator: Emulator, rest: RestClient
) -> None:
    """The first event of a stream is the status."""
    rest.create()
    emulator.publish(TOPIC, "before")
    with V0(emulator.endpoint).stream("/v0/live") as stream:
        status = stream.next()
        assert status.name == "status"
        assert [topic["name"] for topic in status.data["topics"]] == [TOPIC]
        emulator.publish(TOPIC, "after")
        content = stream.next_of("events").data
    assert [event["message"]["data"] for event in content["events"]] == ["YWZ0ZXI="]
    assert (content["skipped"], content["newest"]) == (0, 2)


def test_the_live_event_stream_sends_changes_of_the_broker_status(
    emulator: Emulator, rest: RestClient
) -> None:
    """After the first status, a reader gets what is new, what has changed and what is gone."""
    rest.create()
    other = f"{PROJECT}/topics/other"
    emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=other)))
    with V0(emulator.endpoint).stream("/v0/live?show=status") as stream:
        names = [each["name"] for each in stream.next().data["topics"]]
        assert sorted(names) == sorted([TOPIC, other])
        first = stream.next()
        assert first.name == "changes"
        assert not {"topics", "subscriptions"} & first.data.keys()
        assert first.data["broker"]["ready"]
        request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"a")])
        # In one step, so that one event has both changes.
        emulator.inspect(lambda engine: (engine.publish(request), engine.delete_topic(other)))
        seen: dict[str, Any] = {}
        while "topics" not in seen:
            seen = stream.next_of("changes").data
    (topic,) = seen["topics"]["changed"]
    (subscription,) = seen["subscriptions"]["changed"]
    assert (topic["name"], topic["published"]) == (TOPIC, 1)
    assert seen["topics"]["removed"] == [other]
    assert (subscription["backlog"], subscription["oldestUnackedSeconds"]) == (1, 0)


def test_a_new_live_event_stream_begins_with_the_present_broker_status(
    emulator: Emulator, rest: RestClient
) -> None:
    """The first status is newer than the one that other readers share."""
    rest.create()
    with V0(emulator.endpoint).stream("/v0/live?show=status") as stream:
        stream.next()
        other = f"{PROJECT}/topics/other"
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=other)))
        with V0(emulator.endpoint).stream("/v0/live?show=status") as second:
            assert len(second.next().data["topics"]) == 2


def test_a_live_event_stream_can_continue_after_a_given_event_number(
    emulator: Emulator, rest: RestClient
) -> None:
    """A page that reconnects misses nothing. `show` selects the parts."""
    rest.create()
    for _ in range(3):
        emulator.publish(TOPIC, "a")
    with V0(emulator.endpoint).stream("/v0/live?show=events&after=1") as stream:
        assert [event["number"] for event in stream.next().data["events"]] == [2, 3]
    with V0(emulator.endpoint).stream("/v0/live?show=events&after=700") as stream:
        # The broker was started again since: its numbers begin at 1.
        assert [event["number"] for event in stream.next().data["events"]] == [1, 2, 3]


@pytest.mark.parametrize("query", ["", "&filter=attributes:n"])
def test_a_live_event_stream_that_skips_events_states_the_number_of_skipped_events(
    emulator: Emulator, rest: RestClient, query: str
) -> None:
    """Nobody can read more, and the page must not freeze."""
    rest.create()
    for _ in range(MAX_BATCH + 5):
        emulator.publish(TOPIC, "a", n="1")
    with V0(emulator.endpoint).stream(f"/v0/live?show=events&after=0{query}") as stream:
        content = stream.next().data
    assert (len(content["events"]), content["skipped"]) == (MAX_BATCH, 5)
    assert content["events"][-1]["number"] == MAX_BATCH + 5


def test_stopping_the_broker_ends_the_live_event_streams_of_clients(clock: ManualClock) -> None:
    """The reader sees the end of the response."""
    with (
        Emulator(clock=clock, rest=True) as emulator,
        V0(emulator.endpoint).stream("/v0/live") as stream,
    ):
        stream.next()
        emulator.stop()
        stream.rest()


# ---- access --------------------------------------------------------------------------------------


def test_a_live_event_stream_shows_only_projects_that_the_caller_may_access(
    clock: ManualClock,
) -> None:
    """`?project=` narrows them further."""
    access = Access({"t": Principal("ci", frozenset({"p", "q"}))})
    with Emulator(clock=clock, rest=True, access=access) as emulator:
        client = RestClient(emulator.endpoint)
        for project in ("p", "q", "r"):
            name = f"projects/{project}/topics/orders"
            emulator.engine.create_topic(pubsub.Topic(name=name))
            emulator.publish(name, "a")

        def seen(path: str) -> list[str]:
            reply = client.call("GET", path, Authorization="Bearer t")
            assert reply.status == 200
            return [event["resource"].split("/")[1] for event in reply.content["events"]]

        assert seen("/v0/events") == ["p", "q"]
        assert seen("/v0/events?project=q") == ["q"]
        assert seen("/v0/events?project=r") == []
        assert client.call("GET", "/v0/events").status == 401
        assert client.call("GET", "/v0/live").status == 401


def test_the_http_report_decodes_no_message_by_a_schema_that_the_caller_may_not_access(
    clock: ManualClock,
) -> None:
    """A caller without access to that project would learn the names of its fields."""
    access = Access({"all": Principal("operator"), "t": Principal("ci", frozenset({"test"}))})
    definition = 'syntax = "proto3"; message Order { int32 secret = 1; }'
    with Emulator(clock=clock, rest=True, access=access) as emulator:
        client = RestClient(emulator.endpoint)

        def call(verb: str, path: str, content: Any = None, token: str = "all") -> Any:
            reply = client.call(verb, path, content, Authorization=f"Bearer {token}")
            assert reply.status == 200, reply
            return reply.content

        schema = {"type": "PROTOCOL_BUFFER", "definition": definition}
        call("POST", "/v1/projects/other/schemas?schemaId=order", schema)
        settings = {"schema": "projects/other/schemas/order", "encoding": "BINARY"}
        call("PUT", f"/v1/{TOPIC}", {"schemaSettings": settings})
        call("POST", f"/v1/{TOPIC}:publish", {"messages": [{"data": "CAc="}]}, "t")
        path = f"/v0/messages/1?topic={TOPIC}"
        assert call("GET", path)["decoded"] == {"secret": 7}
        assert "decoded" not in call("GET", path, token="t")
