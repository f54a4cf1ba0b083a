"""The measured clients, each started in the same way, and their message counters."""

from __future__ import annotations

import importlib.util
import itertools
import os
import queue
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

OURS, OFFICIAL, BARE = "pullstream", "official", "bare"
FOUR_STREAMS = "pullstream, 4 streams"
COLUMNS = "pullstream, columns"
GO = "Google's Go client"
RUST = "Google's Rust client"
BARE_CHANNELS = "bare, a channel for each stream, acks"
BARE_ACKS = "bare, every field and acks"
BARE_FUTURES = "bare, a future for each message"
BARE_AGES = "bare, ages"

TIMESTAMP = struct.Struct("d")


# Clients in other languages, and the programs that are built of them.
SOURCES = Path(__file__).with_name("peers")
BUILD = Path(__file__).parents[2] / "build" / "peers"

# Ack ids of the bare loop in one request, if the window is at least four times as large.
ACKS_AT_ONCE = 2_500


class BuildFailed(Exception):
    """A client in another language could not be built."""


class Counter:
    """Counts callbacks, exactly and at the same small cost for every client.

    `tick` is one call into C, which no other thread can divide. `lists` has the number of messages
    of each callback that takes many.
    """

    def __init__(self) -> None:
        self.tick: Callable[[], int] = itertools.count().__next__
        self._looks = 0
        self.lists: list[int] = []
        self._in_lists = 0

    def many(self, columns: Any) -> None:
        """Read every column, as the bare loop reads every field, and acknowledge."""
        _ = (
            columns.data,
            columns.message_ids,
            columns.ordering_keys,
            columns.publish_times,
            columns.attributes,
            columns.delivery_attempts,
        )
        columns.ack()
        self.lists.append(len(columns))

    def callback(self, message: Any) -> None:
        message.ack()
        self.tick()

    def read(self) -> int:
        """Return the callbacks so far.

        Only one thread may call this: each call ticks and is subtracted.
        """
        self._looks += 1
        lists = len(self.lists)
        self._in_lists += sum(self.lists[:lists])
        del self.lists[:lists]
        return self.tick() - (self._looks - 1) + self._in_lists


class Stopwatch(Counter):
    """Counts, and keeps the age of each message in seconds, by the time of sending in its data."""

    def __init__(self) -> None:
        super().__init__()
        self.ages: list[float] = []

    def callback(self, message: Any) -> None:
        self.ages.append(time.time() - TIMESTAMP.unpack(message.data)[0])
        super().callback(message)

    def note(self, data: bytes) -> None:
        """Count a message that has no callback, and keep its age."""
        self.ages.append(time.time() - TIMESTAMP.unpack(data)[0])
        self.tick()


# Begins to receive, with the subscription's full name, max_messages, and the counter.
Subscribe = Callable[[str, int, Counter], None]


def pullstream(endpoint: str, streams: int = 1) -> Subscribe:
    from pullstream import FlowControl, SubscriberClient

    client = SubscriberClient(endpoint=endpoint)

    def subscribe(subscription: str, max_messages: int, counter: Counter) -> None:
        limits = FlowControl(max_messages=max_messages)
        client.subscribe(subscription, counter.callback, limits, streams=streams)

    return subscribe


def in_columns(endpoint: str) -> Subscribe:
    from pullstream import FlowControl, SubscriberClient

    client = SubscriberClient(endpoint=endpoint)

    def subscribe(subscription: str, max_messages: int, counter: Counter) -> None:
        limits = FlowControl(max_messages=max_messages)
        client.subscribe_batch(subscription, counter.many, limits, columns=True)

    return subscribe


def official(endpoint: str) -> Subscribe:
    os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
    from google.cloud import pubsub_v1

    client = pubsub_v1.SubscriberClient()

    def subscribe(subscription: str, max_messages: int, counter: Counter) -> None:
        limits = pubsub_v1.types.FlowControl(max_messages=max_messages)
        client.subscribe(subscription, counter.callback, flow_control=limits)

    return subscribe


def bare(endpoint: str, *, ages: bool = False) -> Subscribe:
    """Measure the practical limit with a grpcio loop that reads each field.

    It runs no callbacks and does not acknowledge, so its window is unlimited. With `ages`, it notes
    the age of each message.
    """
    import grpc

    from pullstream_protocol.messages import pubsub_pb2 as pubsub

    channel = grpc.insecure_channel(endpoint)
    open_stream = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=pubsub.StreamingPullRequest.SerializeToString,
        response_deserializer=pubsub.StreamingPullResponse.FromString,
    )

    def subscribe(subscription: str, _max_messages: int, counter: Counter) -> None:
        requests: queue.SimpleQueue[pubsub.StreamingPullRequest | None] = queue.SimpleQueue()
        requests.put(
            pubsub.StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=60)
        )

        def read() -> None:
            for response in open_stream(iter(requests.get, None)):
                for received in response.received_messages:
                    message = received.message
                    _ = (received.ack_id, message.data, message.message_id, message.ordering_key)
                    counter.tick()
            # A reference is kept until here, because a collected channel ends its calls.
            channel.close()

        def read_ages() -> None:
            assert isinstance(counter, Stopwatch)
            for response in open_stream(iter(requests.get, None)):
                for received in response.received_messages:
                    counter.note(received.message.data)
            channel.close()

        threading.Thread(target=read_ages if ages else read, daemon=True).start()

    return subscribe


def bare_acks(endpoint: str, *, channels: bool = False) -> Subscribe:
    """Measure a grpcio loop that reads every field and acknowledges, in large requests.

    It has no leases, no retries, no callbacks and no results. With `channels`, each stream has its
    own channel and connection, and the acknowledgements share one, as in pullstream.
    """
    import grpc

    from pullstream_protocol.messages import pubsub_pb2 as pubsub

    common = grpc.insecure_channel(endpoint)
    acknowledge = common.unary_unary(
        "/google.pubsub.v1.Subscriber/Acknowledge",
        request_serializer=pubsub.AcknowledgeRequest.SerializeToString,
        response_deserializer=lambda _: None,
    )

    def subscribe(subscription: str, max_messages: int, counter: Counter) -> None:
        # A channel with other options shares no connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(endpoint, options=options) if channels else common
        open_stream = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=pubsub.StreamingPullRequest.SerializeToString,
            response_deserializer=pubsub.StreamingPullResponse.FromString,
        )
        requests: queue.SimpleQueue[pubsub.StreamingPullRequest | None] = queue.SimpleQueue()
        requests.put(
            pubsub.StreamingPullRequest(
                subscription=subscription,
                stream_ack_deadline_seconds=60,
                max_outstanding_messages=max_messages,
            )
        )
        at_once = min(ACKS_AT_ONCE, max_messages // 4)

        def read() -> None:
            ack_ids: list[str] = []
            # grpcio cancels a call whose future is dropped.
            calls: deque[Any] = deque(maxlen=16)
            for response in open_stream(iter(requests.get, None)):
                for received in response.received_messages:
                    message = received.message
                    time = message.publish_time
                    _ = (
                        message.data,
                        message.message_id,
                        message.ordering_key,
                        message.attributes,
                        (time.seconds, time.nanos),
                        received.delivery_attempt,
                    )
                    ack_ids.append(received.ack_id)
                counter.lists.append(len(response.received_messages))
                if len(ack_ids) >= at_once:
                    request = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids)
                    calls.append(acknowledge.future(request))
                    ack_ids = []
            channel.close()

        threading.Thread(target=read, daemon=True).start()

    return subscribe


PEERS: dict[str, Callable[[str], Subscribe]] = {
    OURS: pullstream,
    FOUR_STREAMS: partial(pullstream, streams=4),
    OFFICIAL: official,
    BARE: bare,
    BARE_AGES: partial(bare, ages=True),
    BARE_CHANNELS: partial(bare_acks, channels=True),
    COLUMNS: in_columns,
    BARE_ACKS: bare_acks,
}


def command(peer: str) -> list[str]:
    """Return the command that measures a client. It has the arguments of tests/bench/client.py.

    Raises:
        BuildFailed: The client could not be built.
    """
    if peer == GO:
        sources, built = SOURCES / "go", BUILD / "go"
        build = ["go", "build", "-o", str(built), "."]
    elif peer == RUST:
        # The first build takes some minutes.
        sources, built = SOURCES / "rust", BUILD / "rust" / "release" / "peer"
        build = ["cargo", "build", "--release", "--locked", "--target-dir", str(BUILD / "rust")]
    else:
        return [sys.executable, "-m", "tests.bench.client", peer]
    ended = subprocess.run(build, cwd=sources, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BuildFailed(f"{peer} cannot be built: {ended.stderr.strip()[-500:]}")
    return [str(built)]


def missing(peer: str) -> str | None:
    """Return the reason why that client cannot be measured here, or None."""
    if peer == GO:
        return None if shutil.which("go") else "Go is not installed"
    if peer == RUST:
        return None if shutil.which("cargo") else "Rust is not installed"
    if peer != OFFICIAL:
        return None
    try:
        found = importlib.util.find_spec("google.cloud.pubsub_v1")
    except ModuleNotFoundError:
        found = None
    return None if found else "google-cloud-pubsub is not installed"
