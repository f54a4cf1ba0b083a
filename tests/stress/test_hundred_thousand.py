"""A hundred thousand messages with all kinds of failures: none lost, no key out of order."""

from __future__ import annotations

import heapq
import random
import threading
from collections import defaultdict

import pytest

from pullstream import FlowControl, Message, SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK, ManualClock
from pullstream_protocol.errors import Cancelled, Unavailable

TOPIC = "projects/stress/topics/records"
SUBSCRIPTION = "projects/stress/subscriptions/records"
PUBLISHERS, KEYS_EACH, PER_KEY = 4, 50, 500
LAST = PUBLISHERS - 1
UNORDERED = f"{LAST}-"
TOTAL = PUBLISHERS * KEYS_EACH * PER_KEY

# In seconds, longer than any lease that the SDK takes with its defaults (60 s).
PAST_ANY_DEADLINE = 61.0


class LateAcknowledger:
    """Acknowledges each given message at a random time in the next 20 ms."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._due: list[tuple[float, int, Message]] = []
        self._count = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, message: Message) -> None:
        with self._wake:
            self._count += 1
            when = SYSTEM_CLOCK.monotonic() + random.uniform(0, 0.02)
            heapq.heappush(self._due, (when, self._count, message))
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._wake:
            while not self._stopped:
                now = SYSTEM_CLOCK.monotonic()
                while self._due and self._due[0][0] <= now:
                    heapq.heappop(self._due)[2].ack()
                self._wake.wait(self._due[0][0] - now if self._due else None)


class Journal:
    """Every callback in the order of its begin, and its disposition."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.handled: set[tuple[str, int]] = set()
        self.dropped = 0
        self.calls = 0
        self.half = threading.Event()
        self.never = threading.Event()
        self._late = LateAcknowledger()

    def handle(self, message: Message) -> None:
        key, _, digits = message.data.decode().partition(":")
        number = int(digits)
        with self.lock:
            self.calls += 1
            self.by_key[key].append(number)
            roll = random.random()
            if roll < 0.01:
                message.nack()
                return
            if roll < 0.012:
                # Never settled: its ack deadline passes at the server, and it is redelivered.
                self.dropped += 1
                message.drop()
                return
            self.handled.add((key, number))
            if len(self.handled) >= TOTAL // 2:
                self.half.set()
        if roll < 0.5:
            self._late.add(message)
        else:
            message.ack()

    def stop(self) -> None:
        self._late.stop()

    def skipped(self) -> list[tuple[str, int, int]]:
        """Return where a key jumped over an unhandled message: (key, expected, received)."""
        jumps = []
        for key, numbers in self.by_key.items():
            if key.startswith(UNORDERED):
                continue
            furthest = -1
            for number in numbers:
                if number > furthest + 1:
                    jumps.append((key, furthest + 1, number))
                furthest = max(furthest, number)
        return jumps


def publish(endpoint: str, publisher: int) -> None:
    """Publish KEYS_EACH keys concurrently, each in order, through all failures of the broker.

    The last publisher does the same without ordering keys.
    """
    with TopicAdminClient(endpoint=endpoint) as client:
        for number in range(PER_KEY):
            batch = [
                {"data": f"{key}:{number}".encode(), "ordering_key": key * (publisher != LAST)}
                for key in (f"{publisher}-{n}" for n in range(KEYS_EACH))
            ]
            while True:
                try:
                    client.publish(TOPIC, batch)
                    break
                except (Unavailable, Cancelled):
                    # The message may have been stored, so the subscriber must accept a second copy.
                    continue


@pytest.mark.slow
def test_a_hundred_thousand_messages_are_processed_in_spite_of_all_kinds_of_failures() -> None:
    """There are 4 publishers, 2 streams, late acks, nacks, passed deadlines, and a restart."""
    clock = ManualClock()
    journal = Journal()
    limits = FlowControl(max_messages=500)
    broker = Emulator(clock=clock).start()
    endpoint = broker.endpoint
    clients = [SubscriberClient(endpoint=endpoint) for _ in range(2)]
    try:
        with TopicAdminClient(endpoint=endpoint) as topics:
            topics.create_topic(name=TOPIC)
        clients[0].create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
        futures = [client.subscribe(SUBSCRIPTION, journal.handle, limits) for client in clients]
        publishers = [
            threading.Thread(target=publish, args=(endpoint, number), daemon=True)
            for number in range(PUBLISHERS)
        ]
        for thread in publishers:
            thread.start()

        assert journal.half.wait(120)
        broker.stop()
        broker = Emulator(clock=clock, port=broker.port, broker=broker.broker).start()

        for thread in publishers:
            thread.join(120)
            assert not thread.is_alive()
        # Dropped messages are redelivered when their lease is over, as all messages under lease
        # are.
        stuck_at = -1
        give_up = SYSTEM_CLOCK.monotonic() + 150
        while broker.backlog(SUBSCRIPTION) and SYSTEM_CLOCK.monotonic() < give_up:
            calls = journal.calls
            if calls == stuck_at:
                clock.advance(PAST_ANY_DEADLINE)
            stuck_at = calls
            journal.never.wait(0.2)

        assert len(journal.handled) == TOTAL
        assert journal.dropped > 0
        assert journal.skipped() == []
        assert broker.backlog(SUBSCRIPTION) == 0
        for future in futures:
            future.cancel()
            assert future.result(30) is True
    finally:
        journal.stop()
        for client in clients:
            client.close()
        broker.stop()
