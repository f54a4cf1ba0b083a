"""Channels: how peers that have disappeared are detected (C0.25 to C0.31)."""

from __future__ import annotations

from pullstream import ChannelFailure, ChannelSubscriber, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import PullstreamError, Unavailable
from pullstream_protocol.messages import channels_pb2 as channels
from tests.subscriber.streaming.fakes import eventually

from .channel_peers import BILLS, ORDERS, BareSubscriber, Heard, Recorder, data_of, statistics

TIMEOUT, SWEEP = 300.0, 30.0


def test_a_channel_subscriber_without_calls_is_inactive_after_exactly_the_timeout_c0_25(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """A subscriber becomes inactive after exactly the timeout, not a moment earlier."""
    bare.subscribe(ORDERS, "a")
    clock.advance(TIMEOUT - SWEEP / 2)
    assert statistics(broker).subscribers == 1
    clock.advance(SWEEP / 2)
    # The previous sweep came too early for this subscriber.
    clock.advance(SWEEP)
    assert statistics(broker).subscribers == 0


def test_polls_and_commands_reset_the_inactivity_timeout_of_a_channel_subscriber_c0_25(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """A subscriber that is slow to send its first poll is not forgotten."""
    bare.subscribe(ORDERS, "a")
    clock.advance(200)
    bare.subscribe(ORDERS, "b")
    clock.advance(200)
    poll = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    clock.advance(200)
    broker.publish(ORDERS, "x", ordering_key="a")
    assert data_of(poll.result().items) == ["x"]
    clock.advance(200)
    assert statistics(broker).subscribers == 1


def test_the_open_poll_of_an_inactive_channel_subscriber_gets_an_empty_answer_c0_26(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """The answer is empty. A subscriber that polls again stays."""
    bare.subscribe(ORDERS, "a")
    poll = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    clock.advance(TIMEOUT - 1)
    assert not poll.done()
    clock.advance(SWEEP)
    answer: channels.PollResponse = poll.result()
    assert (list(answer.items), answer.incarnation) == ([], bare.incarnation)
    poll = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    clock.advance(TIMEOUT - SWEEP)
    broker.publish(ORDERS, "x", ordering_key="a")
    assert data_of(poll.result().items) == ["x"]


def test_a_publisher_removes_an_inactive_channel_subscriber_that_does_not_poll_again_c0_27(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """All its state is removed."""
    bare.subscribe(ORDERS, "a", None)
    poll = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    clock.advance(TIMEOUT + SWEEP)
    poll.result()
    broker.publish(ORDERS, "x", ordering_key="a")
    assert statistics(broker).waiting == 1
    clock.advance(TIMEOUT + SWEEP)
    left = statistics(broker)
    assert (left.subscribers, left.interests, left.waiting, left.parked) == (0, 0, 0, 0)


def test_the_poll_of_an_idle_channel_subscriber_is_answered_every_300_to_330_seconds_c0_28(
    clock: ManualClock, broker: Emulator, listener: ChannelSubscriber, recorder: Recorder
) -> None:
    """A subscriber that polls is never removed, however long nothing is published."""
    heard = Heard()
    heard.subscribe(listener, ORDERS, "a")
    eventually(lambda: recorder.polls_open == 1)
    for _ in range(3):
        polls = len(recorder.polls)
        clock.advance(TIMEOUT - SWEEP)
        assert len(recorder.polls) == polls
        clock.advance(2 * SWEEP)
        eventually(lambda polls=polls: len(recorder.polls) == polls + 1)  # type: ignore[misc]
        eventually(lambda: statistics(broker).parked == 1)
    broker.publish(ORDERS, "x", ordering_key="a")
    heard.wait_for("x")


def test_a_channel_subscriber_that_dies_polling_is_removed_after_600_to_660_seconds_c0_28(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """A subscriber without an open poll is forgotten after 300 to 330 seconds."""
    died = BareSubscriber(broker.endpoint, "died")
    died.subscribe(ORDERS, "a")
    poll = died.begin_poll()
    bare.subscribe(ORDERS, "a")
    eventually(lambda: statistics(broker).parked == 1)
    for seconds in range(30, 331, 30):
        clock.advance(30)
        assert statistics(broker).subscribers == (2 if seconds < TIMEOUT else 1)
    while statistics(broker).subscribers:
        clock.advance(30)
        seconds += 30
    assert 600 <= seconds <= 660
    assert list(poll.result().items) == []
    died.close()


def test_a_publisher_removes_a_channel_subscriber_that_never_polls_c0_29(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    bare.subscribe(ORDERS, "a")
    broker.publish(ORDERS, "x", ordering_key="a")
    clock.advance(TIMEOUT + SWEEP)
    left = statistics(broker)
    assert (left.subscribers, left.interests, left.waiting) == (0, 0, 0)


def test_the_unregister_call_removes_a_channel_subscriber_and_answers_its_open_poll_c0_29(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """The open poll of the subscriber is answered.

    A second goodbye and the goodbye of an unknown caller change nothing.
    """
    bare.subscribe(ORDERS, "a")
    poll = bare.begin_poll()
    eventually(lambda: statistics(broker).parked == 1)
    stranger = BareSubscriber(broker.endpoint, "stranger")
    stranger.unregister()
    assert statistics(broker).subscribers == 1
    bare.unregister()
    assert list(poll.result().items) == []
    bare.unregister()
    left = statistics(broker)
    assert (left.subscribers, left.interests, left.parked) == (0, 0, 0)
    stranger.close()


def test_closing_a_channel_listener_removes_the_listener_from_the_publisher_c0_29(
    broker: Emulator, client: SubscriberClient
) -> None:
    listener = client.listen()
    Heard().subscribe(listener, ORDERS, "a")
    assert listener.close()
    assert statistics(broker).subscribers == 0


def test_each_subscription_to_an_unreachable_channel_publisher_reports_one_failure_c0_30(
    broker: Emulator, client: SubscriberClient
) -> None:
    """Subscriptions to keys and to whole channels end with the error of the last attempt."""
    listener, heard = client.listen(give_up_after=0.3), Heard()
    interests = [(ORDERS, "a"), (ORDERS, "b"), (ORDERS, None), (BILLS, None)]
    for topic, key in interests:
        heard.subscribe(listener, topic, key)
    broker.stop()
    eventually(lambda: len(heard.failures) == 4)
    assert {type(error) for error in heard.failures} == {Unavailable}
    assert not any(listener.is_subscribed(*interest) for interest in interests)
    broker.start()
    again = Heard()
    # Retry until gRPC has noticed that the broker is back.
    while not again.done or again.done[-1] is not None:
        again.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "alive", ordering_key="a")
    again.wait_for("alive")
    assert len(heard.failures) == 4


def test_a_channel_listener_retries_polls_and_commands_that_fail_transiently_c0_30(
    broker: Emulator, client: SubscriberClient
) -> None:
    """Polls and commands are retried, and the application does not notice."""
    listener, heard = client.listen(), Heard()
    broker.faults.error("Commands", Unavailable("a moment"), times=2)
    broker.faults.error("Poll", Unavailable("a moment"), times=2)
    heard.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "x", ordering_key="a")
    heard.wait_for("x")
    assert (heard.failures, heard.done) == ([], [None])


def test_a_listener_does_not_give_up_a_channel_publisher_that_publishes_nothing_c0_30(
    broker: Emulator, client: SubscriberClient, recorder: Recorder, early_answers: float
) -> None:
    """The publisher answers each poll in time, even if it gives up after a very short time."""
    listener = client.listen(poll_timeout=early_answers + 0.3, give_up_after=0.1)
    heard = Heard()
    heard.subscribe(listener, ORDERS, "a")
    eventually(lambda: len(recorder.polls) >= 4)
    broker.publish(ORDERS, "x", ordering_key="a")
    heard.wait_for("x")
    assert heard.failures == []


def test_queued_channel_commands_fail_when_the_listener_gives_up_the_publisher_c0_30(
    broker: Emulator, client: SubscriberClient, recorder: Recorder
) -> None:
    """Callers that wait for an answer get its error, and nothing is sent later."""
    broker.faults.drop("Commands")
    broker.faults.error("Poll", Unavailable("gone"))
    listener, heard = client.listen(give_up_after=0.2), Heard()
    for key in "abc":
        heard.subscribe(listener, ORDERS, key, wait=False)
    eventually(lambda: len(heard.failures) == 3)
    assert [type(error) for error in heard.done] == [Unavailable] * 3
    # The open batch is cancelled. Otherwise it would proceed after the fault is lifted.
    eventually(lambda: recorder.batches_open == 0)
    broker.faults.clear()
    heard.subscribe(listener, ORDERS, "z")
    assert recorder.commands()[-1] == [("z", True)]
    assert statistics(broker).interests == 1


def test_the_failure_callback_of_a_channel_may_end_and_begin_subscriptions_c0_30(
    broker: Emulator, client: SubscriberClient
) -> None:
    listener, heard, again = client.listen(give_up_after=0.2), Heard(), Heard()
    results: list[bool] = []

    def failed(error: PullstreamError) -> None:
        results.append(listener.unsubscribe(ORDERS, "a"))
        again.subscribe(listener, ORDERS, "b", wait=False)

    listener.subscribe(ORDERS, "a", on_message=print, on_failure=failed)
    heard.subscribe(listener, BILLS)
    fault = broker.faults.error("Poll", Unavailable("gone"))
    broker.publish(BILLS, "ends the poll")
    eventually(lambda: len(heard.failures) == 1)
    fault.lift()
    eventually(lambda: again.done == [None])
    assert results == [False]


def test_a_failure_published_for_a_channel_key_reaches_only_the_callback_of_that_key_c0_31(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """The failure reaches only the callback of this key, in order with its messages."""
    failing, staying, everything = Heard(), Heard(), Heard()
    failing.subscribe(listener, ORDERS, "a")
    staying.subscribe(listener, ORDERS, "b")
    everything.subscribe(listener, ORDERS)
    broker.publish(ORDERS, "last", ordering_key="a")
    publish_failure(broker, ORDERS, "a", "the job has crashed")
    eventually(lambda: len(failing.failures) == 1)
    (error,) = failing.failures
    assert isinstance(error, ChannelFailure)
    assert (error.channel, error.key, error.reason) == (ORDERS, "a", "the job has crashed")
    assert failing.data == ["last"]
    assert not listener.is_subscribed(ORDERS, "a")
    broker.publish(ORDERS, "more", ordering_key="b")
    staying.wait_for("more")
    assert staying.failures == everything.failures == []
    eventually(lambda: statistics(broker).interests == 2)


def test_deleting_a_topic_ends_only_the_channel_subscriptions_to_that_topic_c0_31(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """Other subscriptions continue.

    A topic created again with the same name is a different topic.
    """
    gone, staying = Heard(), Heard()
    gone.subscribe(listener, ORDERS, "a")
    gone.subscribe(listener, ORDERS)
    staying.subscribe(listener, BILLS, "a")
    broker.inspect(lambda engine: engine.delete_topic(ORDERS))
    eventually(lambda: len(gone.failures) == 2)
    assert str(gone.failures[0]) == "The topic was deleted."
    broker.publish(BILLS, "x", ordering_key="a")
    staying.wait_for("x")


def publish_failure(broker: Emulator, channel: str, key: str, reason: str) -> None:
    bare = BareSubscriber(broker.endpoint, "publisher")
    request = channels.PublishFailureRequest(channel=channel, key=key, reason=reason)
    bare.start("PublishFailure", request).result()
    bare.close()
