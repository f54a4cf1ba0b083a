"""ChannelPublisher: publishing from any thread, and timers on its clock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from pullstream_protocol.channels import ChannelPublisher
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, Unavailable
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.threads import run_on_threads


def subscribe(publisher: ChannelPublisher, key: str | None = None) -> None:
    request = channels.CommandsRequest(subscriber_id="one", batch_no=1, replace=True)
    request.commands.add(channel="c", key=key, subscribe=True)
    publisher._core.commands(request)


def items(publisher: ChannelPublisher) -> list[channels.PollResponse.Item]:
    poll = publisher._core.begin_poll(channels.PollRequest(subscriber_id="one"), lambda poll: None)
    encoded = publisher._core.finish_poll(poll).SerializeToString()
    return list(channels.PollResponse.FromString(encoded).items)


def test_threads_may_publish_to_a_channel_at_the_same_time() -> None:
    """Each message has its own number."""
    publisher = ChannelPublisher()
    subscribe(publisher)

    def publish() -> None:
        for _ in range(200):
            publisher.publish("c", "a", b"x")

    run_on_threads(publish, times=4)
    assert [item.seq for item in items(publisher)] == list(range(1, 801))


def test_missing_fields_of_a_published_channel_message_are_set_by_the_publisher() -> None:
    """Missing fields are added to a copy. The caller's message is unchanged."""
    publisher = ChannelPublisher(clock=ManualClock(start=1_000.5))
    subscribe(publisher)
    whole = pubsub.PubsubMessage(data=b"x", message_id="mine", ordering_key="k")
    publisher.publish("c", None, whole)
    publisher.publish("c", "b", "text", color="red")
    first, second = (item.message for item in items(publisher))
    assert (first.message_id, first.ordering_key) == ("mine", "k")
    assert not whole.HasField("publish_time")
    assert (second.message_id, second.ordering_key, second.data) == ("2", "b", b"text")
    assert dict(second.attributes) == {"color": "red"}
    assert second.publish_time.ToMilliseconds() == 1_000_500


def test_publishing_a_whole_channel_message_together_with_attributes_is_refused() -> None:
    with pytest.raises(TypeError, match="attributes"):
        ChannelPublisher().publish("c", "a", pubsub.PubsubMessage(), color="red")


def test_a_channel_message_with_a_too_long_key_is_refused() -> None:
    """The key may be in the message or in the argument."""
    publisher, key = ChannelPublisher(), "k" * 1025
    for message in (b"x", pubsub.PubsubMessage(ordering_key=key)):
        with pytest.raises(InvalidArgument, match=r"^400 key: "):
            publisher.publish("c", key if isinstance(message, bytes) else None, message)


def test_a_channel_publisher_removes_subscribers_that_have_stopped_polling() -> None:
    """A thread removes the subscribers, from `add_to` to `close`."""
    clock = ManualClock()
    publisher = ChannelPublisher(clock=clock)
    server = grpc.server(ThreadPoolExecutor(1))
    publisher.add_to(server)
    subscribe(publisher)
    clock.advance(300)
    assert publisher.statistics().subscribers == 0
    publisher.close()
    publisher.close()
    server.stop(None).wait()
    left = {thread.name for thread in threading.enumerate()}
    assert not left & {"pullstream-channel-expiry", "pullstream-answers"}


def test_a_closed_channel_publisher_refuses_all_calls() -> None:
    """Waiting polls end, so that their clients look for another publisher."""
    publisher = ChannelPublisher()
    woken = threading.Event()
    poll = publisher._core.begin_poll(
        channels.PollRequest(subscriber_id="one"), lambda poll: woken.set()
    )
    publisher.close()
    assert woken.is_set()
    with pytest.raises(Unavailable):
        publisher._core.finish_poll(poll)
    with pytest.raises(Unavailable):
        subscribe(publisher)
    with pytest.raises(FailedPrecondition):
        publisher.publish_failure("c", "a", "over")
