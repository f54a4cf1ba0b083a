"""One publisher, measured in its own process: messages per second, and the cost.

    python -m tests.bench.publish_client pullstream localhost:PORT --mode each --batch 100

`each` calls `publish` for every message and checks the results later; `many` calls `publish_many`;
`one` waits for each message before the next; `await` has 1,000 tasks that publish and await. All
results count, and the clock stops with the last one. Prints its figures as one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

from .client import Figures
from .peers import BARE, BARE_FUTURES, OFFICIAL, OURS

TOPIC = "projects/bench/topics/bench"
DATA = b"x" * 100

# The most messages without a result: enough for a server with latency, and limited for the memory.
UNCONFIRMED = 50_000
# The messages between two looks at the results.
LOOK_EVERY = 1_000
# The requests of the bare loop that are on their way at a time.
PIPELINED = 8
TASKS = 1_000
# The fewest calls that have percentiles, also on a busy machine.
FEWEST = 3
WARM_UP = 0.5


class Stopwatch:
    """Measures a rate and CPU time, from the end of a warm-up."""

    def __init__(self, seconds: float) -> None:
        self._begin = time.perf_counter() + WARM_UP
        self.end = self._begin + seconds
        self._counted_from: tuple[float, float, int] | None = None

    def is_over(self, published: int) -> bool:
        """Return whether the time is over; `published` is the present number of messages.

        On a busy machine, a step may take longer than the time. At least one is measured.
        """
        now = time.perf_counter()
        if self._counted_from is None:
            if now >= self._begin:
                self._counted_from = now, time.process_time(), published
            return False
        return now >= self.end and published > self._counted_from[2]

    def figures(self, published: int) -> Figures:
        assert self._counted_from is not None
        began, cpu, before = self._counted_from
        count = published - before
        return {
            "rate": count / (time.perf_counter() - began),
            "cpu_micros": (time.process_time() - cpu) / count * 1e6,
        }


def publisher_of(peer: str, endpoint: str, batch: int, keys: int) -> Any:
    if peer == OURS:
        from pullstream import BatchSettings, PublisherClient, PublisherOptions

        return PublisherClient(
            BatchSettings(max_messages=batch),
            PublisherOptions(enable_message_ordering=bool(keys)),
            endpoint=endpoint,
        )
    if peer == BARE_FUTURES:
        return BarePublisher(endpoint, batch)
    os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
    from google.cloud import pubsub_v1

    return pubsub_v1.PublisherClient(
        pubsub_v1.types.BatchSettings(max_messages=batch),
        pubsub_v1.types.PublisherOptions(enable_message_ordering=bool(keys)),
    )


def each(publisher: Any, keys: int, seconds: float) -> Figures:
    """Publish without waiting, and check every result."""
    names = itertools.cycle([f"key-{number}" for number in range(keys)] or [""])
    waiting: deque[Any] = deque()
    watch, published = Stopwatch(seconds), 0
    publish = publisher.publish
    while not watch.is_over(published):
        for _ in range(LOOK_EVERY):
            waiting.append(publish(TOPIC, DATA, next(names)) if keys else publish(TOPIC, DATA))
        published += LOOK_EVERY
        while len(waiting) > UNCONFIRMED or (waiting and waiting[0].done()):
            waiting.popleft().result()
    while waiting:
        waiting.popleft().result()
    return watch.figures(published)


def many(publisher: Any, batch: int, seconds: float) -> Figures:
    messages = [DATA] * 10 * batch
    waiting: deque[Any] = deque()
    watch, published = Stopwatch(seconds), 0
    while not watch.is_over(published):
        waiting.append(publisher.publish_many(TOPIC, messages))
        published += len(messages)
        if len(waiting) * len(messages) > UNCONFIRMED:
            waiting.popleft().result()
    while waiting:
        waiting.popleft().result()
    return watch.figures(published)


def one(publisher: Any, seconds: float) -> Figures:
    ages: list[float] = []
    end = time.perf_counter() + WARM_UP + seconds
    while (began := time.perf_counter()) < end or len(ages) < FEWEST:
        publisher.publish(TOPIC, DATA).result()
        ages.append(time.perf_counter() - began)
    ages = ages[len(ages) // 10 :]
    cuts = statistics.quantiles(ages, n=100)
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def awaits(peer: str, publisher: Any, endpoint: str, seconds: float) -> Figures:
    async def run() -> Figures:
        if peer == OURS:
            from pullstream import AsyncPublisherClient

            client = AsyncPublisherClient(endpoint=endpoint)

            async def publish() -> None:
                await client.publish(TOPIC, DATA)
        else:

            async def publish() -> None:
                await asyncio.wrap_future(publisher.publish(TOPIC, DATA))

        watch = Stopwatch(seconds)
        published = 0

        async def repeat() -> None:
            nonlocal published
            while not watch.is_over(published):
                await publish()
                published += 1

        await asyncio.gather(*(repeat() for _ in range(TASKS)))
        return watch.figures(published)

    return asyncio.run(run())


def bare(endpoint: str, batch: int, seconds: float) -> Figures:
    """Repeat the same request, some at a time. No client on gRPC can be faster."""
    channel = grpc.insecure_channel(endpoint)
    stub: Any = channel.unary_unary(BY_METHOD["Publish"].path)
    message = pubsub.PubsubMessage(data=DATA)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[message] * batch).SerializeToString()
    waiting: deque[Any] = deque()
    watch, published = Stopwatch(seconds), 0
    while not watch.is_over(published):
        while len(waiting) < PIPELINED:
            waiting.append(stub.future(request))
        response = pubsub.PublishResponse.FromString(waiting.popleft().result())
        published += len(response.message_ids)
    while waiting:
        published += len(pubsub.PublishResponse.FromString(waiting.popleft().result()).message_ids)
    return watch.figures(published)


class BareRequest:
    """One request of `BarePublisher`, with the IDs of its messages as soon as they are there."""

    __slots__ = ("call", "entries", "ids")

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.call: Any = None
        self.ids: Sequence[str] | None = None


class BareFuture:
    """The result of one message."""

    __slots__ = ("_place", "_request")

    def __init__(self, request: BareRequest, place: int) -> None:
        self._request = request
        self._place = place

    def done(self) -> bool:
        return self._request.ids is not None

    def result(self) -> str:
        request = self._request
        if request.ids is None:
            response = pubsub.PublishResponse.FromString(request.call.result())
            request.ids = response.message_ids
        return request.ids[self._place]


class BarePublisher:
    """A loop of calls behind a `publish` that returns a future for each message.

    It takes a lock, encodes the message, adds it to a request, and sends a full request. Every such
    `publish` has to do this.
    """

    def __init__(self, endpoint: str, batch: int) -> None:
        channel = grpc.insecure_channel(endpoint)
        self._stub: Any = channel.unary_unary(BY_METHOD["Publish"].path)
        self._batch = batch
        self._lock = threading.Lock()
        self._topic = pubsub.PublishRequest(topic=TOPIC).SerializeToString()
        # The tags and sizes of a message in a request, and of its data.
        one = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=DATA)])
        self._prefix = one.SerializeToString()[: -len(DATA)]
        self._request = BareRequest()
        self._sent: deque[BareRequest] = deque()

    def publish(self, topic: str, data: bytes) -> BareFuture:
        with self._lock:
            request = self._request
            request.entries.append(self._prefix + data)
            future = BareFuture(request, len(request.entries) - 1)
            if len(request.entries) == self._batch:
                self._send(request)
            return future

    def _send(self, request: BareRequest) -> None:
        self._request = BareRequest()
        if len(self._sent) == PIPELINED:
            BareFuture(self._sent.popleft(), 0).result()
        request.call = self._stub.future(self._topic + b"".join(request.entries))
        self._sent.append(request)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=(OURS, OFFICIAL, BARE, BARE_FUTURES))
    parser.add_argument("endpoint")
    parser.add_argument("--mode", choices=("each", "many", "one", "await"), default="each")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    if given.peer == BARE:
        figures = bare(given.endpoint, given.batch, given.seconds)
    else:
        publisher = publisher_of(given.peer, given.endpoint, given.batch, given.keys)
        modes: dict[str, Callable[[], Figures]] = {
            "each": lambda: each(publisher, given.keys, given.seconds),
            "many": lambda: many(publisher, given.batch, given.seconds),
            "one": lambda: one(publisher, given.seconds),
            "await": lambda: awaits(given.peer, publisher, given.endpoint, given.seconds),
        }
        figures = modes[given.mode]()
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
