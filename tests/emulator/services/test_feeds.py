"""Feeds over gRPC: ends of waits and streams, faults, and tokens."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import ResourceExhausted
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.contract.channel_fixtures import early_answers as early_answers
from tests.emulator.broker import TOPIC
from tests.emulator.loop_steps import measured_steps, on_this_machine
from tests.emulator.wire import TIMEOUT, Wire

OTHER = "projects/test/topics/other"


class WatchCall:
    """One Watch call, frame by frame."""

    def __init__(self, wire: Wire, request: feeds.WatchRequest, token: str = "") -> None:
        rpc = BY_METHOD["Watch"]
        stub = wire.channel.unary_stream(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._call: Any = stub(request, timeout=TIMEOUT, metadata=metadata)

    def next(self) -> str:
        """Return the kind of the next frame. The frame itself is in `frame`."""
        self.frame: feeds.Frame = next(self._call)
        return str(self.frame.WhichOneof("kind"))

    def end(self) -> tuple[grpc.StatusCode, str]:
        """Return the final status and text, and skip the frames before."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError:
            # The status is checked below.
            pass
        return self._call.code(), self._call.details()


def tail(*topics: str) -> feeds.WatchRequest:
    request = feeds.WatchRequest()
    for topic in topics or (TOPIC,):
        request.spec.topics[topic].tail = True
    return request


def append(wire: Wire, data: str, topic: str = TOPIC) -> None:
    messages = [pubsub.PubsubMessage(data=data.encode())]
    wire.call("Append", feeds.AppendRequest(topic=topic, messages=messages))


def waiting_read(wire: Wire) -> Any:
    request = feeds.ReadRequest(topic=TOPIC)
    request.start.tail = True
    request.wait.FromSeconds(20)
    return wire.start("Read", request)


def wait_for_a_waiter(emulator: Emulator) -> None:
    """Wait until a Read call waits."""
    while not emulator.inspect(lambda engine: engine.registry.topics[TOPIC].feed is not None):
        pass


def test_stopping_the_broker_ends_waiting_feed_reads_and_watches_with_unavailable(
    emulator: Emulator, wire: Wire
) -> None:
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC))
    read = waiting_read(wire)
    wait_for_a_waiter(emulator)
    watch = WatchCall(wire, tail())
    assert [watch.next(), watch.next()] == ["opened", "caught_up"]
    emulator.stop()
    assert watch.end()[0] is grpc.StatusCode.UNAVAILABLE
    assert read.code() is grpc.StatusCode.UNAVAILABLE
    assert read.details() == "The broker is shutting down."


def test_a_broker_reset_ends_waiting_feed_reads_and_watches_with_not_found(
    emulator: Emulator, wire: Wire
) -> None:
    wire.call("CreateTopic", pubsub.Topic(name=TOPIC))
    read = waiting_read(wire)
    wait_for_a_waiter(emulator)
    watch = WatchCall(wire, tail())
    assert [watch.next(), watch.next()] == ["opened", "caught_up"]
    emulator.reset()
    assert watch.end()[0] is grpc.StatusCode.NOT_FOUND
    assert read.code() is grpc.StatusCode.NOT_FOUND


def test_a_waiting_feed_read_is_answered_empty_before_the_deadline_of_its_caller(
    wire: Wire, early_answers: float
) -> None:
    append(wire, "a")
    request = feeds.ReadRequest(topic=TOPIC)
    request.start.tail = True
    request.wait.FromSeconds(20)
    assert wire.call("Read", request, timeout=early_answers + 0.3).caught_up


def test_a_watch_session_can_be_resumed_through_a_second_emulator_of_the_same_broker(
    emulator: Emulator, wire: Wire
) -> None:
    append(wire, "a")
    watch = WatchCall(wire, tail())
    assert watch.next() == "opened"
    watch_id = watch.frame.opened.watch_id
    assert watch.next() == "caught_up"
    emulator.stop()
    with Emulator(broker=emulator.broker, port=emulator.port), Wire(emulator.endpoint) as again:
        append(again, "b")
        resumed = WatchCall(again, feeds.WatchRequest(watch_id=watch_id))
        assert [resumed.next(), resumed.next()] == ["opened", "messages"]
        assert resumed.frame.messages.from_seq == 1


# ---- faults --------------------------------------------------------------------------------------


def test_a_fault_limited_to_one_topic_refuses_a_watch_of_several_topics_that_includes_it(
    emulator: Emulator, wire: Wire
) -> None:
    append(wire, "a")
    append(wire, "a", OTHER)
    emulator.faults.error("Watch", ResourceExhausted("enough"), resource="other")
    assert WatchCall(wire, tail()).next() == "opened"
    assert WatchCall(wire, tail(TOPIC, OTHER)).end() == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "enough",
    )


def test_the_lost_reply_fault_ends_a_watch_stream_instead_of_sending_the_next_frame(
    emulator: Emulator, wire: Wire
) -> None:
    append(wire, "a")
    watch = WatchCall(wire, tail())
    assert [watch.next(), watch.next()] == ["opened", "caught_up"]
    emulator.faults.lose_reply("Watch", times=1)
    append(wire, "b")
    assert watch.end() == (grpc.StatusCode.UNAVAILABLE, "The reply was lost.")


def test_a_feed_read_held_by_the_drop_fault_is_answered_when_the_fault_is_lifted(
    emulator: Emulator, wire: Wire
) -> None:
    append(wire, "a")
    fault = emulator.faults.drop("Read")
    read = wire.start("Read", feeds.ReadRequest(topic=TOPIC))
    fault.wait_for_hits()
    fault.lift()
    assert len(read.result().messages) == 1


# ---- tokens --------------------------------------------------------------------------------------


@pytest.fixture
def guarded(clock: ManualClock) -> Iterator[Emulator]:
    tokens = {"t-test": Principal("tester", frozenset({"test"}))}
    with Emulator(clock=clock, access=Access(tokens)) as emulator:
        yield emulator


def test_a_watch_of_topics_in_a_project_without_access_is_refused(guarded: Emulator) -> None:
    guarded.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
    wire = Wire(guarded.endpoint)
    assert WatchCall(wire, tail(), "t-test").next() == "opened"
    refused = WatchCall(wire, tail(TOPIC, "projects/else/topics/orders"), "t-test")
    assert refused.end()[0] is grpc.StatusCode.PERMISSION_DENIED
    assert WatchCall(wire, tail()).end()[0] is grpc.StatusCode.UNAUTHENTICATED
    wire.close()


def test_a_delete_of_100_000_records_does_not_block_the_event_loop(wire: Wire) -> None:
    messages = [pubsub.PubsubMessage(data=b"x", attributes={"tag": tag}) for tag in "ab"]
    for _ in range(20):
        wire.call("Append", feeds.AppendRequest(topic=TOPIC, messages=messages * 2500))
    gc.collect()
    with measured_steps() as steps:
        request = feeds.DeleteMessagesRequest(topic=TOPIC, filter='attributes.tag = "b"')
        assert wire.call("DeleteMessages", request).deleted == 50_000
    assert steps.count > 20
    assert steps.longest < on_this_machine(0.1)
    assert wire.call("GetFeed", feeds.GetFeedRequest(topic=TOPIC)).count == 50_000


def test_a_large_delete_of_records_is_kept_across_a_restart(tmp_path: Path) -> None:
    messages = [pubsub.PubsubMessage(data=b"x", attributes={"tag": tag}) for tag in "ab"]
    with Emulator(data_dir=tmp_path) as emulator, Wire(emulator.endpoint) as wire:
        for _ in range(10):
            wire.call("Append", feeds.AppendRequest(topic=TOPIC, messages=messages * 5000))
        request = feeds.DeleteMessagesRequest(topic=TOPIC, filter='attributes.tag = "b"')
        assert wire.call("DeleteMessages", request).deleted == 50_000
    with Emulator(data_dir=tmp_path) as emulator, Wire(emulator.endpoint) as wire:
        assert wire.call("GetFeed", feeds.GetFeedRequest(topic=TOPIC)).count == 50_000
