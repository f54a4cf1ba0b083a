"""Publishing many messages: the contents of requests, and the order in each key."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from pullstream.spark.sink.publish_queue import (
    MAX_BYTES,
    MAX_MESSAGES,
    PublishQueue,
    PublishRequest,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub

NO_LONGER = 1e9


def message(data: bytes, key: str = "") -> pubsub.PubsubMessage:
    return pubsub.PubsubMessage(data=data, ordering_key=key)


def sendable(queue: PublishQueue, now: float = 0.0) -> list[PublishRequest]:
    """Return all requests that may be sent now."""
    found = []
    while (request := queue.next_request(now)) is not None:
        found.append(request)
    return found


def test_a_request_is_sent_when_it_is_full() -> None:
    """The limit is a number of messages, and the rest waits for the flush."""
    queue = PublishQueue()
    filled = [queue.add(message(b"x")) for _ in range(MAX_MESSAGES + 1)]
    assert filled == [False] * (MAX_MESSAGES - 1) + [True, False]
    assert [len(request.messages) for request in sendable(queue)] == [MAX_MESSAGES]
    queue.flush()
    assert [len(request.messages) for request in sendable(queue)] == [1]


def test_a_request_is_never_larger_than_the_server_takes() -> None:
    """The limit is in bytes. A larger message goes alone, and the server refuses it."""
    queue = PublishQueue()
    for size in (MAX_BYTES // 2, MAX_BYTES // 2, MAX_BYTES + 1, 1):
        queue.add(message(b"x" * size))
    queue.flush()
    assert [len(request.messages) for request in sendable(queue)] == [1, 1, 1, 1]


def test_the_messages_of_a_request_have_one_key() -> None:
    """The server requires one key for each request."""
    queue = PublishQueue()
    for number in range(6):
        queue.add(message(b"%d" % number, key="ab"[number % 2]))
    queue.flush()
    found = [(request.key, [one.data for one in request.messages]) for request in sendable(queue)]
    assert found == [("a", [b"0", b"2", b"4"]), ("b", [b"1", b"3", b"5"])]


def test_what_waits_is_counted_until_it_is_published() -> None:
    """The caller that fills the queue can then stop in time."""
    queue = PublishQueue()
    queue.add(message(b"x" * 100))
    assert queue.size > 100
    queue.flush()
    (request,) = sendable(queue)
    queue.retry(request, now=0.0)
    assert queue.size > 100
    (again,) = sendable(queue, now=NO_LONGER)
    queue.succeeded(again)
    assert queue.size == 0


def test_a_retry_comes_after_a_growing_pause() -> None:
    """The request keeps the time of its first failure."""
    queue = PublishQueue()
    queue.add(message(b"x"))
    queue.flush()
    (request,) = sendable(queue)
    assert queue.next_due() is None
    queue.retry(request, now=5.0)
    due = queue.next_due()
    assert due is not None
    assert 5.0 < due <= 5.1
    assert sendable(queue, now=5.0) == []
    assert sendable(queue, now=due) == [request]
    queue.retry(request, now=due)
    assert request.failing_since == 5.0


@given(
    keys=st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=60),
    flush_every=st.integers(1, 10),
    seed=st.integers(),
)
def test_each_key_keeps_its_order(keys: list[str], flush_every: int, seed: int) -> None:
    """Every message arrives once, after any failures and with answers in any order."""
    chance = random.Random(seed)
    queue = PublishQueue()
    sent: dict[str, list[int]] = defaultdict(list)
    arrived: dict[str, list[int]] = defaultdict(list)
    under_way: list[PublishRequest] = []

    def answer() -> None:
        request = under_way.pop(chance.randrange(len(under_way)))
        if chance.random() < 0.3:
            queue.retry(request, now=0.0)
        else:
            arrived[request.key] += [int(one.data) for one in request.messages]
            queue.succeeded(request)

    for number, key in enumerate(keys):
        sent[key].append(number)
        queue.add(message(b"%d" % number, key))
        if number % flush_every == 0:
            queue.flush()
            under_way += sendable(queue, NO_LONGER)
        if under_way and chance.random() < 0.5:
            answer()
    queue.flush()
    while queue.size:
        under_way += sendable(queue, NO_LONGER)
        busy = [request.key for request in under_way if request.key]
        assert len(busy) == len(set(busy))
        answer()
    arrived[""].sort()
    assert {key: found for key, found in arrived.items() if found} == sent
