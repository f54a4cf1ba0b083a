"""Programs that use the SDK on the hostile server, and record what it tells them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from pullstream import (
    AckFuture,
    AcknowledgeError,
    AsyncPublisherClient,
    BatchSettings,
    FlowControl,
    Hooks,
    LimitExceededBehavior,
    Message,
    MessageBatch,
    PublisherClient,
    PublisherOptions,
    PublishFlowControl,
    StreamingPullFuture,
    SubscriberClient,
)
from pullstream.hooks import LeaseLoss
from pullstream_protocol.errors import PullstreamError
from tests.event_log import Recorder

# Leases as short as the SDK allows.
LIMITS = FlowControl(
    max_messages=100, min_duration_per_lease_extension=10, max_duration_per_lease_extension=10
)
TIMEOUT = 60.0


class Results:
    """Records requests and the results of their futures.

    Args:
        actor: The name of the client.
        recorder: Gets the events.
        plant: The name of a planted fault, or "".
    """

    def __init__(self, actor: str, recorder: Recorder, plant: str) -> None:
        self.record = partial(recorder.record, actor=actor)
        self._plant = plant
        self._futures = 0

    def ask(self, subject: str, *, tracked: bool, **detail: Any) -> None:
        self.record("asked", subject, tracked=tracked, **detail)

    def watch(self, subject: str, future: Any) -> None:
        future.add_done_callback(lambda done: self._resolved(subject, future))

    def _resolved(self, subject: str, future: Any) -> None:
        self._futures += 1
        if self._plant == "unresolved-future" and self._futures % 50 == 0:
            return
        error = future.exception()
        if error is not None:
            self.failed(subject, error)
        elif subject.startswith("publish"):
            self.record("success", subject, id=future.result())
        else:
            self.record("success", subject)

    def failed(self, subject: str, error: BaseException) -> None:
        name = type(error).__name__
        if isinstance(error, AcknowledgeError):
            name = error.error_code.name
        is_open = getattr(error, "may_have_succeeded", False)
        self.record("failure", subject, error=name, open=is_open, text=str(error))


class Reports(Hooks):
    """Records the messages whose loss the SDK reports."""

    def __init__(self, results: Results) -> None:
        self._record = results.record

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        for message in messages:
            self._record("reported", f"ack {message.ack_id}")

    def refused(self, subscription: str, failures: Mapping[str, AcknowledgeError]) -> None:
        for ack_id in failures:
            self._record("reported", f"ack {ack_id}")


class Subscriber:
    """One subscription, as a callback for each message or for lists.

    Args:
        endpoint: The address of the server.
        subscription: The full name.
        recorder: Gets the events.
        dice: The source of randomness. Callbacks use it from several threads.
        in_lists: Whether to use `subscribe_batch`.
        plant: The name of a planted fault, or "".
    """

    def __init__(
        self,
        endpoint: str,
        subscription: str,
        recorder: Recorder,
        dice: random.Random,
        *,
        in_lists: bool,
        plant: str,
    ) -> None:
        self.name = subscription.rpartition("/")[2]
        self._subscription = subscription
        self._dice = dice
        self._in_lists = in_lists
        self._plant = plant
        self._results = Results(self.name, recorder, plant)
        self._client = SubscriberClient(endpoint=endpoint)
        self._future = self._subscribe()

    def close(self) -> None:
        """End in order: every request has been sent, and its answer awaited."""
        self._client.close(TIMEOUT, "drain")
        self._results.record("closed", "")

    def renew(self) -> None:
        """Subscribe again if the subscription has ended with a permanent error."""
        if self._future.done():
            self._future = self._subscribe()

    def _subscribe(self) -> StreamingPullFuture:
        hooks = Reports(self._results)
        if not self._in_lists:
            return self._client.subscribe(
                self._subscription, self._handle, LIMITS, max_workers=4, hooks=hooks
            )
        return self._client.subscribe_batch(
            self._subscription,
            self._handle_list,
            LIMITS,
            max_messages=20,
            max_workers=4,
            hooks=hooks,
        )

    def _handle_list(self, messages: MessageBatch) -> None:
        """Handle the messages of a list. After a nack the rest of its key is nacked, too."""
        failed = set()
        for message in messages:
            if message.ordering_key in failed:
                message.nack()
            elif not self._handle(message) and message.ordering_key:
                failed.add(message.ordering_key)

    def _handle(self, message: Message) -> bool:
        """Handle a message, and return whether it was acknowledged."""
        data = message.data.decode()
        if not data:
            message.ack()
            return True
        once = message.exactly_once_enabled
        self._results.record("begin", data, received=message.batch.received_at)
        roll = self._dice.random()
        is_ordered = bool(message.ordering_key)
        if roll < 0.03:
            self._track("nack", message, message.nack_with_response)
            return False
        if roll < 0.05:
            self._track("extend", message, lambda: message.modify_ack_deadline_with_response(30))
            self._ack(message, data, tracked=True)
        elif roll < 0.06 and not is_ordered:
            raise RuntimeError("a callback that fails")
        else:
            tracked = roll < 0.5 or once
            self._ack(message, data, tracked=tracked)
        return True

    def _ack(self, message: Message, data: str, *, tracked: bool) -> None:
        self._results.record("handled", data)
        if tracked:
            self._track("ack", message, message.ack_with_response)
            return
        self._results.ask(f"ack {message.ack_id}", tracked=False, message=data)
        if self._plant != "lost-ack" or self._dice.random() > 0.02:
            message.ack()

    def _track(self, kind: str, message: Message, request: Callable[[], AckFuture]) -> None:
        subject = f"{kind} {message.ack_id}"
        once = message.exactly_once_enabled
        self._results.ask(subject, tracked=True, message=message.data.decode(), exactly_once=once)
        self._results.watch(subject, request())


class Fetcher:
    """Fetches lists, and settles each as a whole or one by one, until it is closed."""

    def __init__(
        self, endpoint: str, subscription: str, recorder: Recorder, dice: random.Random, plant: str
    ) -> None:
        self.name = subscription.rpartition("/")[2]
        self._subscription = subscription
        self._dice = dice
        self._results = Results(self.name, recorder, plant)
        self._client = SubscriberClient(endpoint=endpoint)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Nothing: a fetch is a call."""

    def close(self) -> None:
        self._ending.set()
        self._thread.join(2 * TIMEOUT)
        self._client.close(TIMEOUT)
        if not self._thread.is_alive():
            self._results.record("closed", "")

    def _run(self) -> None:
        while not self._ending.wait(0.1):
            try:
                self._fetch()
            except PullstreamError:
                # The fetch or the end of the block has failed. The futures have their own errors.
                continue

    def _fetch(self) -> None:
        messages = self._client.fetch(
            self._subscription, max_messages=20, timeout=3, missing_ok=True
        )
        if self._dice.random() < 0.5:
            subjects = [f"ack {message.ack_id}" for message in messages]
            for subject, message in zip(subjects, messages, strict=True):
                self._results.ask(subject, tracked=True, message=message.data.decode())
            self._settle(messages, subjects)
            return
        with messages:
            for message in messages:
                self._results.ask(
                    f"ack {message.ack_id}", tracked=True, message=message.data.decode()
                )
                self._results.watch(f"ack {message.ack_id}", message.ack_with_response())

    def _settle(self, messages: Any, subjects: list[str]) -> None:
        """Acknowledge a list by one call. An error names no ids, so `unsettled` tells the rest."""
        error: PullstreamError | None = None
        try:
            messages.ack()
        except PullstreamError as caught:
            error = caught
        unsettled = {f"ack {message.ack_id}" for message in messages.unsettled}
        for subject in subjects:
            if subject not in unsettled:
                self._results.record("success", subject)
            elif error is not None:
                self._results.failed(subject, error)


class Publisher:
    """Publishes keys in order and messages without a key, on a thread or on an event loop.

    Args:
        endpoint: The address of the server.
        name: The begin of its keys.
        recorder: Gets the events.
        is_async: Whether to use AsyncPublisherClient.
        plant: The name of a planted fault, or "".
    """

    TOPIC = "projects/hostile/topics/orders"
    KEYS = 4

    def __init__(
        self, endpoint: str, name: str, recorder: Recorder, *, is_async: bool, plant: str
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._results = Results(name, recorder, plant)
        self._ending = threading.Event()
        run = self._run_loop if is_async else self._run
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Nothing: a publisher does not end."""

    def close(self) -> None:
        self._ending.set()
        self._thread.join(2 * TIMEOUT)
        if not self._thread.is_alive():
            self._results.record("closed", "")

    def _options(self) -> PublisherOptions:
        # Attempts end soon, so that a call without an answer costs little time.
        limits = PublishFlowControl(200, 10_000_000, LimitExceededBehavior.BLOCK)
        return PublisherOptions(enable_message_ordering=True, timeout=2.0, flow_control=limits)

    def _run(self) -> None:
        client = PublisherClient(
            BatchSettings(max_messages=10), self._options(), endpoint=self._endpoint
        )
        number = 0
        while not self._ending.wait(0.05):
            for key in self._keys():
                self._publish(client, key, number)
            number += 1
        client.close(TIMEOUT)

    def _run_loop(self) -> None:
        asyncio.run(self._publish_on_loop())

    async def _publish_on_loop(self) -> None:
        async with AsyncPublisherClient(
            BatchSettings(max_messages=10), self._options(), endpoint=self._endpoint
        ) as client:
            number = 0
            while not self._ending.is_set():
                await asyncio.sleep(0.05)
                for key in self._keys():
                    self._publish(client, key, number)
                number += 1
            await client.close(TIMEOUT)

    def _keys(self) -> list[str]:
        return ["", *(f"{self.name}-{number}" for number in range(self.KEYS))]

    def _publish(self, client: PublisherClient | AsyncPublisherClient, key: str, n: int) -> None:
        data = f"{key}:{n}" if key else f":{self.name}-{n}"
        subject = f"publish {data}"
        self._results.ask(subject, tracked=True)
        future: Future[str] | Any = client.publish(self.TOPIC, data.encode(), key)
        self._results.watch(subject, future)
        if key:
            future.add_done_callback(partial(self._resume, client, key))

    def _resume(
        self, client: PublisherClient | AsyncPublisherClient, key: str, future: Any
    ) -> None:
        if future.exception() is not None:
            client.resume_publish(self.TOPIC, key)
