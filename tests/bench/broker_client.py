"""A broker's figures with a bare grpcio client: one mode, measured in its own process.

    python -m tests.bench.broker_client publish localhost:PORT --batch 100

Prints its figures as one JSON object. The client does as little as possible, so that the broker is
measured: calls are pipelined, requests are encoded once, responses are hardly examined. The figure
`client_cores` shows that publishing is not limited by the client.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

from .client import SUBSCRIPTION, Figures, Process
from .http2_load import HttpTwoLoad
from .publisher import READY, TOPIC, Broker
from .servers import running

# The number of concurrent publish calls. A backlog is published in calls of a hundred messages.
IN_FLIGHT = 32
BATCH = 100

# The seconds before the clock starts, and the longest wait for the next message.
WARM_UP = 0.5
TIMEOUT = 60.0

# Time for open streams and the backlog to come to rest, in seconds.
SETTLE = 1.0

# A topic without messages.
SILENT = TOPIC + "-silent"
WARM = TOPIC + "-warm"
# Seconds after which the messages of the warm-up are deleted.
WARM_PART = 2.0

DATA = b"x" * 100


class Pipeline:
    """Publishes the same requests again and again, until it is stopped.

    Only this many calls are open at a time. With ordering keys there are enough requests to name
    each key.
    """

    def __init__(self, broker: Broker, batch: int, keys: int = 0) -> None:
        # Whole requests, and enough of them for each key.
        count = max(math.ceil(keys / batch), 1) * batch
        messages = [
            pubsub.PubsubMessage(data=DATA, ordering_key=f"key-{n % keys}" if keys else "")
            for n in range(count)
        ]
        self._requests = itertools.cycle(
            pubsub.PublishRequest(topic=TOPIC, messages=messages[start : start + batch])
            for start in range(0, count, batch)
        )
        self._publish = broker.publish
        self._batch = batch
        self._free = threading.Semaphore(IN_FLIGHT)
        self._calls: set[Any] = set()
        self.done = 0
        self.errors: list[BaseException] = []

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Begin calls until `is_over(messages begun)`, then wait for the open ones."""
        begun = 0
        while not is_over(begun) and not self.errors:
            self._free.acquire()
            call = self._publish.future(next(self._requests))
            # grpcio cancels a call when its future is garbage collected.
            self._calls.add(call)
            call.add_done_callback(self._answered)
            begun += self._batch
        for _ in range(IN_FLIGHT):
            self._free.acquire()

    def check(self) -> None:
        """Exit with the error of a call that failed."""
        if self.errors:
            sys.exit(f"a publish failed: {self.errors[0]}")

    def _answered(self, call: Any) -> None:
        if error := call.exception():
            self.errors.append(error)
        else:
            self.done += self._batch
        self._calls.discard(call)
        self._free.release()


class Stream:
    """A streaming pull that can send more requests."""

    def __init__(self, endpoint: str, max_messages: int = 0) -> None:
        # A separate channel, because client and publisher are two programs elsewhere. Channels with
        # equal options share a connection.
        self._channel = grpc.insecure_channel(
            endpoint, options=[("grpc.max_receive_message_length", -1)]
        )
        self._requests: queue.SimpleQueue[pubsub.StreamingPullRequest] = queue.SimpleQueue()
        self._requests.put(
            pubsub.StreamingPullRequest(
                subscription=SUBSCRIPTION.format(0),
                stream_ack_deadline_seconds=600,
                max_outstanding_messages=max_messages,
            )
        )
        open_stream: Any = self._channel.stream_stream(
            BY_METHOD["StreamingPull"].path,
            request_serializer=pubsub.StreamingPullRequest.SerializeToString,
            response_deserializer=pubsub.StreamingPullResponse.FromString,
        )
        self.responses: Iterator[pubsub.StreamingPullResponse] = open_stream(
            iter(self._requests.get, None)
        )
        acknowledge: Any = self._channel.unary_unary(
            BY_METHOD["Acknowledge"].path,
            request_serializer=pubsub.AcknowledgeRequest.SerializeToString,
        )
        self._acknowledge = acknowledge
        self._calls: set[Any] = set()

    def acknowledge(self, response: pubsub.StreamingPullResponse) -> Any:
        """Begin to acknowledge a whole response, and return the call."""
        call = self._acknowledge.future(
            pubsub.AcknowledgeRequest(
                subscription=SUBSCRIPTION.format(0),
                ack_ids=[one.ack_id for one in response.received_messages],
            )
        )
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def wait_for_answers(self) -> None:
        for call in list(self._calls):
            call.result()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process's threads; 0 where Linux's /proc is missing."""
    try:
        # In nanoseconds. The times in /proc/PID/stat have a resolution of 10 ms.
        threads = Path(f"/proc/{pid}/task").iterdir()
        times = [(thread / "schedstat").read_text() for thread in threads]
    except OSError:
        return 0.0
    return sum(int(spent.split()[0]) for spent in times) / 1e9


def publish(broker: Broker, arguments: argparse.Namespace) -> Figures:
    """Measure the messages per second that one pipelined connection publishes."""
    if not arguments.bare:
        _warm_up(broker, arguments)
    load = _load(arguments, TOPIC)
    _publish_for(load, WARM_UP)
    before, server, client = load.done, cpu_seconds(arguments.server_pid), time.process_time()
    began = time.monotonic()
    _publish_for(load, arguments.seconds)
    seconds = time.monotonic() - began
    published = (load.done - before) * arguments.batch
    return {
        "rate": published / seconds,
        "cpu_micros": (cpu_seconds(arguments.server_pid) - server) / published * 1e6,
        "client_cores": (time.process_time() - client) / seconds,
    }


def _load(arguments: argparse.Namespace, topic: str) -> HttpTwoLoad:
    messages = [pubsub.PubsubMessage(data=DATA)] * arguments.batch
    request = pubsub.PublishRequest(topic=topic, messages=messages).SerializeToString()
    path = BY_METHOD["Publish"].path
    return HttpTwoLoad(arguments.endpoint, path, itertools.repeat(request), IN_FLIGHT)


def _warm_up(broker: Broker, arguments: argparse.Namespace) -> None:
    """Publish to another topic, whose subscription is deleted again and again.

    A JVM whose heap fills during the warm-up would be measured while it collects garbage: up to ten
    times slower.
    """
    broker.create_topic(pubsub.Topic(name=WARM))
    load, end = _load(arguments, WARM), time.monotonic() + arguments.warm
    name = SUBSCRIPTION.format("warm")
    while (left := end - time.monotonic()) > 0:
        broker.create_subscription(pubsub.Subscription(name=name, topic=WARM))
        _publish_for(load, min(left, WARM_PART))
        broker.delete_subscription(pubsub.DeleteSubscriptionRequest(subscription=name))
    load.close()


def _publish_for(load: HttpTwoLoad, seconds: float) -> None:
    end, before = time.monotonic() + seconds, load.done
    load.run(lambda: time.monotonic() > end and load.done > before)


def deliver(broker: Broker, arguments: argparse.Namespace) -> Figures:
    """Deliver a backlog through one stream, acknowledge it, and measure its memory before."""
    before = Process.of(arguments.server_pid)
    backlog = Pipeline(broker, BATCH, arguments.keys)
    backlog.run(lambda begun: begun >= arguments.messages)
    backlog.check()
    after = Process.of(arguments.server_pid)
    with _held_streams(arguments):
        time.sleep(SETTLE)
        cpu = cpu_seconds(arguments.server_pid)
        count, seconds = _drain(arguments)
        cpu = cpu_seconds(arguments.server_pid) - cpu
    return {
        "rate": count / seconds,
        "cpu_micros": cpu / count * 1e6,
        "bytes_each": (after.mebibytes - before.mebibytes) * 2**20 / arguments.messages,
    }


def _drain(arguments: argparse.Namespace) -> tuple[int, float]:
    """Return the delivered and acknowledged messages, and the seconds since the first."""
    stream = Stream(arguments.endpoint, max_messages=arguments.max_messages)
    count, began = 0, 0.0
    for response in stream.responses:
        # Heartbeats have none.
        if not response.received_messages:
            continue
        began = began or time.monotonic()
        count += len(response.received_messages)
        stream.acknowledge(response)
        if count >= arguments.deliver:
            break
    stream.wait_for_answers()
    return count, time.monotonic() - began


@contextmanager
def _held_streams(arguments: argparse.Namespace) -> Iterator[None]:
    """Let another process keep idle streams open during the block."""
    if arguments.streams == 1:
        yield
        return
    command = [sys.executable, "-m", "tests.bench.broker_client", "hold", arguments.endpoint]
    with running([*command, "--streams", str(arguments.streams)], READY):
        yield


def hold(arguments: argparse.Namespace) -> None:
    """Keep streams open until this process is ended."""
    asyncio.run(_hold(arguments))


async def _hold(arguments: argparse.Namespace) -> None:
    # On an event loop: each thread that waits for a response of grpcio wakes ten times a second, so
    # 1,000 of them would take the core that the broker needs.
    rpc = BY_METHOD["StreamingPull"]
    calls = []
    for number in range(1, arguments.streams):
        # A broker limits the calls of a connection; Google's service allows 100.
        options = [("bench.connection", number // 100)]
        open_stream: Any = grpc.aio.insecure_channel(arguments.endpoint, options).stream_stream(
            rpc.path, pubsub.StreamingPullRequest.SerializeToString
        )
        call = open_stream()
        name = SUBSCRIPTION.format(number)
        await call.write(
            pubsub.StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=600)
        )
        await call.initial_metadata()
        calls.append(call)
    print(READY, flush=True)
    await asyncio.gather(*(call.read() for call in calls))


def receipt(broker: Broker, arguments: argparse.Namespace) -> Figures:
    """Measure the time from publishing to receiving on an open stream, one message at a time."""
    stream = Stream(arguments.endpoint)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=DATA)])
    received: queue.SimpleQueue[float] = queue.SimpleQueue()

    def read() -> None:
        for response in stream.responses:
            if response.received_messages:
                received.put(time.perf_counter())
                stream.acknowledge(response)

    threading.Thread(target=read, daemon=True).start()
    times: list[float] = []
    end = time.monotonic() + WARM_UP + arguments.seconds
    warm = time.monotonic() + WARM_UP
    while time.monotonic() < end or len(times) < 2:
        began = time.perf_counter()
        broker.publish(request)
        took = received.get(timeout=TIMEOUT) - began
        if time.monotonic() > warm:
            times.append(took)
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": percentiles[49] * 1e3, "p99_ms": percentiles[98] * 1e3}


MODES: dict[str, Callable[[Broker, argparse.Namespace], Figures]] = {
    "publish": publish,
    "deliver": deliver,
    "receipt": receipt,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=[*MODES, "hold"])
    parser.add_argument("endpoint")
    parser.add_argument("--server-pid", type=int, default=os.getpid(), help="whose memory to tell")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--warm", type=float, default=WARM_UP, help="seconds before the clock starts"
    )
    parser.add_argument("--bare", action="store_true", help="a server without topics")
    parser.add_argument("--batch", type=int, default=BATCH, help="messages in each Publish call")
    parser.add_argument("--messages", type=int, default=20_000, help="how large a backlog")
    parser.add_argument("--deliver", type=int, default=0, help="so many of it (default: all)")
    parser.add_argument("--max-messages", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=0, help="ordering keys; 0: unordered")
    parser.add_argument("--subscriptions", type=int, default=1)
    parser.add_argument("--streams", type=int, default=1, help="open; all but one have no messages")
    arguments = parser.parse_args()
    arguments.deliver = arguments.deliver or arguments.messages
    if arguments.mode == "hold":
        hold(arguments)
    broker = Broker(arguments.endpoint)
    if not arguments.bare:
        create_resources(broker, arguments)
    print(json.dumps(MODES[arguments.mode](broker, arguments)), flush=True)
    os._exit(0)


def create_resources(broker: Broker, arguments: argparse.Namespace) -> None:
    broker.create_topic(pubsub.Topic(name=TOPIC))
    broker.create_topic(pubsub.Topic(name=SILENT))
    for number in range(max(arguments.subscriptions, arguments.streams)):
        broker.create_subscription(
            pubsub.Subscription(
                name=SUBSCRIPTION.format(number),
                topic=TOPIC if number < arguments.subscriptions else SILENT,
                ack_deadline_seconds=600,
                enable_message_ordering=arguments.keys > 0,
            )
        )


if __name__ == "__main__":
    main()
