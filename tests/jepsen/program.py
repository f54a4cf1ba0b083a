"""A publisher or a subscriber, in a process of its own that may be stopped and killed.

    python -m tests.jepsen.program publisher ours NAME LOG ENDPOINT [PLANT]
    python -m tests.jepsen.program subscriber official NAME LOG ENDPOINT [PLANT]

It records every event in the file LOG before the next step. SIGTERM ends it in order.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.event_log import Recorder

PROJECT = "projects/jepsen"
TOPIC = f"{PROJECT}/topics/orders"
# The settings of each subscription.
SUBSCRIPTIONS: dict[str, dict[str, bool]] = {
    "ordered-once": {"ordered": True, "exactly_once": True, "sought": False},
    "once": {"ordered": False, "exactly_once": True, "sought": False},
    "ordered": {"ordered": True, "exactly_once": False, "sought": False},
    "sought": {"ordered": False, "exactly_once": False, "sought": True},
}
PLANTS = ("lost-ack", "false-success", "reordered-key", "acked-again", "unresolved-future")
# A planted fault spoils every so many events.
PLANTED_EACH = 10

KEYS = 4
# Seconds between two messages of a key.
PAUSE = 0.2
# Seconds for the last results after SIGTERM.
TIMEOUT = 60.0


class Publishing:
    """Publishes numbered messages with and without keys. The keys belong to this process alone."""

    def __init__(self, publish: Callable[..., Any], recorder: Recorder, name: str, plant: str):
        self._publish = publish
        self._record = recorder.record
        self._plant = plant
        self._count = itertools.count(1)
        self._keys = ["", *(f"{name}-{number}" for number in range(KEYS))]
        self._name = name

    def run(self, ending: threading.Event, resume: Callable[[str], None]) -> list[Any]:
        """Publish until the end, and return the futures."""
        futures: list[Any] = []
        for number in itertools.count():
            if ending.wait(PAUSE):
                break
            futures = [future for future in futures if not future.done()]
            for key in self._keys:
                futures += self._one(key, number, resume)
        return futures

    def _one(self, key: str, number: int, resume: Callable[[str], None]) -> list[Any]:
        data = f"{key}:{number}" if key else f":{self._name}-{number}"
        self._record("publish", data)
        if self._is_planted("false-success"):
            self._record("publish ok", data, id=f"9{number}")
            return []
        try:
            future = self._publish(TOPIC, data.encode(), key)
        except Exception as error:
            # The official client raises here when the key is paused.
            self._record("publish failed", data, error=type(error).__name__)
            if key:
                resume(key)
            return []
        future.add_done_callback(partial(self._done, data, key, resume))
        return [future]

    def _done(self, data: str, key: str, resume: Callable[[str], None], future: Any) -> None:
        if self._is_planted("unresolved-future"):
            return
        error = future.exception()
        if error is None:
            self._record("publish ok", data, id=future.result())
        else:
            self._record("publish failed", data, error=f"{type(error).__name__}: {error}")
            if key:
                resume(key)

    def _is_planted(self, plant: str) -> bool:
        return self._plant == plant and next(self._count) % PLANTED_EACH == 0


class Handling:
    """The callback of one subscription, for messages of both clients.

    Args:
        subscription: The id of the subscription.
        recorder: Gets the events.
        name: The name of the process.
        is_ours: Whether the messages are those of our SDK.
        plant: The name of a planted fault, or "".
    """

    def __init__(
        self, subscription: str, recorder: Recorder, name: str, *, is_ours: bool, plant: str
    ) -> None:
        self.open: set[Future[Any]] = set()
        self._settings = SUBSCRIPTIONS[subscription]
        self._subscription = subscription
        self._record = recorder.record
        self._name = name
        self._is_ours = is_ours
        self._plant = plant
        self._count = itertools.count(1)
        self._numbers = itertools.count()
        self._dice = random.Random(f"{name} {subscription}")

    def __call__(self, message: Any) -> None:
        data = message.data.decode()
        values = {
            "subscription": self._subscription,
            "id": message.message_id,
            "delivery": f"{self._name}-{next(self._numbers)}",
        }
        received = message.batch.received_at if self._is_ours else 0.0
        self._record("begin", data, received=received, **values)
        roll = self._dice.random()
        # The official client goes on with the key after a nack.
        may_fail = self._is_ours or not self._settings["ordered"]
        if roll < 0.02 and may_fail:
            self._record("nack", data, **values)
            message.nack()
            return
        if roll < 0.03:
            time.sleep(self._dice.uniform(0.0, 0.5))
        if self._plants("reordered-key", is_ordered=True):
            key, _, number = data.partition(":")
            planted = {**values, "delivery": "planted"}
            if key:
                self._record("begin", f"{key}:{int(number) + 1}", received=received, **planted)
        tracked = self._is_ours or self._settings["exactly_once"]
        self._record("ack", data, tracked=tracked, **values)
        if not tracked:
            message.ack()
            return
        if self._plants("lost-ack"):
            self._record("ack ok", data, **values)
            message.nack()
            return
        future = message.ack_with_response()
        self.open.add(future)
        future.add_done_callback(partial(self._done, data, values))

    def _done(self, data: str, values: dict[str, Any], future: Future[Any]) -> None:
        self.open.discard(future)
        if self._plants("unresolved-future"):
            return
        error = future.exception()
        if error is not None:
            self._record("ack failed", data, error=str(error), **values)
            return
        self._record("ack ok", data, **values)
        if self._plants("acked-again"):
            again = {**values, "delivery": f"{self._name}-{next(self._numbers)}"}
            self._record("begin", data, received=time.monotonic(), **again)

    def _plants(self, plant: str, *, is_ordered: bool = False) -> bool:
        if self._plant != plant or not self._settings["exactly_once"]:
            return False
        if is_ordered and not self._settings["ordered"]:
            return False
        return next(self._count) % PLANTED_EACH == 0


def publish_ours(recorder: Recorder, name: str, endpoint: str, plant: str) -> None:
    from pullstream import PublisherClient, PublisherOptions

    options = PublisherOptions(enable_message_ordering=True, timeout=5.0)
    client = PublisherClient(publisher_options=options, endpoint=endpoint)
    publishing = Publishing(client.publish, recorder, name, plant)
    publishing.run(ending(), lambda key: client.resume_publish(TOPIC, key))
    client.close(TIMEOUT)


def publish_official(recorder: Recorder, name: str, endpoint: str, plant: str) -> None:
    from google.cloud import pubsub_v1

    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    client = pubsub_v1.PublisherClient(publisher_options=options)
    publishing = Publishing(client.publish, recorder, name, plant)

    def resume(key: str) -> None:
        with suppress(Exception):
            # The topic has no such key, or the client has ended.
            client.resume_publish(TOPIC, key)

    futures = publishing.run(ending(), resume)
    # It may block for ever.
    threading.Thread(target=client.stop, daemon=True).start()
    wait_for(lambda: all(future.done() for future in futures))


def subscribe_ours(recorder: Recorder, name: str, endpoint: str, plant: str) -> None:
    from pullstream import FlowControl, SubscriberClient

    limits = FlowControl(
        max_messages=100, min_duration_per_lease_extension=10, max_duration_per_lease_extension=10
    )
    client = SubscriberClient(endpoint=endpoint)
    handlers = handlers_of(recorder, name, plant, is_ours=True)
    futures = {
        subscription: client.subscribe(full_name(subscription), handle, limits, max_workers=4)
        for subscription, handle in handlers.items()
    }
    end = ending()
    while not end.wait(0.5):
        for subscription, future in futures.items():
            if future.done():
                recorder.record("stream ended", subscription, error=str(future.exception()))
                futures[subscription] = client.subscribe(
                    full_name(subscription), handlers[subscription], limits, max_workers=4
                )
    client.close(TIMEOUT, "drain")


def subscribe_official(recorder: Recorder, name: str, endpoint: str, plant: str) -> None:
    from google.cloud import pubsub_v1

    client = pubsub_v1.SubscriberClient()
    handlers = handlers_of(recorder, name, plant, is_ours=False)

    def subscribe(subscription: str) -> Any:
        return client.subscribe(
            full_name(subscription),
            handlers[subscription],
            flow_control=pubsub_v1.types.FlowControl(max_messages=50),
            await_callbacks_on_shutdown=True,
        )

    futures = {subscription: subscribe(subscription) for subscription in handlers}
    end = ending()
    while not end.wait(0.5):
        for subscription, future in futures.items():
            if future.done():
                recorder.record("stream ended", subscription, error=str(future.exception()))
                futures[subscription] = subscribe(subscription)
    for future in futures.values():
        future.cancel()
    wait_for(lambda: not any(handle.open for handle in handlers.values()))


def handlers_of(recorder: Recorder, name: str, plant: str, *, is_ours: bool) -> dict[str, Handling]:
    return {
        subscription: Handling(subscription, recorder, name, is_ours=is_ours, plant=plant)
        for subscription in SUBSCRIPTIONS
    }


def full_name(subscription: str) -> str:
    return f"{PROJECT}/subscriptions/{subscription}"


def ending() -> threading.Event:
    """Return an event that SIGTERM sets."""
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: event.set())
    return event


def wait_for(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not is_done() and time.monotonic() < end:
        time.sleep(0.1)


PROGRAMS = {
    ("publisher", "ours"): publish_ours,
    ("publisher", "official"): publish_official,
    ("subscriber", "ours"): subscribe_ours,
    ("subscriber", "official"): subscribe_official,
}


def main(role: str, client: str, name: str, log: str, endpoint: str, plant: str = "") -> None:
    os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
    recorder = Recorder(name, Path(log))
    recorder.record("started", "")
    PROGRAMS[role, client](recorder, name, endpoint, plant if client == "ours" else "")
    # The official client's futures may stay open for ever, which is no promise of this project.
    recorder.record("closed" if client == "ours" else "ended", "")
    # Threads of the official client may outlive it.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
