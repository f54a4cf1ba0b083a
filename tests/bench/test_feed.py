"""The feed sends the requested messages within its window."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.bench.feed import Window
from tests.bench.servers import Feed, NotStarted, running, serving
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.wire import Wire, ack_ids_of


@contextmanager
def wire_to(feed: Feed) -> Iterator[Wire]:
    with serving(feed) as endpoint, closing(Wire(endpoint)) as wire:
        yield wire


def test_a_sender_to_a_full_benchmark_window_waits_until_the_window_has_room_again() -> None:
    """A response may exceed the window, which then waits."""

    async def fill() -> None:
        window = Window(10)
        await window.take(7)
        await window.take(7)
        waiting = asyncio.ensure_future(window.take(7))
        await asyncio.sleep(0)
        assert not waiting.done()
        window.give_back(5)
        await waiting

    asyncio.run(asyncio.wait_for(fill(), 10))


def test_a_benchmark_feed_sends_messages_of_the_requested_number_size_and_keys() -> None:
    """The form is the size, the keys, and the number in each response."""
    with wire_to(Feed(per_response=5, size=300, keys=2, exactly_once=True)) as wire:
        response = wire.stream(max_outstanding_messages=5).next()
    assert [len(m.message.data) for m in response.received_messages] == [300] * 5
    keys = [m.message.ordering_key for m in response.received_messages]
    assert keys == ["key-0", "key-1", "key-0", "key-1", "key-0"]
    properties = response.subscription_properties
    assert properties.message_ordering_enabled
    assert properties.exactly_once_delivery_enabled


def test_acknowledgements_and_nacks_make_room_in_the_window_of_a_benchmark_feed() -> None:
    """An extension makes no room."""
    with wire_to(Feed(per_response=10)) as wire:
        stream = wire.stream(max_outstanding_messages=20)
        first = list(ack_ids_of(stream.messages(20)))
        wire.modify(60, *first)
        wire.acknowledge(*first[:10])
        wire.modify(0, *first[10:])
        again = list(ack_ids_of(stream.messages(20)))
    assert not set(first) & set(again)


def test_each_subscription_of_a_benchmark_feed_has_a_separate_window() -> None:
    """Unread or unsettled messages of one subscription do not block another."""
    with wire_to(Feed(per_response=10)) as wire:
        other = wire.stream(subscription=f"{SUBSCRIPTION}-2", max_outstanding_messages=10)
        other.messages(10)
        stream = wire.stream(max_outstanding_messages=10)
        wire.acknowledge(*ack_ids_of(stream.messages(10)))
        stream.messages(10)


def test_a_benchmark_feed_sends_its_total_of_messages_to_each_stream_and_keeps_it_open() -> None:
    """A client whose stream ended would open another and get all messages again."""
    with wire_to(Feed(per_response=10, total=40)) as wire:
        for name in (f"{SUBSCRIPTION}-2", SUBSCRIPTION):
            stream = wire.stream(subscription=name, max_outstanding_messages=10_000)
            received = stream.messages(40)
        # After this round trip, an end that the feed had sent would have arrived.
        wire.acknowledge(*ack_ids_of(received))
        assert stream.call.is_active()


def test_a_benchmark_feed_refuses_a_total_that_is_no_multiple_of_the_response_size() -> None:
    """The total is not rounded."""
    with (
        pytest.raises(NotStarted, match="did not start"),
        serving(Feed(per_response=10, total=45)),
    ):
        pass


def test_a_benchmark_program_that_exits_before_it_is_ready_is_reported_as_failed_at_once() -> None:
    """The end is noticed long before the time limit of a slow program."""
    with pytest.raises(NotStarted), running(["false"], "ready"):
        pass
