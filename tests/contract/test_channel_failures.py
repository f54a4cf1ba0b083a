"""Channels: who is gone, and how that is found out (C0.25 to C0.31)."""

from __future__ import annotations

from emulator import Emulator
from protocol.clock import ManualClock
from protocol.errors import PullstreamError, Unavailable
from protocol.messages import channels_pb2 as channels
from subscriber import ChannelFailure, ChannelSubscriber, SubscriberClient
from tests.subscriber.streaming.fakes import eventually

from .channel_peers import BILLS, ORDERS, BareSubscriber, Heard, Recorder, data_of, statistics

TIMEOUT, SWEEP = 300.0, 30.0


def test_c0_25_inactive_is_who_gave_no_sign_for_the_whole_timeout(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """A moment less is not long enough; the timeout itself is."""
    bare.subscribe(ORDERS, "a")
    clock.advance(TIMEOUT - SWEEP / 2)
    assert statistics(broker).subscribers == 1
    clock.advance(SWEEP / 2)
    # It was looked at too early then.
    clock.advance(SWEEP)
    assert statistics(broker).subscribers == 0


def test_c0_25_polls_answers_and_commands_are_signs_of_life(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """A subscriber that is slow to send its first poll is not forgotten meanwhile."""
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


def test_c0_26_a_silent_poll_is_answered_to_see_who_is_there(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """With nothing. Who polls again stays."""
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


def test_c0_27_who_does_not_poll_again_is_forgotten(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """With everything there was of it."""
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


def test_c0_28_who_lives_is_asked_every_300_to_330_seconds(
    clock: ManualClock, broker: Emulator, listener: ChannelSubscriber, recorder: Recorder
) -> None:
    """And never forgotten, however long nothing is published."""
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


def test_c0_28_who_died_with_a_poll_is_forgotten_after_600_to_660_seconds(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    """Without one after 300 to 330."""
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


def test_c0_29_who_never_polls_is_forgotten_too(
    clock: ManualClock, broker: Emulator, bare: BareSubscriber
) -> None:
    bare.subscribe(ORDERS, "a")
    broker.publish(ORDERS, "x", ordering_key="a")
    clock.advance(TIMEOUT + SWEEP)
    left = statistics(broker)
    assert (left.subscribers, left.interests, left.waiting) == (0, 0, 0)


def test_c0_29_who_says_goodbye_is_forgotten_at_once(
    broker: Emulator, bare: BareSubscriber
) -> None:
    """Its poll is answered. It may say so twice; a stranger's goodbye changes nothing."""
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


def test_c0_29_a_closed_listener_says_goodbye(broker: Emulator, client: SubscriberClient) -> None:
    listener = client.listen()
    Heard().subscribe(listener, ORDERS, "a")
    assert listener.close()
    assert statistics(broker).subscribers == 0


def test_c0_30_a_publisher_that_is_gone_ends_every_subscription_once(
    broker: Emulator, client: SubscriberClient
) -> None:
    """Of keys and of whole channels; with what the last attempt ended with."""
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
    # As soon as gRPC has found out that the broker is there again.
    while not again.done or again.done[-1] is not None:
        again.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "alive", ordering_key="a")
    again.wait_for("alive")
    assert len(heard.failures) == 4


def test_c0_30_a_short_failure_is_tried_again(broker: Emulator, client: SubscriberClient) -> None:
    """Of either call, and nobody notices."""
    listener, heard = client.listen(), Heard()
    broker.faults.error("Commands", Unavailable("a moment"), times=2)
    broker.faults.error("Poll", Unavailable("a moment"), times=2)
    heard.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "x", ordering_key="a")
    heard.wait_for("x")
    assert (heard.failures, heard.done) == ([], [None])


def test_c0_30_a_publisher_that_is_quiet_is_not_gone(
    broker: Emulator, client: SubscriberClient, recorder: Recorder
) -> None:
    """It answers each poll in time, however short that is."""
    listener, heard = client.listen(poll_timeout=0.3, give_up_after=0.1), Heard()
    heard.subscribe(listener, ORDERS, "a")
    eventually(lambda: len(recorder.polls) == 4)
    broker.publish(ORDERS, "x", ordering_key="a")
    heard.wait_for("x")
    assert heard.failures == []


def test_c0_30_queued_commands_go_with_the_publisher(
    broker: Emulator, client: SubscriberClient, recorder: Recorder
) -> None:
    """Those who wait for an answer have the error for one, and nothing is sent later."""
    broker.faults.drop("Commands")
    broker.faults.error("Poll", Unavailable("gone"))
    listener, heard = client.listen(give_up_after=0.2), Heard()
    for key in "abc":
        heard.subscribe(listener, ORDERS, key, wait=False)
    eventually(lambda: len(heard.failures) == 3)
    assert [type(error) for error in heard.done] == [Unavailable] * 3
    # The batch under way is withdrawn; else it would go on with the fault lifted.
    eventually(lambda: recorder.batches_open == 0)
    broker.faults.clear()
    heard.subscribe(listener, ORDERS, "z")
    assert recorder.commands()[-1] == [("z", True)]
    assert statistics(broker).interests == 1


def test_c0_30_a_failure_callback_may_unsubscribe_and_subscribe(
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


def test_c0_31_one_key_may_fail(broker: Emulator, listener: ChannelSubscriber) -> None:
    """Only its callback is told, in order with the messages; the others go on."""
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


def test_c0_31_a_deleted_topic_ends_what_is_subscribed_to_it(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """And nothing else; what is made again under its name is another."""
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
