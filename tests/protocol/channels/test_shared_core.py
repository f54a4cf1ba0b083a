"""SharedChannelCore: many threads use one core."""

from __future__ import annotations

import threading
import tracemalloc

import pytest

from pullstream_protocol.channels.shared_core import SharedChannelCore
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import FailedPrecondition, Unavailable
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.threads import run_on_threads


def encode(seq: int) -> bytes:
    return pubsub.PubsubMessage(data=b"x", message_id=str(seq)).SerializeToString()


def subscribe(core: SharedChannelCore) -> None:
    request = channels.CommandsRequest(subscriber_id="one", batch_no=1, replace=True)
    request.commands.add(channel="c", subscribe=True)
    core.commands(request)


def test_a_channel_subscriber_with_a_waiting_poll_takes_little_memory() -> None:
    """The limit is 1.25 KiB beside the call, also after a message."""
    core, count = SharedChannelCore(), 200
    polls = []
    tracemalloc.start()
    try:
        for number in range(count):
            name = f"subscriber-{number}"
            commands = channels.CommandsRequest(subscriber_id=name, batch_no=1, replace=True)
            commands.commands.add(channel="c", key=name, subscribe=True)
            life = core.commands(commands).incarnation
            core.publish_encoded("c", name, encode)
            poll = channels.PollRequest(subscriber_id=name, incarnation=life)
            core.finish_poll(core.begin_poll(poll, lambda poll: None))
            poll.max_processed_seq = number + 1
            polls.append(core.begin_poll(poll, lambda poll: None))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert core.statistics().parked == count
    assert not any(poll.is_ready for poll in polls)
    assert grown < 1280 * count


def test_channel_messages_published_by_several_threads_get_distinct_sequence_numbers() -> None:
    """The sequence numbers have no gap and no duplicate."""
    core = SharedChannelCore()
    subscribe(core)

    def publish() -> None:
        for _ in range(200):
            core.publish_encoded("c", "a", encode)

    run_on_threads(publish, times=4)
    poll = core.begin_poll(channels.PollRequest(subscriber_id="one"), lambda poll: None)
    response = core.finish_poll(poll).SerializeToString()
    items = channels.PollResponse.FromString(response).items
    assert [item.seq for item in items] == list(range(1, 801))


def test_the_shared_channel_core_removes_a_subscriber_that_has_not_polled_for_too_long() -> None:
    """`on_due` is called when the first subscriber comes."""
    clock, due = ManualClock(), list[float]()
    core = SharedChannelCore(clock=clock)
    core.on_due = due.append
    subscribe(core)
    assert due == [core.next_due()]
    clock.advance(core.longest_poll)
    core.advance()
    assert core.statistics().subscribers == 0


def test_a_closed_channel_core_refuses_all_calls() -> None:
    """Waiting polls end with UNAVAILABLE."""
    core, woken = SharedChannelCore(), threading.Event()
    poll = core.begin_poll(channels.PollRequest(subscriber_id="one"), lambda poll: woken.set())
    core.close()
    core.close()
    assert woken.is_set()
    with pytest.raises(Unavailable):
        core.finish_poll(poll)
    with pytest.raises(Unavailable):
        subscribe(core)
    with pytest.raises(FailedPrecondition):
        core.publish_encoded("c", "a", encode)
    with pytest.raises(FailedPrecondition):
        core.publish_failure("c", "a", "over")
