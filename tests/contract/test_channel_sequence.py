"""Channels: sequence numbers, repeated delivery, and lives of a session (C0.19 to C0.24)."""

from __future__ import annotations

from pullstream import Reset, SubscriberClient
from pullstream.listen.events import ListenEvent
from pullstream.listen.session import ListenSession, ListenSettings
from pullstream.listen.subscription import Arrived, ChannelSubscription
from pullstream_emulator import Emulator
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import eventually

from .channel_peers import BILLS, ORDERS, BareSubscriber, Heard, data_of, statistics


def test_messages_of_all_channels_and_keys_share_one_sequence_of_numbers_c0_19(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """Numbers are shared by all channels and keys, so a subscriber sees holes."""
    other = BareSubscriber(broker.endpoint, "other")
    broker.publish(BILLS, "to nobody")
    other.subscribe(BILLS, "a")
    bare.subscribe(ORDERS, "a")
    for topic, key in ((ORDERS, "a"), (ORDERS, "b"), (BILLS, "a"), (ORDERS, "a"), (BILLS, "a")):
        broker.publish(topic, "x", ordering_key=key)
    assert [item.seq for item in bare.poll()] == [2, 5]
    assert [item.seq for item in other.poll()] == [4, 6]
    other.close()


def test_a_retried_channel_poll_returns_the_same_messages_and_newer_ones_c0_20(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The answer also has the messages that were published since."""
    bare.subscribe(ORDERS, "a")
    broker.publish(ORDERS, "1", ordering_key="a")
    broker.faults.lose_reply("Poll", times=1)
    assert bare.begin_poll().exception() is not None
    broker.publish(ORDERS, "2", ordering_key="a")
    assert data_of(bare.poll()) == ["1", "2"]


def test_a_publisher_keeps_a_channel_message_until_a_poll_acknowledges_the_message_c0_21(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """A poll acknowledges a message by quoting its number. Sending the message is not enough."""
    bare.subscribe(ORDERS, None)
    for number in range(3):
        broker.publish(ORDERS, str(number))
    assert data_of(bare.poll()) == ["0", "1", "2"]
    assert statistics(broker).waiting == 3
    assert data_of(bare.poll(1)) == ["1", "2"]
    assert statistics(broker).waiting == 2
    poll = bare.begin_poll(3)
    eventually(lambda: statistics(broker).waiting == 0)
    poll.cancel()


def test_a_redelivered_channel_message_reaches_the_callback_once_c0_22(
    broker: Emulator, client: SubscriberClient
) -> None:
    """The next poll quotes the last number that was received."""
    listener, heard = client.listen(), Heard()
    heard.subscribe(listener, ORDERS, "a")
    lost = broker.faults.lose_reply("Poll", times=1)
    broker.publish(ORDERS, "1", ordering_key="a")
    lost.wait_for_hits()
    broker.publish(ORDERS, "2", ordering_key="a")
    heard.wait_for("1", "2")
    eventually(lambda: statistics(broker).waiting == 0)
    broker.publish(ORDERS, "3", ordering_key="a")
    heard.wait_for("1", "2", "3")


def test_a_listener_drops_channel_messages_that_arrive_out_of_order_c0_22() -> None:
    """Of 1, 2, 1, 2 the second pair is dropped, of 4, 3 the 3. The next poll acknowledges 4."""
    link = ListenSession(ListenSettings(), new_id=lambda: "s")
    link.subscribe(ChannelSubscription(ORDERS, "a", on_message=print))
    told = []
    for numbers in ((1, 2), (1, 2), (4, 3)):
        told += [item.seq for item in polled(link, *numbers)]
    assert told == [1, 2, 4]
    upcoming = link.next_poll(0.0)
    assert upcoming is not None
    assert upcoming[1].max_processed_seq == 4


def test_a_channel_poll_with_a_former_publisher_incarnation_acknowledges_no_message_c0_23(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The poll is answered at once, so that its caller learns the present incarnation."""
    bare.subscribe(ORDERS, "a")
    stranger = bare.begin_poll(100, incarnation=bare.incarnation ^ 1).result()
    assert (list(stranger.items), stranger.incarnation) == ([], bare.incarnation)
    broker.publish(ORDERS, "1", ordering_key="a")
    answer = bare.begin_poll(100, incarnation=bare.incarnation ^ 1).result()
    assert data_of(answer.items) == ["1"]
    assert data_of(bare.poll(0)) == ["1"]
    poll = bare.begin_poll(1)
    eventually(lambda: statistics(broker).waiting == 0)
    poll.cancel()


def test_a_publisher_ignores_channel_commands_sent_to_its_former_incarnation_c0_23(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """A batch that replaces all subscriptions is applied in any incarnation."""
    bare.subscribe(ORDERS, "a")
    present = bare.incarnation
    answer = bare.subscribe(ORDERS, "b", incarnation=present ^ 1)
    assert (answer.applied, answer.incarnation) == (False, present)
    assert statistics(broker).interests == 1
    answer = bare.subscribe(ORDERS, "b", "c", incarnation=present ^ 1, replace=True)
    assert (answer.applied, answer.incarnation) == (True, present)
    broker.publish(ORDERS, "1", ordering_key="a")
    broker.publish(ORDERS, "2", ordering_key="b")
    assert data_of(bare.poll()) == ["2"]


def test_channel_sequence_numbers_restart_at_one_in_a_new_publisher_incarnation_c0_23() -> None:
    """The message that has number 1 now is a new one, and is delivered."""
    link = ListenSession(ListenSettings(), new_id=lambda: "s")
    link.subscribe(ChannelSubscription(ORDERS, "a", on_message=print))
    assert [item.seq for item in polled(link, 1, 2)] == [1, 2]
    assert [item.seq for item in polled(link, 1, incarnation=8)] == [1]


def test_a_channel_listener_subscribes_again_after_a_publisher_restart_c0_24(
    broker: Emulator, client: SubscriberClient
) -> None:
    """The listener is notified, and receives messages again."""
    events: list[ListenEvent] = []
    listener, heard = client.listen(events.append), Heard()
    for key in ("a", "b", None):
        heard.subscribe(listener, ORDERS, key)
    broker.stop()
    broker.start()
    eventually(lambda: events == [Reset()])
    eventually(lambda: statistics(broker).interests == 3)
    for key in "abc":
        broker.publish(ORDERS, key, ordering_key=key)
    heard.wait_for("a", "b", "c")
    assert heard.failures == []
    assert len(heard.done) == 3


def test_every_channel_subscription_fails_when_the_broker_is_reset_c0_24(
    broker: Emulator, client: SubscriberClient
) -> None:
    """The reset deletes the topic, so each subscription fails."""
    listener, heard = client.listen(), Heard()
    heard.subscribe(listener, ORDERS, "a")
    # The first poll is sent at the same time as the commands and may arrive later. If it arrived
    # after the reset without a known life, it would look like a new subscriber.
    eventually(lambda: statistics(broker).parked == 1)
    broker.reset()
    eventually(lambda: len(heard.failures) == 1)
    assert not listener.is_subscribed(ORDERS, "a")


def polled(
    link: ListenSession, *numbers: int, incarnation: int = 7
) -> list[channels.PollResponse.Item]:
    """Return the notices of a session for an answer with messages of these numbers."""
    upcoming = link.next_poll(0.0)
    assert upcoming is not None
    token, request = upcoming
    message = pubsub.PubsubMessage(data=b"x")
    items = [
        channels.PollResponse.Item(seq=number, channel=ORDERS, key="a", message=message)
        for number in numbers
    ]
    response = channels.PollResponse(incarnation=incarnation, items=items)
    told = link.poll_answered(token, request.incarnation, response)
    return [notice.item for notice in told if isinstance(notice, Arrived)]
