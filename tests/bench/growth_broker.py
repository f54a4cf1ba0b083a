"""The longest wait of a call while the broker treats a big backlog, or serves open consoles.

    python -m tests.bench.growth_broker             during one operation on a big backlog
    python -m tests.bench.growth_broker console     with open consoles

The broker runs in a separate process. This process calls GetTopic in a loop and reports the
longest call. Figures of one machine are compared with each other only. The CPU time of these
operations is measured by `make growth`.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from pullstream_emulator import Emulator
from pullstream_emulator.cli import GC_THRESHOLDS
from pullstream_emulator.engine import Consumer, Engine
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

WAIT_SIZES = (400_000, 1_000_000)
RESOURCES = 10_000

TOPIC = "projects/p/topics/big"
OTHER = "projects/p/topics/other"
SUBSCRIPTION = "projects/p/subscriptions/big"
SNAPSHOT = "projects/p/snapshots/big"
DAY = 24 * 3600

# Time for which other calls are measured after an operation has returned, in seconds.
AFTERWARDS = 3.0


def fill(engine: Engine, count: int, *, keys: int = 0) -> None:
    """Publish `count` messages, with `keys` ordering keys."""
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        messages = [
            pubsub.PubsubMessage(data=b"x", ordering_key=f"{n % keys}" if keys else "")
            for n in numbers
        ]
        engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=messages))


def subscribe(engine: Engine, **settings: Any) -> None:
    """Create the topics and a subscription with these settings."""
    engine.create_topic(pubsub.Topic(name=TOPIC))
    engine.create_topic(pubsub.Topic(name=OTHER))
    engine.create_subscription(
        pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=600, **settings)
    )


def acknowledge_all(engine: Engine) -> None:
    """Deliver and acknowledge the whole backlog."""
    consumer = Consumer(ack_deadline=600, wake=lambda: None)
    subscription = engine.join(SUBSCRIPTION, consumer)
    while taken := engine.take(subscription, consumer):
        engine.acknowledge(SUBSCRIPTION, [ack_id for ack_id, _ in taken])
    engine.leave(subscription, consumer)


def lease_all(engine: Engine) -> None:
    """Deliver the whole backlog."""
    consumer = Consumer(ack_deadline=600, wake=lambda: None)
    subscription = engine.join(SUBSCRIPTION, consumer)
    while engine.take(subscription, consumer):
        pass


def seek_request(seconds: int) -> pubsub.SeekRequest:
    """Return a request to seek to a time."""
    request = pubsub.SeekRequest(subscription=SUBSCRIPTION)
    request.time.seconds = seconds
    return request


FUTURE = 4_000_000_000
BEGINNING = 1
AT_SNAPSHOT = pubsub.SeekRequest(subscription=SUBSCRIPTION, snapshot=SNAPSHOT)
NEW_SNAPSHOT = pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)

Prepare = Callable[[Engine, int], None]
Act = Callable[[Engine, ManualClock], object]


def waiting(**settings: Any) -> Prepare:
    """Return a preparation of a backlog that waits."""

    def prepare(engine: Engine, count: int) -> None:
        subscribe(engine, **settings)
        fill(engine, count)

    return prepare


def keyed(engine: Engine, count: int) -> None:
    """Prepare a backlog with one message of each key."""
    subscribe(engine, enable_message_ordering=True)
    fill(engine, count, keys=count)


def retained(engine: Engine, count: int) -> None:
    """Prepare retained messages that are all acknowledged."""
    waiting(retain_acked_messages=True)(engine, count)
    acknowledge_all(engine)


def leased(engine: Engine, count: int) -> None:
    """Prepare a backlog that is leased."""
    waiting()(engine, count)
    lease_all(engine)


def with_snapshot(engine: Engine, count: int) -> None:
    """Prepare a backlog with a snapshot."""
    waiting()(engine, count)
    engine.create_snapshot(NEW_SNAPSHOT)


def all_expire(engine: Engine, clock: ManualClock) -> None:
    """Let the whole backlog become too old."""
    clock.advance(8 * DAY)
    engine.advance()


def relabel(engine: Engine, clock: ManualClock) -> None:
    """Change the retention of a topic with 12 subscriptions that retain messages."""
    request = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=TOPIC))
    request.topic.message_retention_duration.seconds = 6 * DAY
    request.update_mask.paths.append("message_retention_duration")
    engine.update_topic(request)


def retained_by_twelve(engine: Engine, count: int) -> None:
    """Prepare a topic whose messages 12 subscriptions retain."""
    subscribe(engine, retain_acked_messages=True)
    for number in range(11):
        name = f"{SUBSCRIPTION}-{number}"
        engine.create_subscription(
            pubsub.Subscription(name=name, topic=TOPIC, retain_acked_messages=True)
        )
    fill(engine, count)


OPERATIONS: dict[str, tuple[Prepare, Act]] = {
    "seek to the end": (waiting(), lambda engine, _: engine.seek(seek_request(FUTURE))),
    "seek to the beginning": (retained, lambda engine, _: engine.seek(seek_request(BEGINNING))),
    "seek to a snapshot": (with_snapshot, lambda engine, _: engine.seek(AT_SNAPSHOT)),
    "seek, all leased": (leased, lambda engine, _: engine.seek(seek_request(FUTURE))),
    "create a snapshot": (waiting(), lambda engine, _: engine.create_snapshot(NEW_SNAPSHOT)),
    "delete a snapshot": (with_snapshot, lambda engine, _: engine.delete_snapshot(SNAPSHOT)),
    "detach": (waiting(), lambda engine, _: engine.detach_subscription(SUBSCRIPTION)),
    "delete a subscription": (keyed, lambda engine, _: engine.delete_subscription(SUBSCRIPTION)),
    "reset": (waiting(), lambda engine, _: engine.reset()),
    "all leases end": (leased, all_expire),
    "all messages expire": (waiting(), all_expire),
    "all keyed messages expire": (keyed, all_expire),
    "state, all leased": (leased, lambda engine, _: engine.pulls.state(SUBSCRIPTION)),
    "state, keyed": (keyed, lambda engine, _: engine.pulls.state(SUBSCRIPTION)),
    "change a topic of 12 subscriptions": (retained_by_twelve, relabel),
}


# ---- how long another call waits -----------------------------------------------------------------

# The preparation, and the RPC with its request.
REMOTE: dict[str, tuple[Prepare, str, Any]] = {
    "seek to the end": (waiting(), "Seek", seek_request(FUTURE)),
    "seek to the beginning": (retained, "Seek", seek_request(BEGINNING)),
    "seek to a snapshot": (with_snapshot, "Seek", AT_SNAPSHOT),
    "seek, keyed": (keyed, "Seek", seek_request(BEGINNING)),
    "seek, all leased": (leased, "Seek", seek_request(FUTURE)),
    "create a snapshot": (waiting(), "CreateSnapshot", NEW_SNAPSHOT),
    "delete a snapshot": (
        with_snapshot,
        "DeleteSnapshot",
        pubsub.DeleteSnapshotRequest(snapshot=SNAPSHOT),
    ),
    "detach": (
        waiting(),
        "DetachSubscription",
        pubsub.DetachSubscriptionRequest(subscription=SUBSCRIPTION),
    ),
    "delete a subscription": (
        keyed,
        "DeleteSubscription",
        pubsub.DeleteSubscriptionRequest(subscription=SUBSCRIPTION),
    ),
    "delete a retained topic": (
        retained,
        "DeleteTopic",
        pubsub.DeleteTopicRequest(topic=TOPIC),
    ),
}
HTTP = {
    "reset": ("POST", "/reset", ""),
    "messages of a state": (
        "GET",
        "/v0/subscriptions/big/messages?project=p&state=leased",
        "",
    ),
    "all messages expire": ("POST", "/v0/admin/clock:advance", '{"seconds": 691200}'),
    "metrics": ("GET", "/metrics", ""),
    "status": ("GET", "/v0/status", ""),
}


def serve(what: str, count: int) -> None:
    """Serve a broker with a prepared backlog, until the standard input ends."""
    # As in the command `pullstream emulator`.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with Emulator(rest=True) as emulator:
        if what == "resources":
            emulator.inspect(lambda engine: populate(engine, count))
        else:
            prepare = REMOTE[what][0] if what in REMOTE else waiting()
            emulator.inspect(lambda engine: prepare(engine, count))
        print(emulator.endpoint, flush=True)
        sys.stdin.read()


def populate(engine: Engine, count: int) -> None:
    """Create topics and subscriptions."""
    engine.create_topic(pubsub.Topic(name=OTHER))
    for number in range(count - 1):
        topic = f"projects/p/topics/topic-{number}"
        engine.create_topic(pubsub.Topic(name=topic))
        name = f"projects/p/subscriptions/sub-{number}"
        engine.create_subscription(pubsub.Subscription(name=name, topic=topic))


@contextmanager
def serving(what: str, count: int) -> Iterator[str]:
    """Run a broker in another process. Yield its address."""
    command = [sys.executable, "-m", "tests.bench.growth_broker", "serve", what, str(count)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.kill()


def unary(channel: grpc.Channel, method: str) -> Callable[[Any], Any]:
    """Return a function that calls an RPC."""
    rpc = BY_METHOD[method]
    stub: Any = channel.unary_unary(rpc.path)
    return lambda request: stub(request.SerializeToString())


def http_call(address: str, method: str, path: str, body: str) -> None:
    """Send a request over HTTP, and read the whole response."""
    connection = http.client.HTTPConnection(address)
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request(method, path, body or None, headers)
    connection.getresponse().read()
    connection.close()


def waits(address: str, operation: Callable[[], object], afterwards: float) -> tuple[float, float]:
    """Return the longest time of another call meanwhile, and the time of the operation."""
    lasted: list[float] = []

    def operate() -> None:
        begun = time.monotonic()
        operation()
        lasted.append(time.monotonic() - begun)

    with grpc.insecure_channel(address) as channel:
        stub = unary(channel, "GetTopic")

        def get_topic() -> None:
            # A reset deletes the topic.
            with suppress(grpc.RpcError):
                stub(pubsub.GetTopicRequest(topic=OTHER))

        for _ in range(20):
            get_topic()
        thread = threading.Thread(target=operate)
        thread.start()
        longest, until = 0.0, math.inf
        while (begun := time.monotonic()) < until:
            get_topic()
            longest = max(longest, time.monotonic() - begun)
            if not thread.is_alive() and until == math.inf:
                until = time.monotonic() + afterwards
            time.sleep(0.002)
        thread.join()
    return longest, lasted[0]


def all_waits(sizes: Sequence[int], only: str) -> None:
    """Print how long another call waits while each operation runs."""
    print("operation", "messages", "longest other call", "the operation itself", sep="  |  ")
    for name in (*REMOTE, *HTTP):
        for count in sizes:
            if only not in name:
                continue
            with serving(name, count) as address:
                if name in HTTP:
                    # The first HTTP request loads aiohttp.
                    http_call(address, "GET", "/healthz", "")
                    method, path, body = HTTP[name]

                    def operation() -> None:
                        http_call(address, method, path, body)  # noqa: B023
                else:
                    _, rpc, request = REMOTE[name]

                    def operation() -> None:
                        with grpc.insecure_channel(address) as channel:
                            unary(channel, rpc)(request)  # noqa: B023

                longest, lasted = waits(address, operation, AFTERWARDS)
            print(name, count, f"{longest:.3f} s", f"{lasted:.3f} s", sep="  |  ", flush=True)


def consoles(count: int, numbers: Sequence[int]) -> None:
    """Print how long a call waits while consoles are open, and metrics and status are read."""
    for number in numbers:
        with serving("resources", count) as address:
            for _ in range(number):
                threading.Thread(target=follow, args=(address,), daemon=True).start()
            time.sleep(5)
            longest, _ = waits(address, lambda: time.sleep(10), 0)
            print(f"{number} consoles  |  longest other call {longest:.3f} s", flush=True)
            for name in ("metrics", "status"):
                method, path, body = HTTP[name]
                longest, lasted = waits(
                    address,
                    lambda: http_call(address, method, path, body),  # noqa: B023
                    1,
                )
                print(
                    f"{number} consoles, {name}  |  longest other call {longest:.3f} s  |  "
                    f"{lasted:.3f} s",
                    flush=True,
                )


def follow(address: str) -> None:
    """Read the live status, as an open console does."""
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/v0/live")
    response = connection.getresponse()
    # The broker is killed at the end.
    with suppress(OSError, http.client.HTTPException):
        while response.read1(1 << 20):
            pass


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="waits")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--only", default="", help="a part of the names of operations")
    parser.add_argument("--sizes", type=int, nargs="+", default=())
    options = parser.parse_args()
    if options.what == "serve":
        serve(options.arguments[0], int(options.arguments[1]))
    elif options.what == "console":
        consoles(RESOURCES, options.sizes or (0, 1, 5))
    else:
        all_waits(options.sizes or WAIT_SIZES, options.only)


if __name__ == "__main__":
    main()
