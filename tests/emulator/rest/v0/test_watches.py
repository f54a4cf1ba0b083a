"""Watches of /v0: sessions, and their streams of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import threading
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from pullstream_emulator import Emulator
from pullstream_emulator.rest.v0.event_stream import EventStream
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.event_reader import Event
from tests.emulator.v0_client import TOPIC, V0
from tests.emulator.wire import TIMEOUT


def wait_for_watchers(v0: V0, count: int, topic: str = TOPIC) -> None:
    """Wait for this number of watchers. The broker notices a closed connection a moment later."""
    for _ in range(1000):
        if v0.ok("GET", topic)["watchers"] == count:
            return
    raise AssertionError(f"there are not {count} watchers")


@contextmanager
def stalled(v0: V0, path: str) -> Iterator[socket.socket]:
    """Yield a connection that opens a stream and reads nothing of it."""
    host, port = v0.endpoint.split(":")
    with socket.socket() as connection:
        # A small buffer, which is soon full.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(TIMEOUT)
        connection.connect((host, int(port)))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_for_watchers(v0, 1)
        yield connection


# ---- sessions ----------------------------------------------------------------------------------


def test_the_answer_that_creates_a_v0_watch_session_has_the_start_position_of_each_topic(
    v0: V0,
) -> None:
    """The answer does so for each topic, with the name that the creator used."""
    v0.append("a", "b")
    v0.append("c", topic="/v0/topics/orders:eu")
    topics = {"orders": {"from_seq": 1}, "orders:eu": {"tail": True}}
    session = v0.ok("POST", "/v0/watch", {"topics": topics})
    for name in topics:
        assert session["topics"][name].pop("epoch") == v0.ok("GET", f"/v0/topics/{name}")["epoch"]
    assert session["wid"].startswith("wid_")
    assert session == {
        "wid": session["wid"],
        "stream_url": f"/v0/watch/{session['wid']}",
        "session_ttl_ms": 300_000,
        "topics": {
            "orders": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1},
            "orders:eu": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1},
        },
    }


def test_creating_a_v0_watch_session_for_a_missing_topic_is_refused(v0: V0) -> None:
    """The topic is not created."""
    content: Any = {"topics": {"orders": {}, "missing": {}}}
    v0.append("a")
    assert v0.refused("POST", "/v0/watch", content) == (404, "not_found")
    assert v0.refused("GET", "/v0/topics/missing") == (404, "not_found")


def test_deleting_a_v0_watch_session_ends_its_watch_stream(v0: V0) -> None:
    """The stream ends with the reason. A second end is no error."""
    v0.append("a")
    path = v0.watch()
    wid = path.rpartition("/")[2]
    with v0.stream(path) as stream:
        stream.next_of("caught-up")
        assert v0.ok("DELETE", path) == {"wid": wid, "deleted": True}
        (event,) = stream.rest()
        assert (event.name, event.id, event.data["code"]) == ("error", None, "not_found")
    assert v0.ok("DELETE", path) == {"wid": wid, "deleted": False}
    assert v0.refused("GET", path) == (404, "not_found")


def test_a_v0_watch_session_can_be_reopened_after_its_stream_ended_until_it_expires(
    v0: V0, clock: ManualClock
) -> None:
    """The session expires exactly after its time. An open stream keeps it for ever."""
    v0.append("a")
    path = v0.watch()
    with v0.stream(path) as stream:
        stream.next_of("caught-up")
        for _ in range(10):
            clock.advance(60)
            stream.next_of("hb")
    wait_for_watchers(v0, 0)
    clock.advance(299)
    with v0.stream(path) as stream:
        v0.append("b")
        assert stream.next_of("record").data["records"][0]["data"] == "b"
    wait_for_watchers(v0, 0)
    clock.advance(300)
    assert v0.refused("GET", path) == (404, "not_found")


# ---- streams -----------------------------------------------------------------------------------


def test_a_v0_watch_stream_begins_with_event_stream_headers_and_a_retry_time(v0: V0) -> None:
    """The headers prevent proxies from storing or buffering it."""
    v0.append("a")
    with v0.stream(v0.watch()) as stream:
        assert stream.answer.headers["Content-Type"] == "text/event-stream; charset=UTF-8"
        assert stream.answer.headers["Cache-Control"] == "no-store, no-transform"
        assert stream.answer.headers["X-Accel-Buffering"] == "no"
        stream.next()
        assert stream.retry == 2000


def test_a_v0_watch_stream_sends_existing_and_new_records(v0: V0) -> None:
    """Each event has all its fields and an ID."""
    v0.append("a", "b", node="n", tag="t")
    with v0.stream(v0.watch()) as stream:
        name, event_id, content = stream.next()
        assert (name, bool(event_id)) == ("record", True)
        times = [record.pop("$ts") for record in content["records"]]
        assert times == sorted(times)
        assert content == {
            "topic": "orders",
            "records": [
                {"$seq": 1, "$node": "n", "data": "a"}, {"$seq": 2, "$node": "n", "data": "b"}
            ],
            "from_seq": 0, "to_seq": 2, "head_seq": 2,
        }  # fmt: skip
        assert stream.next() == Event("caught-up", event_id, {"topic": "orders", "head_seq": 2})
        v0.append("c")
        event = stream.next()
        assert (event.name, event.data["from_seq"], event.data["to_seq"]) == ("record", 2, 3)
        assert event.id != event_id


def test_the_lines_of_a_v0_watch_event_equal_those_in_the_guide(v0: V0) -> None:
    """The lines are equal byte by byte, except for number and time."""
    v0.append({"type": "comment"}, tag="t")
    path = v0.watch(heartbeat_ms=1000)
    host, port = v0.endpoint.split(":")
    with socket.create_connection((host, int(port)), TIMEOUT) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        text = b""
        while b"caught-up" not in text:
            text += connection.recv(65536)
    lines = text.decode().partition("\r\n\r\n")[2].split("\n")
    time = json.loads(lines[4].removeprefix("data: "))["records"][0]["$ts"]
    assert lines[:3] == ["retry: 2000", "", lines[2]]
    assert lines[2].startswith("id: ")
    assert lines[3:6] == [
        "event: record",
        f'data: {{"topic":"orders","records":[{{"$seq":1,"$ts":{time},'
        '"data":{"type":"comment"}}],"from_seq":0,"to_seq":1,"head_seq":1}',
        "",
    ]


def test_an_idle_v0_watch_stream_sends_heartbeats(v0: V0, clock: ManualClock) -> None:
    """Heartbeats are comments without an ID, and are sent only while there is no other event."""
    v0.append("a")
    with v0.stream(v0.watch(heartbeat_ms=2000)) as stream:
        stream.next_of("caught-up")
        clock.advance(1.9)
        v0.append("b")
        assert stream.next().name == "record"
        clock.advance(1.9)
        v0.append("c")
        assert stream.next().name == "record"
        clock.advance(2)
        assert stream.next() == Event("hb")


def test_a_new_v0_watch_session_may_start_at_a_stored_cursor(v0: V0) -> None:
    """The last ID sets the positions of its topics. Others begin where the request says."""
    v0.append("a", "b")
    with v0.stream(v0.watch(limit=1)) as stream:
        cursor = stream.next().id
    v0.append("c", topic="/v0/topics/others")
    topics = {"orders": {"tail": True}, "others": {"from_seq": 0}}
    with v0.stream(v0.watch(topics=topics, cursor=cursor)) as stream:
        came = [stream.next_of("record").data["records"][0]["data"] for _ in topics]
    assert sorted(came) == ["b", "c"]


def test_the_event_id_of_a_v0_watch_of_256_topics_can_resume_the_watch_c2_18(v0: V0) -> None:
    """An EventSource sends it in a header, which is long in this case."""
    topics: Any = {f"notifications:{number}{'x' * 200}": {} for number in range(256)}
    for name in topics:
        v0.append("a", topic=f"/v0/topics/{name}")
    path = v0.watch(topics=topics)
    with v0.stream(path) as stream:
        first = stream.next_of("record").id
        # Read to the end, because a closed connection with much unsent data is noticed late.
        for _ in topics:
            stream.next_of("caught-up")
    assert first is not None
    assert len(first) > 64 * 1024
    wait_for_watchers(v0, 0, f"/v0/topics/{next(iter(topics))}")
    with v0.stream(path, **{"Last-Event-ID": first}) as stream:
        # The first topic is already past that ID.
        again = {stream.next_of("record").data["topic"] for _ in range(255)}
    assert len(again) == 255


def test_a_v0_watch_stream_request_with_an_unknown_last_event_id_is_refused(v0: V0) -> None:
    """The refusal comes before anything is sent."""
    v0.append("a")
    headers = {"Last-Event-ID": "made up"}
    assert v0.refused("GET", v0.watch(), **headers) == (400, "invalid_request")


def test_a_second_v0_stream_of_a_watch_session_ends_the_first_stream(v0: V0) -> None:
    """A new stream ends the previous one, which reports the reason."""
    v0.append("a")
    path = v0.watch()
    with v0.stream(path) as first, v0.stream(path) as second:
        assert first.rest()[-1].data["code"] == "conflict"
        v0.append("b")
        assert second.next_of("record").data["records"][-1]["data"] == "b"


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, {"$node", "data", "meta"}),
        ({"include_tags": True, "include_meta": False}, {"$tag", "$node", "data"}),
        ({"include_data": False}, {"$tag", "$node"}),
    ],
)
def test_a_v0_watch_session_selects_which_fields_of_records_are_sent(
    v0: V0, wanted: dict[str, bool], names: set[str]
) -> None:
    """A diff has the same options."""
    v0.append("a", tag="t", node="n", key="k", meta={"m": "1"})
    with v0.stream(v0.watch(**wanted)) as stream:
        (record,) = stream.next().data["records"]
    assert set(record) - {"$key"} == {"$seq", "$ts", *names}
    assert ("$key" in record) == ("data" in names)


def test_a_v0_watch_session_can_filter_records_by_topic_and_node(v0: V0) -> None:
    """The watch does not receive other records."""
    v0.append("mine", node="me", tag="x:1")
    v0.append("yours", node="you", tag="x:1")
    v0.append("other", tag="y")
    topics = {"orders": {"filter": ["tag", "Glob", "x:*"]}}
    with v0.stream(v0.watch(topics=topics, node="me")) as stream:
        content = stream.next_of("record").data
    assert [record["data"] for record in content["records"]] == ["yours"]
    assert content["to_seq"] == 3


# ---- clients that may have a stream ------------------------------------------------------------


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "*/*", "text/*", "application/json, text/event-stream;q=0.5"]
)
def test_a_v0_watch_request_that_accepts_event_streams_is_answered_with_an_event_stream(
    v0: V0, accept: str
) -> None:
    """Every form of the Accept header works."""
    v0.append("a")
    with v0.stream(v0.watch(), Accept=accept) as stream:
        assert stream.next().name == "record"


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html", "text/event-stream;q=0, application/json", ";;,"]
)
def test_a_v0_watch_request_that_does_not_accept_event_streams_is_refused(
    v0: V0, accept: str
) -> None:
    """Otherwise the client would wait for the end of the stream."""
    v0.append("a")
    assert v0.refused("GET", v0.watch(), Accept=accept) == (406, "not_acceptable")


def test_the_number_of_watchers_of_a_topic_excludes_disconnected_v0_watch_clients(v0: V0) -> None:
    """The session stays."""
    v0.append("a")
    with v0.stream(v0.watch()) as stream:
        stream.next_of("caught-up")
        assert v0.ok("GET", TOPIC)["watchers"] == 1
    wait_for_watchers(v0, 0)


def test_a_v0_watch_client_that_stops_reading_is_disconnected(
    v0: V0, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is closed.

    When the reader reconnects, it receives the records that still exist.
    """
    v0.ok("PUT", TOPIC, {"cap_records": 100})
    path = v0.watch()
    with stalled(v0, path) as connection:
        for _ in range(20):
            v0.append("x" * 100_000)
        clock.advance(5)
        clock.advance(25)
        wait_for_watchers(v0, 0)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert len(received) < 1_000_000
    # The connection was cut, without an orderly end that the reader would have to read first.
    assert not received.endswith(b"0\r\n\r\n")
    assert "has taken nothing for 5 s" in caplog.text
    with v0.stream(path) as stream:
        assert stream.next().data["to_seq"] > 0


def test_the_broker_keeps_only_one_event_in_memory_for_a_stalled_v0_watch_client_c2_23(
    v0: V0, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker keeps only one form of the event, which may have 8 MiB."""
    v0.ok("PUT", TOPIC)
    size = 4 * 2**20
    for _ in range(20):
        v0.append("x" * (size // 8))
    path = v0.watch(max_batch_bytes=size)
    gc.collect()
    tracemalloc.start()
    try:
        with stalled(v0, path) as connection:
            begun = b""
            # The event is being written, so its source is not needed any more.
            while b"event: record" not in begun:
                begun += connection.recv(100)
            while "has taken nothing for 5 s" not in caplog.text:
                clock.advance(1)
            gc.collect()
            cost, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cost < 1.5 * size


def test_v0_watch_streams_end_when_the_broker_stops(clock: ManualClock) -> None:
    """The streams report the reason, and the broker does not wait for their clients."""
    with Emulator(clock=clock, rest=True) as emulator:
        v0 = V0(emulator.endpoint)
        v0.append("a")
        with v0.stream(v0.watch()) as stream:
            stream.next_of("caught-up")
            emulator.stop()
            assert [event.data["code"] for event in stream.rest()] == ["unavailable"]


def test_a_watch_session_created_over_grpc_cannot_be_opened_over_v0(
    emulator: Emulator, v0: V0
) -> None:
    """The session has no options for the content of records, because it was created over gRPC."""
    v0.append("a")
    spec = feeds.WatchSpec()
    spec.topics["projects/default/topics/orders"].SetInParent()
    rpc = BY_METHOD["Watch"]
    with grpc.insecure_channel(emulator.endpoint) as channel:
        watch: Any = channel.unary_stream(
            rpc.path, rpc.request.SerializeToString, rpc.response.FromString
        )
        call = watch(feeds.WatchRequest(spec=spec), timeout=TIMEOUT)
        watch_id = next(call).opened.watch_id
        assert v0.refused("GET", f"/v0/watch/{watch_id}") == (404, "not_found")
        call.cancel()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{\r\n"a":\n[1]}', {"a": [1]}),
        (b"\xff\n", {"$bytes": b64encode(b"\xff\n").decode()}),
    ],
)
def test_line_breaks_in_message_data_are_escaped_in_a_v0_watch_event(
    v0: V0, data: bytes, expected: Any
) -> None:
    """The test includes data of publishers that do not know of events."""
    v0.ok("PUT", TOPIC)
    messages = [{"data": b64encode(data).decode()}]
    v0.rest.ok("POST", "/v1/projects/default/topics/orders:publish", {"messages": messages})
    with v0.stream(v0.watch()) as stream:
        (record,) = stream.next().data["records"]
    assert record["data"] == expected


def test_the_broker_serves_other_calls_between_two_large_events_of_a_v0_watch_stream() -> None:
    """The rule also holds if the client reads fast, so that no write has to wait."""

    class Greedy(web.StreamResponse):
        async def write(self, data: bytes | bytearray | memoryview) -> None:
            pass

    async def event_of(frame: encoded.EncodedFrame) -> str:
        return ""

    async def others_have_their_turn() -> bool:
        stream = EventStream(make_mocked_request("GET", "/"), event_of)
        stream.response = Greedy()
        other = asyncio.create_task(asyncio.sleep(0))
        await stream.write(encoded.EncodedFrame())
        await stream.write(encoded.EncodedFrame())
        return other.done()

    assert asyncio.run(others_have_their_turn())


# ---- memory ------------------------------------------------------------------------------------


def wait_for_memory(emulator: Emulator, least: int) -> int:
    """Wait until the memory of watches is at least this number of bytes, and return it."""
    for _ in range(1000):
        taken = emulator.inspect(lambda engine: engine.registry.usage.watches)
        if taken >= least:
            return taken
        threading.Event().wait(0.01)
    raise AssertionError(f"watches take {taken} bytes, and not {least}")


def test_new_v0_watch_sessions_beyond_the_memory_limit_are_refused() -> None:
    """The error has the limit and the remedy. The end of a session makes room."""
    with Emulator(rest=True, max_bytes=100_000) as emulator:
        v0 = V0(emulator.endpoint)
        topics: Any = {f"topic-{number}": {} for number in range(20)}
        for name in topics:
            v0.append("a", topic=f"/v0/topics/{name}")
        paths = [v0.watch(topics=topics) for _ in range(3)]
        reply = v0.rest.call("POST", "/v0/watch", {"topics": topics})
        assert (reply.status, reply.content["error"]["code"]) == (429, "throttled")
        assert "may keep 100000 (--max-bytes)" in reply.content["error"]["message"]
        assert "end watches" in reply.content["error"]["message"]
        large = {"records": [{"data": "x" * 30_000}]}
        assert v0.refused("POST", "/v0/topics/topic-0", large) == (429, "throttled")
        v0.ok("DELETE", paths[0])
        v0.watch(topics=topics)


def test_unsent_events_of_all_stalled_v0_watch_clients_together_stay_within_a_memory_limit(
    clock: ManualClock,
) -> None:
    """The limit holds for events of any size. Other readers still receive theirs."""
    megabyte, room = "x" * 1_000_000, 40_000_000
    with Emulator(clock=clock, rest=True, max_bytes=8_100_000 + room) as emulator:
        v0 = V0(emulator.endpoint)
        for _ in range(8):
            v0.append(megabyte)
        paths = [v0.watch(max_batch_bytes=8 * 1024 * 1024) for _ in range(12)]
        healthy = v0.watch(max_batch_bytes=8 * 1024 * 1024)
        host, port = v0.endpoint.split(":")
        with contextlib.ExitStack() as connections:
            for path in paths:
                connection = connections.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect((host, int(port)))
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            wait_for_watchers(v0, len(paths))
            # Without the limit there would be 12 events of 16 MB.
            assert wait_for_memory(emulator, room) < room + 17_000_000
            with v0.stream(healthy) as stream:
                event = Event("")
                while event.name != "record":
                    try:
                        event = stream.next(timeout=0.5)
                    except TimeoutError:
                        # The readers before it are slow by then, and end. When it is the only one
                        # left, its turn has come, and it must not become slow as well.
                        if v0.ok("GET", TOPIC)["watchers"] > 1:
                            clock.advance(5)
                assert len(event.data["records"]) == 8


def test_unsent_v0_watch_events_count_towards_the_memory_limit_with_their_text_size(
    v0: V0, emulator: Emulator
) -> None:
    """JSON uses six bytes for a control character."""
    meta = {f"m{number}": "\x01" * 1000 for number in range(100)}
    for _ in range(10):
        v0.append("a", meta=meta)
    with stalled(v0, v0.watch(max_batch_bytes=8 * 1024 * 1024)):
        # The size as a frame plus the size as text.
        wait_for_memory(emulator, 1_000_000 + 6_000_000)
