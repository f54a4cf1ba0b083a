"""Slow readers (C2.21, C2.23), tested over gRPC with a reader that reads nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.rpcs import BY_METHOD
from tests.contract.face import texts
from tests.contract.grpc_face import GrpcFace
from tests.contract.grpc_forms import topic_path

LARGE = "x" * 20_000

# Recommended for clients of watches. Without it gRPC buffers megabytes for a stalled reader.
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536))


class StallingReader:
    """A watch whose frames are read one by one, on request of the test."""

    def __init__(self, endpoint: str, request: feeds.WatchRequest) -> None:
        self._channel = grpc.insecure_channel(
            endpoint, options=[("grpc.use_local_subchannel_pool", 1), *SMALL_WINDOW]
        )
        rpc = BY_METHOD["Watch"]
        self._call = self._channel.unary_stream(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )(request)
        self.token = ""
        self.opened = self.next().opened

    def next(self) -> feeds.Frame:
        frame = next(self._call)
        assert isinstance(frame, feeds.Frame)
        self.token = frame.resume_token or self.token
        return frame

    def until_caught_up(self, topic: str) -> list[feeds.Frame]:
        """Return the frames of one topic up to its CaughtUp."""
        frames: list[feeds.Frame] = []
        while True:
            frame = self.next()
            if frame.caught_up.topic == topic_path(topic):
                return frames
            if topic_path(topic) in (frame.messages.topic, frame.gap.topic):
                frames.append(frame)

    def until_its_end(self) -> tuple[list[feeds.Frame], grpc.StatusCode]:
        """Return the remaining frames and the status of a stream that the broker has ended."""
        frames: list[feeds.Frame] = []
        try:
            while True:
                frames.append(self.next())
        except grpc.RpcError:
            return frames, self._call.code()

    def close(self) -> None:
        self._call.cancel()
        self._channel.close()


class Stage:
    """A feed `orders`, a stalled reader, and writers that continue."""

    def __init__(self, emulator: Emulator, clock: ManualClock) -> None:
        self.clock = clock
        self.face = GrpcFace(emulator.endpoint)
        self._endpoint = emulator.endpoint
        self._readers: list[StallingReader] = []

    def watch(self, *topics: str) -> StallingReader:
        spec = feeds.WatchSpec()
        for topic in topics:
            spec.topics[topic_path(topic)].tail = True
        return self._read(feeds.WatchRequest(spec=spec))

    def resume(self, reader: StallingReader, token: str = "") -> StallingReader:
        watch_id = reader.opened.watch_id
        return self._read(feeds.WatchRequest(watch_id=watch_id, resume_token=token))

    def _read(self, request: feeds.WatchRequest) -> StallingReader:
        reader = StallingReader(self._endpoint, request)
        self._readers.append(reader)
        return reader

    def append_singly(self, count: int, topic: str = "orders") -> None:
        for number in range(count):
            self.face.append(topic, [{"data": [number, LARGE]}])

    def wait_until_slow(self, caplog: pytest.LogCaptureFixture) -> None:
        """Advance the clock until the broker has found that a reader reads nothing."""
        while not any("has taken nothing for 5 s" in text for text in caplog.messages):
            self.clock.advance(1)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self.face.close()


@pytest.fixture
def stage(emulator: Emulator, clock: ManualClock) -> Iterator[Stage]:
    stage = Stage(emulator, clock)
    yield stage
    stage.close()


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="pullstream.emulator")


def numbers(frames: list[feeds.Frame]) -> list[int]:
    messages = (message for frame in frames for message in frame.messages.messages)
    return [json.loads(message.data)[0] for message in messages]


def test_a_slow_reader_of_a_watch_receives_fewer_and_larger_events_c2_23(stage: Stage) -> None:
    stage.face.put_topic("orders")
    reader = stage.watch("orders")
    stage.append_singly(400)
    frames: list[feeds.Frame] = []
    while numbers(frames[-1:])[-1:] != [399]:
        frames.append(reader.next())
    assert numbers(frames) == list(range(400))
    assert len(frames) < 200
    assert max(len(frame.messages.messages) for frame in frames) > 5


def test_the_broker_ends_the_stream_of_a_stuck_watch_reader_and_keeps_its_session_c2_23(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """After 5 s a warning is logged, and after 30 s the stream ends."""
    stage.face.put_topic("orders")
    reader = stage.watch("orders")
    stage.append_singly(200)
    stage.wait_until_slow(caplog)
    stage.clock.advance(24.9)
    assert stage.face.get_topic("orders")["watchers"] == 1
    stage.clock.advance(0.2)
    assert stage.face.get_topic("orders")["watchers"] == 0
    _, code = reader.until_its_end()
    assert code is grpc.StatusCode.ABORTED
    resumed = stage.resume(reader, reader.token)
    head = stage.face.get_topic("orders")["head_seq"]
    assert resumed.opened.topics[topic_path("orders")].after_seq < head
    assert numbers(resumed.until_caught_up("orders"))[-1] == 199


def test_a_stuck_watch_reader_receives_a_gap_for_records_lost_meanwhile_c2_23(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.face.put_topic("orders", cap_records=10)
    reader = stage.watch("orders")
    stage.append_singly(300)
    stage.wait_until_slow(caplog)
    stage.clock.advance(25)
    got = numbers(reader.until_its_end()[0])
    resumed = stage.resume(reader, reader.token).until_caught_up("orders")
    gap = next(frame.gap for frame in resumed if frame.HasField("gap"))
    assert (gap.to_seq, gap.earliest_seq) == (290, 291)
    # Every record that was not read is in the gap or comes now, so no loss is silent.
    told = set(got) | set(range(gap.from_seq - 1, gap.to_seq)) | set(numbers(resumed))
    assert told >= set(range(300))
    assert numbers(resumed)[-10:] == list(range(290, 300))


def test_a_slow_watch_reader_does_not_delay_other_readers_of_the_topic_c2_21(stage: Stage) -> None:
    stage.face.put_topic("orders")
    stage.watch("orders")
    quick = stage.face.watch({"orders": {"tail": True}})
    assert quick.next()[0] == "caught-up"
    for number in range(300):
        stage.face.append("orders", [{"data": [number, LARGE]}])
        name, _, content = quick.next()
        assert (name, content["records"][0]["data"][0]) == ("record", number)
    quick.close()


def test_a_topic_with_many_records_does_not_delay_the_other_topics_of_a_watch_c2_21(
    stage: Stage,
) -> None:
    """Each topic has one event per turn."""
    stage.face.put_topic("hot")
    stage.face.put_topic("quiet")
    reader = stage.watch("hot", "quiet")
    stage.append_singly(400, "hot")
    stage.face.append("quiet", texts([-1, ""]))
    seen: list[Any] = []
    while not seen or seen[-1] != topic_path("quiet"):
        seen.append(reader.next().messages.topic)
    assert stage.face.get_topic("hot")["head_seq"] == 400
    left = reader.until_caught_up("hot")
    assert numbers(left)[-1] == 399


def test_a_stalled_watch_reader_has_less_than_1_mib_of_unread_records_in_the_broker_c2_23(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit is on the bytes that the broker has sent and the client has not read."""
    stage.face.put_topic("orders")
    reader = stage.watch("orders")
    for _ in range(40):
        stage.face.append("orders", texts(*[LARGE] * 20))
    stage.wait_until_slow(caplog)
    # The session's position is the last frame that was passed to the transport.
    handed_over = stage.resume(reader).opened.topics[topic_path("orders")].after_seq
    assert 0 < handed_over * len(LARGE) < 2**20
