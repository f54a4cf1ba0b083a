"""The measured clients, each started in the same way, and their message counters."""

from __future__ import annotations

import importlib.util
import itertools
import os
import queue
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

OURS, OFFICIAL, BARE = "pullstream", "official", "bare"

TIMESTAMP = struct.Struct("d")


class Counter:
    """Counts callbacks, exactly and at the same small cost for every client.

    `tick` is one call into C, which no other thread can divide.
    """

    def __init__(self) -> None:
        self.tick: Callable[[], int] = itertools.count().__next__
        self._looks = 0

    def callback(self, message: Any) -> None:
        message.ack()
        self.tick()

    def read(self) -> int:
        """Return the callbacks so far.

        Only one thread may call this: each call ticks and is subtracted.
        """
        self._looks += 1
        return self.tick() - (self._looks - 1)


class Stopwatch(Counter):
    """Counts, and keeps the age of each message in seconds, by the time of sending in its data."""

    def __init__(self) -> None:
        super().__init__()
        self.ages: list[float] = []

    def callback(self, message: Any) -> None:
        self.ages.append(time.time() - TIMESTAMP.unpack(message.data)[0])
        super().callback(message)


# Begins to receive, with the subscription's full name, max_messages, and the counter.
Subscribe = Callable[[str, int, Counter], None]


def pullstream(endpoint: str) -> Subscribe:
    from pullstream import FlowControl, SubscriberClient

    client = SubscriberClient(endpoint=endpoint)

    def subscribe(subscription: str, max_messages: int, counter: Counter) -> None:
        client.subscribe(subscription, counter.callback, FlowControl(max_messages=max_messages))

    return subscribe


def official(endpoint: str) -> Subscribe:
    os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
    from google.cloud import pubsub_v1

    client = pubsub_v1.SubscriberClient()

    def subscribe(subscription: str, max_messages: int, counter: Counter) -> None:
        limits = pubsub_v1.types.FlowControl(max_messages=max_messages)
        client.subscribe(subscription, counter.callback, flow_control=limits)

    return subscribe


def bare(endpoint: str) -> Subscribe:
    """Measure the practical limit with a grpcio loop that reads each field.

    It runs no callbacks and does not acknowledge, so its window is unlimited.
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

        threading.Thread(target=read, daemon=True).start()

    return subscribe


PEERS: dict[str, Callable[[str], Subscribe]] = {OURS: pullstream, OFFICIAL: official, BARE: bare}


def missing(peer: str) -> str | None:
    """Return the reason why that client cannot be measured here, or None."""
    if peer != OFFICIAL:
        return None
    try:
        found = importlib.util.find_spec("google.cloud.pubsub_v1")
    except ModuleNotFoundError:
        found = None
    return None if found else "google-cloud-pubsub is not installed"
