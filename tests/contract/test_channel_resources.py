"""Channels: resource use, limits, and publishers outside the broker (C0.32 to C0.34)."""

from __future__ import annotations

import threading
import tracemalloc

import pytest

from pullstream import ChannelLimits, ChannelPublisher, Dropped, SubscriberClient
from pullstream.listen.events import ListenEvent
from pullstream_emulator import Emulator
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument
from tests.subscriber.streaming.fakes import eventually

from .channel_peers import ORDERS, BareSubscriber, Heard, data_of, statistics
from .channel_servers import served, served_on_a_loop


def test_a_listener_with_ten_thousand_channel_keys_has_one_waiting_poll_c0_32(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The call costs as much as with one key, and less than 64 KiB."""
    keys = [f"key-{number}" for number in range(10_000)]
    bare.subscribe(ORDERS, *keys)
    bare.poll(max_messages=1, incarnation=1)
    tracemalloc.start()
    try:
        poll = bare.begin_poll()
        eventually(lambda: statistics(broker).parked == 1)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert statistics(broker).interests == 10_000
    assert grown < 64 * 1024
    broker.publish(ORDERS, "x", ordering_key=keys[-1])
    assert data_of(poll.result().items) == ["x"]


@pytest.mark.parametrize(
    ("interest", "keys"), [("a", "aaa"), (None, "aaa"), (None, "abc")], ids=["key", "all", "keys"]
)
def test_a_full_channel_mailbox_drops_its_oldest_message_and_reports_a_gap_c0_33(
    interest: str | None, keys: str
) -> None:
    """Of three messages of 4,000 bytes two fit, independent of their keys."""
    publisher = ChannelPublisher(limits=ChannelLimits(mailbox_bytes=10_000))
    with served(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", interest)
        for number, key in enumerate(keys):
            publisher.publish("c", key, str(number) * 4000)
        dropped, *kept = bare.poll()
        assert (dropped.dropped, dropped.seq) == (1, 1)
        assert [data[0] for data in data_of(kept)] == ["1", "2"]
        # The report is repeated until the subscriber has acknowledged it.
        assert bare.poll()[0].dropped == 1
        publisher.publish("c", "a", b"3")
        assert data_of(bare.poll(3)) == ["3"]
        bare.close()


def test_a_publisher_refuses_a_channel_message_larger_than_a_subscribers_mailbox_c0_33() -> None:
    publisher = ChannelPublisher(limits=ChannelLimits(mailbox_bytes=10_000))
    with served(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        with pytest.raises(InvalidArgument, match=r"^400 message_size: .* 10000 bytes"):
            publisher.publish("c", "a", b"x" * 10_000)
        assert publisher.publish("c", "a", b"small") == 1
        assert data_of(bare.poll()) == ["small"]
        bare.close()


def test_a_channel_listener_receives_a_gap_in_place_of_dropped_messages_c0_33(
    broker: Emulator,
) -> None:
    """The report comes at the position of the dropped messages."""
    publisher = ChannelPublisher(limits=ChannelLimits(mailbox_items=2))
    events: list[ListenEvent | str] = []
    running, go_on = threading.Event(), threading.Event()

    def hear(data: str) -> None:
        events.append(data)
        running.set()
        assert go_on.wait(20)

    with served(publisher) as endpoint, SubscriberClient(endpoint=endpoint) as client:
        listener = client.listen(events.append)
        done = threading.Event()
        listener.subscribe(
            "c",
            on_message=lambda message: hear(message.data.decode()),
            on_done=lambda error: done.set(),
        )
        assert done.wait(20)
        publisher.publish("c", None, b"0")
        assert running.wait(20)
        # While the callback runs, the client accepts two more answers and then stops polling.
        sent = 1
        while publisher.statistics().dropped < 3:
            publisher.publish("c", None, str(sent))
            sent += 1
            eventually(
                lambda: publisher.statistics().parked == 1 or publisher.statistics().waiting > 0
            )
        dropped = publisher.statistics().dropped
        go_on.set()
        eventually(lambda: events[-1:] == [str(sent - 1)])
    lost = [event for event in events if isinstance(event, Dropped)]
    heard = [int(event) for event in events if isinstance(event, str)]
    assert sum(event.count for event in lost) + len(heard) == sent
    assert sum(event.count for event in lost) <= dropped
    assert heard == sorted(heard)


def test_a_channel_publisher_runs_on_any_grpc_server_c0_34() -> None:
    """A publisher can run on any gRPC server, with channels that are not declared anywhere."""
    publisher = ChannelPublisher()
    with served(publisher) as endpoint, SubscriberClient(endpoint=endpoint) as client:
        heard = Heard()
        heard.subscribe(client.listen(), "jobs", "7")
        assert publisher.publish("jobs", "8", b"not for us") == 0
        assert publisher.publish("jobs", "7", b"done", state="well") == 1
        heard.wait_for("done")
        (message,) = heard.messages
        assert (message.channel, message.key, message.message_id) == ("jobs", "7", "2")
        assert dict(message.attributes) == {"state": "well"}
        assert publisher.publish_failure("jobs", "7", "over") == 1
        eventually(lambda: len(heard.failures) == 1)
    with pytest.raises(FailedPrecondition):
        publisher.publish("jobs", "7", b"too late")


def test_a_channel_publisher_runs_on_an_asyncio_grpc_server_c0_34() -> None:
    """Any thread may publish."""
    publisher = ChannelPublisher(channels={"jobs"})
    with served_on_a_loop(publisher) as endpoint, SubscriberClient(endpoint=endpoint) as client:
        listener, heard = client.listen(), Heard()
        heard.subscribe(listener, "jobs", "7")
        heard.subscribe(listener, "unknown")
        assert [type(error) for error in heard.failures] == [InvalidArgument]
        with pytest.raises(InvalidArgument):
            publisher.publish("unknown", "7", b"x")
        publisher.publish("jobs", "7", "over the loop")
        heard.wait_for("over the loop")
        publisher.close()
        assert publisher.statistics().subscribers == 0
