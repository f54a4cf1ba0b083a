"""The publisher for two minutes on a broker with faults; a part of `make soak`.

    python -m tests.soak.publish --seconds 120 --seed 7

Two publishers send messages with and without ordering keys, while the broker is slow, refuses,
loses replies, does not answer, hangs and restarts. The requests of one publisher lose their
idempotency key on the way, as if the server did not know it. At the end each future must have a
result, each confirmed message must be stored under its ID, the messages of each key must be in
order, and messages may be stored twice only if a request with them has failed, and never if the
broker knows the idempotency key. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import grpc
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pullstream import (
    BatchSettings,
    PublisherClient,
    PublisherHooks,
    PublisherOptions,
    PublisherStatistics,
    PublishFuture,
    PublishToPausedOrderingKeyException,
    SubscriberClient,
)
from pullstream_emulator import Emulator
from pullstream_protocol import errors
from pullstream_protocol.rpcs import IDEMPOTENCY_KEY

KEYS = 20
# Messages per second and publisher, in this many steps.
RATE = 500
STEPS = 20

# Seconds. Attempts of a publisher end soon, so that a broker that hangs costs little time.
ATTEMPT = 2.0
SETTLE = 60.0
LONGEST_FAULT = 3.0

_TRANSIENT = (
    errors.Unavailable,
    errors.Internal,
    errors.Aborted,
    errors.ResourceExhausted,
    errors.Unknown,
)


class WithoutIdempotencyKey(grpc.UnaryUnaryClientInterceptor):
    """Removes the metadata by which our broker recognises a repeated request."""

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        metadata = [
            pair for pair in client_call_details.metadata or () if pair[0] != IDEMPOTENCY_KEY
        ]
        return continuation(client_call_details._replace(metadata=metadata), request)


class FailedRequests(PublisherHooks):
    """Counts the messages of requests that failed, each of which the server may have stored."""

    def __init__(self) -> None:
        self.messages = 0

    def request_done(
        self, topic: str, messages: int, size: int, seconds: float, error: BaseException | None
    ) -> None:
        if error is not None:
            self.messages += messages


class Publishing:
    """One publisher with its topic, and the results of its messages.

    Args:
        endpoint: The broker's address.
        name: The id of the topic.
        is_recognised: Whether the broker gets the idempotency keys.
    """

    def __init__(self, endpoint: str, name: str, *, is_recognised: bool) -> None:
        self.name = name
        self.is_recognised = is_recognised
        self.failed_requests = FailedRequests()
        self.topic = f"projects/soak/topics/{name}"
        self.subscription = f"projects/soak/subscriptions/{name}"
        self.results: list[tuple[str, int, PublishFuture]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        channel: Any = grpc.insecure_channel(endpoint, [("grpc.initial_reconnect_backoff_ms", 100)])
        if not is_recognised:
            channel = grpc.intercept_channel(channel, WithoutIdempotencyKey())
        self._client = PublisherClient(
            BatchSettings(max_messages=20),
            PublisherOptions(enable_message_ordering=True, timeout=ATTEMPT),
            channel=channel,
            hooks=self.failed_requests,
        )
        self._client.create_topic(name=self.topic)
        with SubscriberClient(endpoint=endpoint) as subscriber:
            subscriber.create_subscription(name=self.subscription, topic=self.topic)
        self._thread.start()

    def end(self) -> PublisherStatistics:
        """Publish no more, and wait until all messages have a result."""
        self._ending.set()
        self._thread.join()
        self._client.close(SETTLE)
        return self._client.statistics()

    def _publish(self) -> None:
        number = 0
        while not self._ending.wait(1 / STEPS):
            for _ in range(RATE // STEPS):
                key = f"key-{number % (2 * KEYS)}" if number % (2 * KEYS) < KEYS else ""
                future = self._client.publish(self.topic, b"%s:%d" % (key.encode(), number), key)
                if key:
                    future.add_done_callback(partial(self._resume, key))
                self.results.append((key, number, future))
                number += 1

    def _resume(self, key: str, future: PublishFuture) -> None:
        error = future.exception()
        if error is not None and not isinstance(error, PublishToPausedOrderingKeyException):
            self._client.resume_publish(self.topic, key)

    def judge(self, stored: list[tuple[int, bytes]], statistics: PublisherStatistics) -> list[str]:
        """Return the violations of the promises, given the stored IDs and data in their order."""
        by_id = dict(stored)
        faults = []
        unresolved = sum(not future.done() for _, _, future in self.results)
        if unresolved or statistics.waiting:
            faults.append(f"{unresolved} futures have no result")
        confirmed = [
            (future.result(0), b"%s:%d" % (key.encode(), number))
            for key, number, future in self.results
            if future.exception(0) is None
        ]
        lost = [data for message_id, data in confirmed if by_id.get(int(message_id)) != data]
        if lost:
            faults.append(f"{len(lost)} confirmed messages are not stored, such as {lost[0]!r}")
        order: dict[bytes, list[int]] = defaultdict(list)
        seen = set()
        for _, data in stored:
            key, _, text = data.partition(b":")
            if key and data not in seen:
                order[key].append(int(text))
            seen.add(data)
        faults += [f"{key.decode()} is not in order" for key, n in order.items() if n != sorted(n)]
        duplicates = len(stored) - len(seen)
        allowed = 0 if self.is_recognised else self.failed_requests.messages
        if duplicates > allowed:
            faults.append(f"{duplicates} duplicates; {allowed} are possible")
        self.summary = (
            f"{self.name}: {len(self.results):,} published, {len(confirmed):,} confirmed, "
            f"{len(stored):,} stored, {duplicates} duplicates, {statistics.retries:,} retries"
        )
        return [f"{self.name}: {fault}" for fault in faults]


class Chaos:
    """Causes faults of Publish, one after the other.

    Args:
        broker: The first broker.
        dice: The source of randomness.
    """

    def __init__(self, broker: Emulator, dice: random.Random) -> None:
        self.broker = broker
        self._dice = dice
        self._until_next = ExitStack()

    def step(self) -> tuple[str, float]:
        """End the last fault and begin the next; return its name and duration in seconds."""
        self._until_next.close()
        faults, dice = self.broker.faults, self._dice
        enter = self._until_next.enter_context
        error = dice.choice(_TRANSIENT)("The soak wants it so.")
        kind = dice.choice(("slow", "refused", "lost", "silent", "hangs", "wrong", "restart"))
        if kind == "slow":
            enter(faults.delay("Publish", dice.uniform(0, 0.5)))
        elif kind == "refused":
            enter(faults.error("Publish", error, dice.randint(1, 30)))
        elif kind == "lost":
            enter(faults.lose_reply("Publish", 10, error.grpc_status_code))
        elif kind == "silent":
            enter(faults.drop("Publish", 3))
        elif kind == "hangs":
            enter(faults.black_hole())
        elif kind == "wrong":
            enter(faults.error("Publish", errors.InvalidArgument("The soak wants it so."), 1))
        else:
            old = self.broker
            old.stop()
            self.broker = Emulator(port=old.port, broker=old.broker, relay=True).start()
        return kind, dice.uniform(0.2, LONGEST_FAULT)

    def stop(self) -> None:
        """End all faults."""
        self._until_next.close()
        self.broker.faults.clear()


def stored_messages(endpoint: str, subscription: str) -> list[tuple[int, bytes]]:
    """Return the IDs and data of all messages of a subscription, in the order of publishing."""
    found = {}
    with SubscriberClient(endpoint=endpoint) as client:
        while messages := client.fetch(subscription, 1000, no_wait=True):
            found.update({int(one.message_id): bytes(one.data) for one in messages})
            messages.ack()
    return sorted(found.items())


def soak(seconds: float, seed: int, console: Console) -> list[str]:
    """Run for this long; return the violations."""
    dice = random.Random(seed)
    chaos = Chaos(Emulator(relay=True).start(), dice)
    endpoint = chaos.broker.endpoint
    publishers = [
        Publishing(endpoint, "recognised", is_recognised=True),
        Publishing(endpoint, "unrecognised", is_recognised=False),
    ]
    kinds: Counter[str] = Counter()
    columns = (TextColumn("{task.description:30}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("publishing", total=seconds)
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < seconds:
            kind, pause = chaos.step()
            kinds[kind] += 1
            progress.update(task, completed=elapsed, description=f"publishing: {kind}")
            time.sleep(pause)
    chaos.stop()
    faults = []
    for publisher in publishers:
        statistics = publisher.end()
        stored = stored_messages(endpoint, publisher.subscription)
        faults += publisher.judge(stored, statistics)
        console.print(publisher.summary)
    console.print(", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    chaos.broker.stop()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    chosen = parser.parse_args()
    # The final errors are logged; here they are the plan.
    logging.getLogger("pullstream").setLevel(logging.CRITICAL)
    console = Console()
    console.print(f"publishing for {chosen.seconds:g} s, seed {chosen.seed}")
    faults = soak(chosen.seconds, chosen.seed, console)
    for fault in faults:
        console.print(f"[red]{fault}[/red]")
    console.print("[red]failed[/red]" if faults else "all promises were kept")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
