"""Channels: long polls and the messages they return (C0.9 to C0.18)."""

from __future__ import annotations

import threading

from pullstream import ChannelMessage, ChannelSubscriber
from pullstream_emulator import Emulator
from pullstream_protocol.messages import channels_pb2 as channels
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

from .channel_peers import (
    BILLS,
    ORDERS,
    BareSubscriber,
    Heard,
    Recorder,
    data_of,
    statistics,
)


def test_a_listener_has_one_open_poll_for_any_number_of_channel_keys_c0_9(
    broker: Emulator, listener: ChannelSubscriber, recorder: Recorder
) -> None:
    """The client polls again after each answer, while it has at least one subscription."""
    heard = Heard()
    assert recorder.polls == []
    for key in "abcde":
        heard.subscribe(listener, ORDERS, key)
    heard.subscribe(listener, BILLS)
    for key in "abc":
        broker.publish(ORDERS, key, ordering_key=key)
        eventually(lambda key=key: heard.data[-1:] == [key])  # type: ignore[misc]
    eventually(lambda: recorder.polls_open == 1)
    assert recorder.most_polls == 1


def test_a_listener_without_channel_subscriptions_has_no_open_poll_c0_9(
    broker: Emulator, listener: ChannelSubscriber, recorder: Recorder
) -> None:
    """The open poll is cancelled. The next subscription starts a poll again."""
    heard = Heard()
    heard.subscribe(listener, ORDERS, "a")
    eventually(lambda: recorder.polls_open == 1)
    listener.unsubscribe(ORDERS, "a")
    eventually(lambda: recorder.polls_open == 0)
    eventually(lambda: statistics(broker).interests == 0)
    heard.subscribe(listener, ORDERS, "b")
    broker.publish(ORDERS, "x", ordering_key="b")
    heard.wait_for("x")


def test_messages_of_all_channels_reach_a_listener_in_the_order_of_publishing_c0_10(
    broker: Emulator, listener: ChannelSubscriber, recorder: Recorder
) -> None:
    """The order holds over all channels and keys, also for several messages in one answer."""
    held, heard = broker.faults.drop("Poll"), Heard()
    for topic, key in ((ORDERS, "a"), (BILLS, "b"), (ORDERS, None)):
        heard.subscribe(listener, topic, key)
    numbers = [str(number) for number in range(20)]
    for number in numbers:
        broker.publish((ORDERS, BILLS)[int(number) % 2], number, ordering_key="ab"[int(number) % 2])
    held.lift()
    heard.wait_for(*numbers)
    assert len(recorder.polls) <= 2


def test_a_channel_subscription_does_not_receive_earlier_messages_c0_11(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """A subscription begins with the next message.

    This also holds for a second one to the same key.
    """
    heard = Heard()
    broker.publish(ORDERS, "before", ordering_key="a")
    heard.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "after", ordering_key="a")
    heard.wait_for("after")
    listener.unsubscribe(ORDERS, "a")
    eventually(lambda: statistics(broker).interests == 0)
    broker.publish(ORDERS, "between", ordering_key="a")
    heard.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "again", ordering_key="a")
    heard.wait_for("after", "again")


def test_unsubscribing_from_a_channel_key_discards_the_waiting_messages_of_the_key_c0_11(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The next subscription to the same key does not receive it."""
    bare.subscribe(ORDERS, "a", "b")
    broker.publish(ORDERS, "for a", ordering_key="a")
    broker.publish(ORDERS, "for b", ordering_key="b")
    bare.unsubscribe(ORDERS, "a")
    bare.subscribe(ORDERS, "a")
    assert data_of(bare.poll()) == ["for b"]


def test_a_channel_poll_returns_waiting_messages_or_waits_for_the_next_message_c0_12(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """Messages of other keys do not end its wait."""
    bare.subscribe(ORDERS, "a")
    broker.publish(ORDERS, "1", ordering_key="a")
    (first,) = bare.poll()
    poll = bare.begin_poll(first.seq)
    eventually(lambda: statistics(broker).parked == 1)
    broker.publish(ORDERS, "other", ordering_key="b")
    assert not poll.done()
    broker.publish(ORDERS, "2", ordering_key="a")
    assert data_of(poll.result().items) == ["2"]


def test_an_idle_channel_poll_gets_an_empty_answer_before_its_deadline_c0_12(
    broker: Emulator, bare: BareSubscriber, early_answers: float
) -> None:
    """The answer is empty. It shows the caller that the publisher is alive."""
    bare.subscribe(ORDERS, "a")
    assert list(bare.begin_poll(timeout=early_answers + 0.5).result().items) == []
    assert statistics(broker).parked == 0


def test_a_channel_poll_before_the_first_command_creates_the_session_of_the_commands_c0_13(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The poll and the later commands use the same session."""
    poll = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    response = bare.subscribe(ORDERS, "a")
    broker.publish(ORDERS, "x", ordering_key="a")
    assert data_of(poll.result().items) == ["x"]
    assert poll.result().incarnation == response.incarnation
    assert statistics(broker).subscribers == 1


def test_a_channel_message_reaches_subscribers_of_its_key_and_of_its_channel_c0_14(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """No other subscriber receives it."""
    of_key, of_channel, of_another = Heard(), Heard(), Heard()
    of_key.subscribe(listener, ORDERS, "a")
    of_another.subscribe(listener, BILLS, "a")
    bare = BareSubscriber(broker.endpoint)
    bare.subscribe(ORDERS, None)
    of_channel.subscribe(listener, BILLS)
    for topic, key in ((ORDERS, "a"), (ORDERS, "b"), (BILLS, "b"), (BILLS, "a"), (BILLS, "")):
        broker.publish(topic, f"{topic[-6:]} {key}", ordering_key=key)
    of_channel.wait_for("/bills b", "/bills ")
    assert of_key.data == ["orders a"]
    assert of_another.data == ["/bills a"]
    assert data_of(bare.poll()) == ["orders a", "orders b"]
    bare.close()


def test_a_subscriber_to_a_channel_and_to_one_of_its_keys_gets_each_message_once_c0_14(
    broker: Emulator, listener: ChannelSubscriber, bare: BareSubscriber
) -> None:
    """The callback of the key receives it.

    Without a subscription to the key, the channel's callback does.
    """
    of_key, of_channel = Heard(), Heard()
    of_channel.subscribe(listener, ORDERS)
    of_key.subscribe(listener, ORDERS, "a")
    bare.command((ORDERS, "a"), (ORDERS, None), subscribe=True)
    broker.publish(ORDERS, "1", ordering_key="a")
    of_key.wait_for("1")
    assert data_of(bare.poll()) == ["1"]
    listener.unsubscribe(ORDERS, "a")
    eventually(lambda: statistics(broker).interests == 2)
    broker.publish(ORDERS, "2", ordering_key="a")
    of_channel.wait_for("2")
    assert of_key.data == ["1"]


def test_publishing_to_a_channel_without_subscribers_stores_no_data_in_the_publisher_c0_15(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The publisher keeps no messages, and no data about keys without subscribers."""
    broker.publish(ORDERS, "x", ordering_key="a")
    assert (statistics(broker).waiting, statistics(broker).interests) == (0, 0)
    bare.subscribe(ORDERS, "a", "b", None)
    broker.publish(ORDERS, "y", ordering_key="a")
    assert (statistics(broker).waiting, statistics(broker).interests) == (1, 3)
    bare.unsubscribe(ORDERS, "a", "b", None)
    left = statistics(broker)
    assert (left.waiting, left.waiting_bytes, left.interests) == (0, 0, 0)


def test_a_channel_poll_returns_at_most_the_requested_number_of_messages_c0_16(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The next poll returns the rest.

    Limits are by count and by bytes; at least one message is returned.
    """
    bare.subscribe(ORDERS, None)
    for number in range(10):
        broker.publish(ORDERS, str(number) * 1000)
    by_count = bare.poll(max_messages=5)
    assert len(by_count) == 5
    by_bytes = bare.poll(by_count[-1].seq, max_bytes=3500)
    assert [item.seq for item in by_bytes] == [6, 7, 8]
    (at_least,) = bare.poll(8, max_bytes=1)
    assert at_least.seq == 9


def test_a_channel_poll_answer_stays_below_the_grpc_message_size_limit_of_clients_c0_16(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The defaults are 5,000 messages and 4 MB."""
    bare.subscribe(ORDERS, None)
    for _ in range(3):
        broker.publish(ORDERS, b"x" * 1_500_000)
    large = bare.begin_poll().result()
    assert len(large.items) == 2
    assert large.ByteSize() < 4 * 1024 * 1024
    assert len(bare.poll(large.items[-1].seq)) == 1


def test_a_second_poll_of_a_channel_subscriber_ends_the_first_with_an_empty_answer_c0_17(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The first poll gets an empty answer. The second one gets the next message."""
    bare.subscribe(ORDERS, "a")
    first = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    second = bare.begin_poll()
    answer: channels.PollResponse = first.result()
    assert (list(answer.items), answer.incarnation) == ([], bare.incarnation)
    broker.publish(ORDERS, "x", ordering_key="a")
    assert data_of(second.result().items) == ["x"]


def test_no_channel_message_reaches_a_callback_after_its_subscription_was_ended_c0_18(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """A message that waits for the callback of the previous one is dropped, too."""
    running, go_on, heard = threading.Event(), threading.Event(), []

    def slow(message: ChannelMessage) -> None:
        heard.append(message.data)
        running.set()
        assert go_on.wait(TIMEOUT)

    later = Heard()
    listener.subscribe(ORDERS, "a", on_message=slow)
    later.subscribe(listener, ORDERS, "b")
    broker.publish(ORDERS, "1", ordering_key="a")
    assert running.wait(TIMEOUT)
    broker.publish(ORDERS, "2", ordering_key="a")
    # The next poll has acknowledged the message.
    eventually(lambda: statistics(broker).waiting == 0 and statistics(broker).parked == 1)
    listener.unsubscribe(ORDERS, "a")
    go_on.set()
    broker.publish(ORDERS, "3", ordering_key="b")
    later.wait_for("3")
    assert heard == [b"1"]


def test_a_channel_callback_may_end_its_own_and_other_subscriptions_c0_18(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """A callback may end its own and other subscriptions.

    The remaining messages of the answer are dropped.
    """
    held, heard, other, last = broker.faults.drop("Poll"), [], Heard(), Heard()

    def once(message: ChannelMessage) -> None:
        heard.append(message.data)
        listener.unsubscribe(ORDERS, "a")
        listener.unsubscribe(ORDERS, "b")

    listener.subscribe(ORDERS, "a", on_message=once)
    other.subscribe(listener, ORDERS, "b")
    last.subscribe(listener, ORDERS, "c")
    for key in "aabc":
        broker.publish(ORDERS, key, ordering_key=key)
    held.lift()
    last.wait_for("c")
    assert (heard, other.data) == ([b"a"], [])
    eventually(lambda: statistics(broker).interests == 1)
