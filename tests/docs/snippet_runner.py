"""Runs the guide's snippets against a broker, with pullstream's imports or with Google's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pullstream import PublisherClient, SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator

from .guide import as_before, snippets

PROJECT = "test-project"
TOPIC = f"projects/{PROJECT}/topics/orders"
DEAD_LETTERS = f"projects/{PROJECT}/topics/dead-letters"
SUBSCRIPTION = f"projects/{PROJECT}/subscriptions/billing"

# The seconds for which a snippet keeps a subscription open. Enough on a quiet machine.
TIMEOUT = 0.5
# On a busy machine the snippet is run again, each time for twice as long.
ATTEMPTS = 7
EVENT_TIMEOUT = 30.0
# The seconds between two looks at a future, which does not report its cancellation.
POLL = 0.02


class SnippetRunner:
    """Owns the names that the snippets use, and cleans up after them.

    `processed` has the data of the messages that the snippets' `process` got, in order. `process`
    settles the message, and a test may replace it.
    """

    def __init__(self, broker: Emulator, *, with_google: bool) -> None:
        self.broker = broker
        self.with_google = with_google
        self.process: Callable[[Any], None] = lambda message: message.ack()
        self.processed: list[bytes] = []
        self.names: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._topics = TopicAdminClient(endpoint=broker.endpoint)
        self._client = SubscriberClient(endpoint=broker.endpoint)
        self._topics.create_topic(name=TOPIC)
        self._topics.create_topic(name=DEAD_LETTERS)

    def subscription(self, **settings: Any) -> None:
        """Create the subscription that the snippets use, where they do not create it themselves."""
        self._client.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC, **settings})

    def take_back(self, message: Any) -> None:
        """End the lease of a message, so that its ack id is no longer valid."""
        self._client.modify_ack_deadline(
            subscription=SUBSCRIPTION, ack_ids=[message.ack_id], ack_deadline_seconds=0
        )

    def describe(self) -> Any:
        """Return the subscription as the broker has it."""
        return self._client.get_subscription(subscription=SUBSCRIPTION)

    def subscriptions(self) -> list[str]:
        """Return the names of all subscriptions."""
        return [one.name for one in self._client.list_subscriptions(project=f"projects/{PROJECT}")]

    def publish(self, *data: bytes, key: str = "", **attributes: str) -> list[str]:
        """Publish messages, and return their ids."""
        return self._topics.publish(
            TOPIC,
            [{"data": one, "ordering_key": key, "attributes": attributes} for one in data],
        )

    def pull(self) -> list[bytes]:
        """Return the messages that another client gets now."""
        response = self._client.pull(
            subscription=SUBSCRIPTION, max_messages=100, return_immediately=True
        )
        return [received.message.data for received in response.received_messages]

    @property
    def backlog(self) -> int:
        """Return the number of messages that are not acknowledged."""
        return self.broker.backlog(SUBSCRIPTION)

    def run(self, title: str, *, timeout: float = TIMEOUT) -> None:
        """Run the snippet under a heading, in its current form or with Google's imports."""
        code = snippets()[title]
        self.close_snippet()
        self.names = {
            "project_id": PROJECT,
            "topic_id": TOPIC.rpartition("/")[2],
            "subscription_id": SUBSCRIPTION.rpartition("/")[2],
            "dead_letter_topic_id": DEAD_LETTERS.rpartition("/")[2],
            "timeout": timeout,
            "process": self._process,
        }
        exec(compile(as_before(code) if self.with_google else code, title, "exec"), self.names)

    def run_until(self, done: Callable[[], bool], title: str) -> None:
        """Run a receiving snippet, and run it longer if the time was too short for this machine."""
        for attempt in range(ATTEMPTS):
            self.run(title, timeout=TIMEOUT * 2**attempt)
            if done():
                return
        raise AssertionError(f"{title}: not done after {ATTEMPTS} runs")

    def wait_for_processed(self, count: int) -> list[bytes]:
        """Return the data of the processed messages as soon as there are this many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.processed) >= count, EVENT_TIMEOUT)
            return list(self.processed)

    def wait_for_cancel(self) -> None:
        """Wait until the snippet's timeout has passed and it has cancelled its future."""
        while "future" not in self.names or not self.names["future"].cancelled():
            assert not self._closed.wait(POLL), "the snippet did not cancel"

    def close_snippet(self) -> None:
        """Stop everything that the last snippet left running."""
        if "future" in self.names:
            self.names["future"].cancel()
            self.names["future"].exception(EVENT_TIMEOUT)
        if "subscriber" in self.names:
            self.names["subscriber"].close()
        if "publisher" in self.names:
            publisher = self.names["publisher"]
            publisher.stop()
            if isinstance(publisher, PublisherClient):
                publisher.close()
            else:
                publisher.transport.close()
        self.names = {}

    def close(self) -> None:
        self.close_snippet()
        self._closed.set()
        self._topics.close()
        self._client.close()

    def _process(self, message: Any) -> None:
        self.process(message)
        with self._changed:
            self.processed.append(message.data)
            self._changed.notify_all()
