"""Callbacks that take lists."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pullstream import FlowControl, MessageBatch, ThreadScheduler
from pullstream.client import _SubscriptionCalls
from pullstream.streaming.manager import StreamingPullManager
from pullstream.streaming.settings import Batching, StreamingSettings
from pullstream_protocol.clock import ManualClock
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Events, Stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

pytestmark = pytest.mark.subscription(enable_message_ordering=True)

FOREVER = 3600.0


class Lists:
    """A callback that keeps the lists and acknowledges them."""

    def __init__(self, *, ack: bool = True) -> None:
        self._ack = ack
        self._changed = threading.Condition()
        self.batches: list[MessageBatch] = []

    def __call__(self, batch: MessageBatch) -> None:
        with self._changed:
            self.batches.append(batch)
            self._changed.notify_all()
        if self._ack:
            batch.ack()

    @property
    def data(self) -> list[list[bytes]]:
        return [[message.data for message in batch] for batch in self.batches]

    def wait_for(self, count: int) -> list[MessageBatch]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.batches) >= count, TIMEOUT)
            return list(self.batches)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_full_batch_of_messages_is_passed_to_the_callback_without_waiting(here: Stage) -> None:
    """Lists have ten messages, and the rest waits for more."""
    lists, events = Lists(), Events()
    here.client.subscribe_batch(
        SUBSCRIPTION, lists, max_messages=10, max_latency=FOREVER, hooks=events
    )
    here.publish(*numbers(35))
    lists.wait_for(3)
    eventually(lambda: here.backlog == 5)
    assert events.received_count == 35
    assert [len(batch) for batch in lists.batches] == [10, 10, 10]
    here.publish(*numbers(5))
    lists.wait_for(4)
    eventually(lambda: here.backlog == 0)
    assert len(lists.batches[3]) == 10


def test_an_incomplete_message_batch_reaches_the_callback_after_max_latency(here: Stage) -> None:
    """A list is passed on when its first message has waited `max_latency`."""
    clock, lists, events = ManualClock(), Lists(), Events()
    manager = StreamingPullManager(
        _SubscriptionCalls(here.client._rpcs, here.client._connections, SUBSCRIPTION),
        SUBSCRIPTION,
        lists,
        StreamingSettings(FlowControl(), hooks=(events,), batching=Batching(100, 5.0)),
        scheduler=ThreadScheduler(),
        clock=clock,
    )
    manager.start()
    here.publish(b"first")
    eventually(lambda: manager.statistics().waiting == 1)
    clock.advance(4)
    here.publish(b"second")
    eventually(lambda: manager.statistics().waiting == 2)
    assert lists.batches == []
    clock.advance(1)
    lists.wait_for(1)
    assert lists.data == [[b"first", b"second"]]
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(TIMEOUT) is True


def test_messages_of_a_batch_can_be_acked_or_nacked_one_by_one_or_together(here: Stage) -> None:
    """A message that was settled singly keeps its disposition. The list settles the rest."""
    lists = Lists(ack=False)
    future = here.client.subscribe_batch(SUBSCRIPTION, lists, max_messages=4, max_latency=FOREVER)
    here.publish(*numbers(4))
    (batch,) = lists.wait_for(1)
    batch[0].ack()
    batch[1].nack(delay=600)
    batch.ack()
    batch.nack()
    eventually(lambda: here.backlog == 1)
    eventually(lambda: future.statistics().leased == 0)
    assert (future.statistics().acked, future.statistics().nacked) == (3, 1)


def test_only_unsettled_messages_are_redelivered_when_a_batch_callback_raises(here: Stage) -> None:
    """The error counts once."""
    seen: list[list[bytes]] = []

    def fail_first(batch: MessageBatch) -> None:
        seen.append([message.data for message in batch])
        if len(seen) == 1:
            batch[0].ack()
            raise ValueError("on purpose")
        batch.ack()

    future = here.client.subscribe_batch(
        SUBSCRIPTION, fail_first, max_messages=3, max_latency=0.01, max_workers=1
    )
    here.publish(*numbers(3))
    eventually(lambda: here.backlog == 0)
    assert seen[0] == [b"0", b"1", b"2"]
    assert sorted(data for batch in seen[1:] for data in batch) == [b"1", b"2"]
    assert future.statistics().callback_errors == 1


@pytest.mark.parametrize("failing", [False, True])
def test_batch_callbacks_get_the_messages_of_a_key_in_order_within_and_across_batches(
    here: Stage, failing: bool
) -> None:
    """There are many workers and several keys, and now and then a list fails in the middle."""
    lock = threading.Lock()
    handled: dict[str, list[int]] = {key: [] for key in "abc"}
    running: set[str] = set()
    overlaps: list[str] = []
    count = 0

    def handle(batch: MessageBatch) -> None:
        nonlocal count
        keys = {message.ordering_key for message in batch}
        with lock:
            count += 1
            fails = failing and count % 5 == 0
            overlaps.extend(keys & running)
            running.update(keys)
        for position, message in enumerate(batch):
            if fails and position == len(batch) // 2:
                with lock:
                    running.difference_update(keys)
                raise ValueError("on purpose")
            handled[message.ordering_key].append(int(message.data))
            message.ack()
        with lock:
            running.difference_update(keys)

    for start in range(0, 100, 10):
        for key in handled:
            here.publish(*numbers(100)[start : start + 10], key=key)
    here.client.subscribe_batch(SUBSCRIPTION, handle, max_messages=7, max_latency=0.01)
    eventually(lambda: here.backlog == 0)
    assert overlaps == []
    for order in handled.values():
        assert set(order) == set(range(100))
        if not failing:
            assert order == [*range(100)]
        for place, number in enumerate(order):
            assert set(order[:place]) >= set(range(number)), "something skipped ahead"


def test_a_nack_within_a_batch_restarts_the_ordering_key_at_the_nacked_message(here: Stage) -> None:
    """The next list begins with it. The acknowledged last message does not run again."""
    seen: list[list[bytes]] = []

    def nack_once(batch: MessageBatch) -> None:
        seen.append([message.data for message in batch])
        if len(seen) == 1:
            batch[1].nack()
        batch.ack()

    here.publish(*numbers(9), key="k")
    here.client.subscribe_batch(SUBSCRIPTION, nack_once, max_messages=3, max_latency=0.01)
    eventually(lambda: here.backlog == 0)
    assert seen[0] == [b"0", b"1", b"2"]
    assert [data for batch in seen[1:] for data in batch] == [b"1", *numbers(9)[3:]]


def test_messages_of_one_ordering_key_are_passed_to_callbacks_in_full_batches(here: Stage) -> None:
    """A single key makes lists of the maximum length."""
    lists = Lists()
    here.publish(*numbers(50), key="k")
    here.client.subscribe_batch(SUBSCRIPTION, lists, max_messages=10, max_latency=FOREVER)
    eventually(lambda: here.backlog == 0)
    assert lists.data == [numbers(50)[start : start + 10] for start in range(0, 50, 10)]


def test_coroutine_functions_as_batch_callbacks_run_concurrently_on_one_event_loop(
    here: Stage,
) -> None:
    """Lists are handled concurrently on one event loop."""
    entered: list[int] = []
    all_in: list[asyncio.Event] = []

    async def handle(batch: MessageBatch) -> None:
        if not all_in:
            all_in.append(asyncio.Event())
        entered.append(len(batch))
        if len(entered) == 5:
            all_in[0].set()
        await asyncio.wait_for(all_in[0].wait(), TIMEOUT)
        batch.ack()

    here.client.subscribe_batch(SUBSCRIPTION, handle, max_messages=10, max_latency=FOREVER)
    here.publish(*numbers(50))
    eventually(lambda: here.backlog == 0)
    assert entered == [10] * 5


def test_closing_a_subscription_returns_the_messages_of_an_incomplete_batch_to_the_server(
    here: Stage,
) -> None:
    """A list that is not full is no longer passed to the callback."""
    lists = Lists()
    future = here.client.subscribe_batch(SUBSCRIPTION, lists, max_messages=100, max_latency=FOREVER)
    here.publish(*numbers(5))
    eventually(lambda: future.statistics().waiting == 5)
    assert future.close(TIMEOUT)
    assert len(here.free()) == 5
    assert lists.batches == []
