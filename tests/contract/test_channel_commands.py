"""Channels: the way of subscribe and unsubscribe commands to the publisher (C0.1 to C0.8)."""

from __future__ import annotations

import grpc
import pytest

from pullstream import ChannelSubscriber, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.errors import InvalidArgument, Unavailable
from tests.subscriber.streaming.fakes import eventually

from .channel_peers import BILLS, ORDERS, BareSubscriber, Heard, Recorder, data_of, statistics


def test_a_channel_command_applies_to_the_given_key_or_to_every_key_of_the_channel_c0_1(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """A command without a key applies to every key of the channel."""
    bare.subscribe(ORDERS, "a")
    bare.subscribe(BILLS, None)
    for topic, key in ((ORDERS, "a"), (ORDERS, "b"), (BILLS, "b"), (BILLS, "")):
        broker.publish(topic, f"{topic[-6:]} {key}", ordering_key=key)
    assert data_of(bare.poll()) == ["orders a", "/bills b", "/bills "]
    bare.unsubscribe(BILLS, None)
    assert statistics(broker).interests == 1


def test_channel_commands_reach_the_publisher_in_the_order_of_the_calls_c0_2(
    listener: ChannelSubscriber, recorder: Recorder
) -> None:
    """The order holds across batches."""
    calls = [("a", True), ("b", True), ("a", False), ("c", True), ("b", False), ("a", True)]
    heard = Heard()
    for key, subscribe in calls:
        if subscribe:
            heard.subscribe(listener, ORDERS, key, wait=False)
        else:
            listener.unsubscribe(ORDERS, key)
    eventually(lambda: len(heard.done) == 4)
    assert [command for batch in recorder.commands() for command in batch] == calls


def test_a_listener_sends_a_channel_command_batch_once_the_previous_one_is_answered_c0_3(
    broker: Emulator, client: SubscriberClient, recorder: Recorder
) -> None:
    """Later commands wait for the answer, however long it takes."""
    held = broker.faults.drop("Commands")
    listener, heard = client.listen(max_batch=3), Heard()
    heard.subscribe(listener, ORDERS, "0", wait=False)
    held.wait_for_hits()
    for number in range(1, 8):
        heard.subscribe(listener, ORDERS, str(number), wait=False)
    assert len(recorder.batches) == 1
    held.lift()
    eventually(lambda: len(heard.done) == 8)
    assert recorder.most_batches == 1


def test_a_listener_sends_its_first_channel_command_at_once_and_then_batches_c0_4(
    broker: Emulator, client: SubscriberClient, recorder: Recorder
) -> None:
    """The first command is sent at once.

    The others follow in order, in batches of the largest size.
    """
    held = broker.faults.drop("Commands")
    listener, heard = client.listen(max_batch=3), Heard()
    for number in range(6):
        heard.subscribe(listener, ORDERS, str(number), wait=False)
    held.wait_for_hits()
    held.lift()
    eventually(lambda: len(heard.done) == 6)
    sent = [[key for key, _ in batch] for batch in recorder.commands()]
    assert sent == [["0"], ["1", "2", "3"], ["4", "5"]]


def test_the_last_channel_command_for_a_key_takes_effect_even_if_replies_are_lost_c0_5(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """Both sides apply the last command. A repeated command changes nothing."""
    broker.faults.lose_reply("Commands", times=3)
    heard = Heard()
    for _ in range(3):
        heard.subscribe(listener, ORDERS, "a", wait=False)
        listener.unsubscribe(ORDERS, "a")
        heard.subscribe(listener, ORDERS, "b", wait=False)
    eventually(lambda: len(heard.done) == 4)
    eventually(lambda: statistics(broker).interests == 1)
    broker.publish(ORDERS, "no", ordering_key="a")
    broker.publish(ORDERS, "yes", ordering_key="b")
    heard.wait_for("yes")
    assert (listener.is_subscribed(ORDERS, "a"), listener.is_subscribed(ORDERS, "b")) == (
        False,
        True,
    )


def test_a_publisher_does_not_apply_a_late_duplicate_of_a_channel_command_batch_c0_5(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The publisher recognises it by its batch number.

    This also holds for a batch that replaces all.
    """
    first = bare.subscribe(ORDERS, "a")
    bare.unsubscribe(ORDERS, "a")
    late = bare.subscribe(ORDERS, "a", batch_no=1, replace=True)
    assert (late.applied, late.incarnation) == (True, first.incarnation)
    assert statistics(broker).interests == 0


def test_repeated_subscribe_and_unsubscribe_commands_of_a_channel_are_idempotent_c0_5(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """A second subscribe delivers each message once.

    An unsubscribe without a subscription is harmless.
    """
    bare.subscribe(ORDERS, "a")
    bare.subscribe(ORDERS, "a", "a")
    bare.unsubscribe(ORDERS, "b", None)
    bare.unsubscribe("no such channel", "b")
    broker.publish(ORDERS, "once", ordering_key="a")
    assert data_of(bare.poll()) == ["once"]
    bare.unsubscribe(ORDERS, "a")
    assert statistics(broker).interests == 0


def test_the_done_callback_of_a_channel_subscribe_runs_once_on_the_publishers_answer_c0_6(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """The callback runs once for each subscribe, and not before the batch is answered."""
    held = broker.faults.drop("Commands")
    heard = Heard()
    heard.subscribe(listener, ORDERS, "a", wait=False)
    held.wait_for_hits()
    assert heard.done == []
    held.lift()
    eventually(lambda: heard.done == [None])


def test_the_done_callback_of_a_channel_subscribe_gets_the_error_of_its_command_batch_c0_6(
    broker: Emulator, client: SubscriberClient
) -> None:
    """The callback runs when the time for retries is over, with the error of the last attempt."""
    broker.faults.error("Commands", Unavailable("not today"))
    heard = Heard()
    heard.subscribe(client.listen(give_up_after=0.2), ORDERS, "a")
    assert [type(error) for error in heard.done] == [Unavailable]


def test_channel_subscribe_and_unsubscribe_take_effect_locally_before_the_answer_c0_7(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """The client applies it before the publisher knows.

    The return value says whether it changed anything.
    """
    broker.faults.drop("Commands")
    heard = Heard()
    assert not listener.is_subscribed(ORDERS, "a")
    assert not listener.unsubscribe(ORDERS, "a")
    assert heard.subscribe(listener, ORDERS, "a", wait=False)
    assert listener.is_subscribed(ORDERS, "a")
    assert not listener.is_subscribed(ORDERS)
    assert not heard.subscribe(listener, ORDERS, "a", wait=False)
    assert listener.unsubscribe(ORDERS, "a")
    assert not listener.is_subscribed(ORDERS, "a")


def test_a_publisher_applies_no_command_of_a_batch_with_an_unknown_channel_c0_8(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The publisher refuses the whole batch and applies no part of it."""
    bare.subscribe(ORDERS, "a")
    with pytest.raises(grpc.RpcError) as refused:
        bare.command((ORDERS, "b"), ("nothing", "a"), subscribe=True)
    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "channel: the channel 'nothing' does not exist."
    assert statistics(broker).interests == 1


def test_a_subscription_to_an_unknown_channel_fails_and_others_of_its_batch_succeed_c0_8(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """The other subscriptions of the same batch are accepted."""
    good, bad = Heard(), Heard()
    for number in range(10):
        good.subscribe(listener, ORDERS, str(number), wait=False)
        if number == 4:
            bad.subscribe(listener, "nothing", "a", wait=False)
    eventually(lambda: len(good.done) == 10)
    eventually(lambda: len(bad.failures) == 1)
    assert good.done == [None] * 10
    assert [type(error) for error in (*bad.done, *bad.failures)] == [InvalidArgument] * 2
    assert not listener.is_subscribed("nothing", "a")
    assert statistics(broker).interests == 10
