"""The queue of batches: its rules, and a model that tries them in any order."""

from __future__ import annotations

import math
from collections import defaultdict

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pullstream import BatchSettings, PublishHedging
from pullstream.publisher import publish_queue
from pullstream.publisher.publish_queue import KEPT_SEQUENCERS, Batch, PublishQueue
from pullstream.publisher.settings import PublishPolicy
from pullstream_protocol.errors import NotFound, Unavailable

TOPIC = "projects/p/topics/t"
POLICY = PublishPolicy()
OTHER_POLICY = PublishPolicy(attempt_timeout=1)
ERROR = Unavailable("away")
FINAL = NotFound("none")


class Publisher:
    """A queue, whose time the test sets."""

    def __init__(
        self,
        max_messages: int = 3,
        max_bytes: int = 1_000_000,
        max_latency: float = 10.0,
        hedging: PublishHedging | None = None,
    ) -> None:
        self.now = 0.0
        settings = BatchSettings(max_bytes, max_latency, max_messages)
        self.queue = PublishQueue(settings, lambda batch: self.queue.send_soon(batch), hedging)

    def add(self, entry: bytes, key: str = "", policy: PublishPolicy = POLICY) -> Batch:
        sequencer = self.queue.sequencer(TOPIC, key)
        return self.queue.add(sequencer, entry, policy, lambda: self.now)

    def take(self) -> Batch | None:
        return self.queue.next_batch(self.now)

    def sent(self) -> list[list[bytes]]:
        """Return the entries of all batches that may be sent now."""
        found = []
        while (batch := self.take()) is not None:
            found.append(batch.entries)
        return found

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.queue.expire(self.now)


def take(publisher: Publisher) -> Batch:
    batch = publisher.take()
    assert batch is not None
    return batch


# ---- batches -----------------------------------------------------------------------------------


def test_a_publish_batch_is_sent_when_it_has_max_messages() -> None:
    """The rest waits for its latency."""
    publisher = Publisher(max_messages=2)
    for entry in (b"1", b"2", b"3"):
        publisher.add(entry)
    assert publisher.sent() == [[b"1", b"2"]]
    assert publisher.queue.messages == 3


def test_a_publish_batch_is_sent_when_the_next_message_would_exceed_max_bytes() -> None:
    """The size of a request includes the topic."""
    topic_bytes = len(Publisher().queue.sequencer(TOPIC).prefix)
    publisher = Publisher(max_bytes=topic_bytes + 100, max_messages=1000)
    publisher.add(b"x" * 60)
    publisher.add(b"y" * 41)
    assert publisher.sent() == [[b"x" * 60]]
    publisher.add(b"z" * 59)
    assert publisher.sent() == [[b"y" * 41, b"z" * 59]]


def test_a_message_larger_than_max_bytes_of_a_batch_is_published_in_its_own_request() -> None:
    """max_bytes limits batches, not messages."""
    publisher = Publisher(max_bytes=100)
    publisher.add(b"x" * 1000)
    assert publisher.sent() == [[b"x" * 1000]]


def test_a_publish_batch_is_sent_when_max_latency_has_passed_since_its_first_message() -> None:
    """The latency counts from the first message."""
    publisher = Publisher(max_latency=1.0)
    publisher.add(b"1")
    publisher.advance(0.6)
    publisher.add(b"2")
    assert publisher.queue.next_due() == 1.0
    assert publisher.sent() == []
    publisher.advance(0.4)
    assert publisher.sent() == [[b"1", b"2"]]
    assert publisher.queue.next_due() is None


def test_with_infinite_max_latency_a_publish_batch_is_sent_only_when_full_or_flushed() -> None:
    """math.inf is no time."""
    publisher = Publisher(max_latency=math.inf)
    publisher.add(b"1")
    assert publisher.queue.next_due() is None
    publisher.queue.flush()
    assert publisher.sent() == [[b"1"]]


def test_messages_with_different_timeouts_or_retries_share_no_publish_request() -> None:
    """A request has one timeout. Equal policies share a request."""
    publisher = Publisher(max_messages=10)
    publisher.add(b"1")
    publisher.add(b"2", policy=PublishPolicy())
    publisher.add(b"3", policy=OTHER_POLICY)
    publisher.queue.flush()
    assert publisher.sent() == [[b"1", b"2"], [b"3"]]


def test_a_publish_batch_that_a_caller_waits_for_is_sent_at_once() -> None:
    """With a request of its sequencer in flight, the batch waits for the answer."""
    publisher = Publisher()
    publisher.add(b"1").outcome.on_wait()
    first = take(publisher)
    publisher.add(b"2").outcome.on_wait()
    publisher.add(b"3")
    assert publisher.sent() == []
    publisher.queue.succeeded(first)
    assert publisher.sent() == [[b"2", b"3"]]


def test_a_publish_batch_past_its_max_latency_accepts_messages_until_it_is_sent() -> None:
    """While there is no room for a request, batches grow."""
    publisher = Publisher(max_latency=1.0)
    publisher.add(b"1")
    publisher.advance(1.0)
    publisher.add(b"2")
    assert publisher.sent() == [[b"1", b"2"]]


def test_messages_of_publish_many_are_sent_at_once_without_messages_of_other_calls() -> None:
    """`publish_many` does not wait, and does not mix."""
    publisher = Publisher(max_messages=2)
    publisher.add(b"1")
    sequencer = publisher.queue.sequencer(TOPIC)
    publisher.queue.add_full(sequencer, [b"2", b"3", b"4"], 3, POLICY)
    assert publisher.sent() == [[b"2", b"3", b"4"]]
    publisher.queue.flush()
    assert publisher.sent() == [[b"1"]]


# ---- keys --------------------------------------------------------------------------------------


def test_an_ordering_key_has_at_most_one_publish_request_in_flight() -> None:
    """Later messages wait for the answer, and gather meanwhile."""
    publisher = Publisher(max_messages=2)
    for entry in (b"1", b"2", b"3", b"4", b"5"):
        publisher.add(entry, "k")
    first = take(publisher)
    assert first.entries == [b"1", b"2"]
    assert publisher.take() is None
    publisher.queue.succeeded(first)
    assert publisher.sent() == [[b"3", b"4"]]


def test_publish_requests_of_different_ordering_keys_do_not_wait_for_each_other() -> None:
    """Each key has its own order."""
    publisher = Publisher(max_messages=1)
    for key in ("a", "b", "a"):
        publisher.add(key.encode(), key)
    assert publisher.sent() == [[b"a"], [b"b"]]


def test_publish_many_messages_with_an_ordering_key_follow_earlier_messages_of_the_key() -> None:
    """The batches follow the messages that were published before."""
    publisher = Publisher()
    publisher.add(b"1", "k")
    publisher.queue.add_full(publisher.queue.sequencer(TOPIC, "k"), [b"2"], 1, POLICY)
    publisher.add(b"3", "k")
    order = []
    publisher.queue.flush()
    while (batch := publisher.take()) is not None:
        order += batch.entries
        publisher.queue.succeeded(batch)
    assert order == [b"1", b"2", b"3"]


def test_a_publish_request_is_retried_before_later_messages_of_its_ordering_key_are_sent() -> None:
    """A later message that overtook the retry would break the order."""
    publisher = Publisher(max_messages=1)
    publisher.add(b"1", "k")
    publisher.add(b"2", "k")
    publisher.add(b"3", "other")
    first, other = take(publisher), take(publisher)
    assert other.entries == [b"3"]
    assert publisher.queue.failed(first, ERROR, publisher.now) is None
    assert publisher.take() is None
    due = publisher.queue.next_due()
    assert due is not None
    publisher.advance(due)
    assert take(publisher) is first
    assert publisher.take() is None
    publisher.queue.succeeded(first)
    assert publisher.sent() == [[b"2"]]


def test_a_failed_publish_pauses_its_ordering_key_until_the_user_resumes_it() -> None:
    """All waiting messages of the key fail with it."""
    publisher = Publisher(max_messages=1)
    first, second = publisher.add(b"1", "k"), publisher.add(b"2", "k")
    assert take(publisher) is first
    assert publisher.queue.failed(first, FINAL, 0.0) == [first, second]
    sequencer = publisher.queue.sequencer(TOPIC, "k")
    paused = publisher.queue.paused(sequencer)
    assert paused is not None
    assert "ordering key 'k' is paused" in str(paused)
    assert "none" in str(paused)
    assert publisher.queue.messages == 0
    assert publisher.queue.resume(TOPIC, "k")
    assert not publisher.queue.resume(TOPIC, "k")
    assert not publisher.queue.resume(TOPIC, "unknown")
    publisher.add(b"3", "k")
    assert publisher.sent() == [[b"3"]]


def test_the_publisher_keeps_no_data_of_ordering_keys_without_waiting_messages() -> None:
    """A program may use any number of keys."""
    publisher = Publisher(max_messages=1)
    for number in range(10):
        publisher.add(b"1", f"key-{number}")
        publisher.queue.succeeded(take(publisher))
    assert publisher.queue.sequencers == {}


def test_the_publisher_keeps_data_of_a_limited_number_of_topics_without_waiting_messages() -> None:
    """A program may create a topic for each of its tests or sessions."""
    publisher = Publisher(max_messages=1)
    queue = publisher.queue

    def publish(topic: str) -> Batch:
        return queue.add(queue.sequencer(topic), b"1", POLICY, lambda: publisher.now)

    waiting = publish(f"{TOPIC}-waiting")
    assert publisher.take() is waiting
    for number in range(3 * KEPT_SEQUENCERS):
        publish(f"{TOPIC}-{number}")
        queue.succeeded(take(publisher))
    assert len(queue.sequencers) <= KEPT_SEQUENCERS
    assert queue.sequencers[f"{TOPIC}-waiting"] is waiting.sequencer


# ---- retries -----------------------------------------------------------------------------------


def test_publish_requests_are_retried_with_the_pauses_and_time_limit_of_the_retry_policy() -> None:
    """The pauses grow, and the last error is final."""
    policy = PublishPolicy(first_pause=1, longest_pause=4, factor=2, give_up_after=10)
    publisher = Publisher(max_messages=1)
    publisher.add(b"1", policy=policy)
    attempts, failed = 0, None
    while failed is None:
        batch = take(publisher)
        attempts += 1
        failed = publisher.queue.failed(batch, ERROR, publisher.now)
        if failed is None:
            due = publisher.queue.next_due()
            assert due is not None
            assert 0 < due - publisher.now <= 4
            publisher.advance(due - publisher.now)
    assert failed == [batch]
    assert batch.attempts == attempts >= 4
    assert publisher.now == 10
    assert publisher.queue.messages == 0


def test_a_message_without_an_ordering_key_does_not_wait_for_retries_of_other_messages() -> None:
    """The messages have no order."""
    publisher = Publisher(max_messages=1)
    publisher.add(b"1")
    publisher.add(b"2")
    assert publisher.queue.failed(take(publisher), ERROR, 0.0) is None
    assert publisher.sent() == [[b"2"]]


# ---- limits ------------------------------------------------------------------------------------


def test_unanswered_publish_requests_with_and_without_ordering_keys_have_separate_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages without a key never wait for those with one."""
    monkeypatch.setattr(publish_queue, "MAX_IN_FLIGHT", 2)
    publisher = Publisher(max_messages=1)
    for number in range(5):
        publisher.add(b"keyed", f"k{number}")
    for _ in range(5):
        publisher.add(b"unkeyed")
    assert publisher.sent() == [[b"unkeyed"]] * 2 + [[b"keyed"]] * 2


def test_the_total_bytes_of_unanswered_publish_requests_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request above the limit is sent alone."""
    monkeypatch.setattr(publish_queue, "MAX_BYTES_IN_FLIGHT", 100)
    publisher = Publisher(max_messages=1)
    publisher.add(b"x" * 200)
    publisher.add(b"y")
    large = take(publisher)
    assert publisher.take() is None
    publisher.queue.succeeded(large)
    assert publisher.sent() == [[b"y"]]


def test_a_due_publish_retry_is_not_sent_while_unanswered_requests_are_at_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread would wake again and again; the next answer leads to the retry."""
    monkeypatch.setattr(publish_queue, "MAX_IN_FLIGHT", 1)
    publisher = Publisher(max_messages=1)
    publisher.add(b"1")
    publisher.add(b"2")
    assert publisher.queue.failed(take(publisher), ERROR, 0.0) is None
    second = take(publisher)
    publisher.advance(100)
    assert publisher.queue.next_due() is None
    publisher.queue.succeeded(second)
    assert publisher.queue.next_due() is not None
    assert publisher.sent() == [[b"1"]]


# ---- hedging -----------------------------------------------------------------------------------


def test_with_hedging_a_slow_publish_request_is_sent_again_after_each_delay() -> None:
    """The repetition ends with the first success."""
    publisher = Publisher(max_messages=1, hedging=PublishHedging(delay=1.0))
    publisher.add(b"1")
    batch = take(publisher)
    assert publisher.queue.next_hedge(0.9) is None
    assert publisher.queue.next_due() == 1.0
    assert publisher.queue.next_hedge(1.0) is batch
    assert publisher.queue.next_hedge(1.0) is None
    assert publisher.queue.next_hedge(2.0) is batch
    assert batch.attempts == 3
    publisher.queue.succeeded(batch)
    batch.outcome.resolve(["1"])
    assert publisher.queue.next_hedge(9.0) is None
    assert publisher.queue.next_due() is None


def test_publish_hedging_is_limited_by_tokens_that_successful_requests_refill() -> None:
    """In an outage, hedging must not double the load."""
    hedging = PublishHedging(delay=1.0, max_tokens=1, refill_ratio=0.1)
    publisher = Publisher(max_messages=1, hedging=hedging)
    publisher.add(b"slow")
    slow = take(publisher)
    assert publisher.queue.next_hedge(1.0) is slow
    assert publisher.queue.next_hedge(2.0) is None
    for number in range(10):
        publisher.add(b"fast")
        assert publisher.queue.next_hedge(3.0 + number) is None
        fast = take(publisher)
        fast.outcome.resolve(["1"])
        publisher.queue.succeeded(fast)
    assert publisher.queue.next_hedge(20.0) is slow


def test_publish_hedging_never_sends_messages_with_an_ordering_key_a_second_time() -> None:
    """A second copy could arrive after a later message of the key."""
    publisher = Publisher(max_messages=1, hedging=PublishHedging(delay=1.0))
    publisher.add(b"1", "k")
    take(publisher)
    assert publisher.queue.next_hedge(5.0) is None
    assert publisher.queue.next_due() is None


def test_a_publish_batch_sent_twice_by_hedging_fails_only_when_both_requests_fail() -> None:
    """An error of one request does not count while the other may succeed."""
    publisher = Publisher(max_messages=1, hedging=PublishHedging(delay=1.0))
    publisher.add(b"1")
    batch = take(publisher)
    publisher.queue.next_hedge(1.0)
    assert publisher.queue.failed(batch, FINAL, 1.0) is None
    assert publisher.queue.messages == 1
    assert publisher.queue.failed(batch, FINAL, 1.0) == [batch]


# ---- the end -----------------------------------------------------------------------------------


def test_abandoning_the_publish_queue_yields_every_batch_that_has_no_answer() -> None:
    """The batches are open, waiting, in flight, or between two attempts."""
    publisher = Publisher(max_messages=1)
    batches = {publisher.add(b"1"), publisher.add(b"2"), publisher.add(b"3", "k")}
    publisher.queue.failed(take(publisher), ERROR, 0.0)
    take(publisher)
    batches.add(Publisher.add(publisher, b"4", "k"))
    assert set(publisher.queue.abandon()) == batches
    assert publisher.queue.messages == 0
    assert publisher.take() is None
    assert publisher.queue.next_due() is None


KEYS = st.sampled_from(["", "a", "b", "c"])


class PublishQueueModel(RuleBasedStateMachine):
    """Publishes, sends, answers and waits in any order; at the end all messages have a result."""

    def __init__(self) -> None:
        super().__init__()
        self.publisher = Publisher(max_messages=3, max_bytes=200, max_latency=1.0)
        self.in_flight: list[Batch] = []
        self.published: dict[str, list[bytes]] = defaultdict(list)
        self.confirmed: dict[str, list[bytes]] = defaultdict(list)
        self.failed: set[bytes] = set()
        self.number = 0

    @rule(key=KEYS, size=st.integers(1, 250), prepared=st.booleans())
    def publish(self, key: str, size: int, prepared: bool) -> None:
        queue = self.publisher.queue
        sequencer = queue.sequencer(TOPIC, key)
        if queue.paused(sequencer) is not None:
            queue.resume(TOPIC, key)
            sequencer = queue.sequencer(TOPIC, key)
        self.number += 1
        entry = b"%06d" % self.number + b"x" * size
        self.published[key].append(entry)
        if prepared:
            queue.add_full(sequencer, [entry], len(entry), POLICY)
        else:
            self.publisher.add(entry, key)

    @rule()
    def send(self) -> None:
        batch = self.publisher.take()
        if batch is not None:
            assert not batch.sequencer.key or all(
                one.sequencer is not batch.sequencer for one in self.in_flight
            )
            self.in_flight.append(batch)

    @precondition(lambda self: self.in_flight)
    @rule(choice=st.integers(0, 100), error=st.sampled_from([None, None, ERROR, FINAL]))
    def answer(self, choice: int, error: Exception | None) -> None:
        batch = self.in_flight.pop(choice % len(self.in_flight))
        if error is None:
            self.publisher.queue.succeeded(batch)
            self.confirmed[batch.sequencer.key] += batch.entries
            return
        failed = self.publisher.queue.failed(batch, error, self.publisher.now)
        self.failed.update(entry for one in failed or () for entry in one.entries)

    @rule(seconds=st.floats(0.1, 100))
    def wait(self, seconds: float) -> None:
        self.publisher.advance(seconds)

    @rule()
    def await_all(self) -> None:
        for batch in list(self.publisher.queue.batches):
            batch.outcome.on_wait()

    @invariant()
    def all_messages_are_counted(self) -> None:
        waiting = {entry for batch in self.publisher.queue.batches for entry in batch.entries}
        confirmed = {entry for entries in self.confirmed.values() for entry in entries}
        published = {entry for entries in self.published.values() for entry in entries}
        assert len(waiting) == self.publisher.queue.messages
        assert waiting | confirmed | self.failed == published
        assert len(waiting) + len(confirmed) + len(self.failed) == len(published)

    @invariant()
    def the_order_of_each_key_is_kept(self) -> None:
        for key, entries in self.confirmed.items():
            if key:
                assert entries == sorted(entries)

    def teardown(self) -> None:
        """All that waits can be sent and confirmed."""
        queue = self.publisher.queue
        for _ in range(1000):
            if not queue.messages:
                break
            queue.flush()
            self.send()
            while self.in_flight:
                self.answer(0, None)
            if queue.messages:
                self.publisher.advance(60)
        assert queue.messages == 0
        self.all_messages_are_counted()
        assert [name for name in queue.sequencers if isinstance(name, tuple)] == [
            (TOPIC, sequencer.key) for sequencer in queue.sequencers.values() if sequencer.paused_by
        ]


TestPublishQueueModel = PublishQueueModel.TestCase
TestPublishQueueModel.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=50, deadline=None
)
