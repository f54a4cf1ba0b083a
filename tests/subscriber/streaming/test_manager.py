"""The wiring of a subscription: what comes in goes to the right part, and back out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from protocol.errors import NotFound, Unavailable
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.futures import AckFuture
from subscriber.message import Message
from subscriber.streaming.liveness import PING_EVERY
from subscriber.streaming.settings import ReleaseAfter
from subscriber.streaming.state import SubscriptionState
from tests.subscriber.streaming.fakes import PATIENCE, eventually
from tests.subscriber.streaming.managed import SUBSCRIPTION, Gate, Managed, managed
from tests.subscriber.streaming.scripted_stream import PONG


def advance_until(running: Managed, condition: Callable[[], bool]) -> None:
    """Let time go by, second by second, until something has happened."""

    def check() -> bool:
        if not condition():
            running.clock.advance(1)
        return condition()

    eventually(check)


# ---- leases --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("longest", "seconds"), [(0, 60), (20, 20)])
def test_the_lease_of_what_is_not_acknowledged_in_time_is_kept(longest: int, seconds: int) -> None:
    """By no more than the user allows: after a crash it comes again as soon as that."""
    with managed(Message.ack, max_duration_per_lease_extension=longest) as running:
        running.calls.acknowledge_error = Unavailable("busy")
        running.stream.deliver("a")
        running.acknowledged(1)
        advance_until(running, lambda: not running.calls.modified.empty())
        assert running.calls.modified.get() == ("a", seconds)
        running.calls.acknowledge_error = None
        advance_until(running, lambda: not running.future.statistics().unanswered)


# ---- the stream --------------------------------------------------------------------------------


def test_the_first_request_says_what_the_subscription_wants() -> None:
    """Its limits, the deadline of its leases, and that it understands pongs."""
    with managed(Message.ack, max_messages=7, max_bytes=1234) as running:
        request = next(running.stream.requests)
    assert request.subscription == SUBSCRIPTION
    assert (request.max_outstanding_messages, request.max_outstanding_bytes) == (7, 1234)
    assert request.stream_ack_deadline_seconds == 60
    assert request.protocol_version == 1
    assert request.client_id


def test_legacy_flow_control_tells_the_server_no_limits() -> None:
    """It is this side alone that counts."""
    with managed(Message.ack, limit_server=False) as running:
        request = next(running.stream.requests)
    assert (request.max_outstanding_messages, request.max_outstanding_bytes) == (0, 0)


def test_a_stream_opened_again_is_the_same_clients() -> None:
    """The server may recognise a comeback; the state tells where things stand."""
    with managed(Message.ack) as running:
        states = [running.future.state]
        first = next(running.stream.requests)
        running.stream.deliver("a")
        assert running.acknowledged(1) == ["a"]
        states.append(running.future.state)
        running.stream.end(Unavailable("down"))
        eventually(lambda: running.future.state is not SubscriptionState.STREAMING)
        states.append(running.future.state)
        advance_until(running, lambda: running.calls.streams_waiting == 1)
        running.stream = running.calls.next_stream()
        assert next(running.stream.requests).client_id == first.client_id
        running.stream.deliver("b")
        assert running.acknowledged(1) == ["b"]
    states.append(running.future.state)
    assert states == [
        SubscriptionState.CONNECTING,
        SubscriptionState.STREAMING,
        SubscriptionState.RECONNECTING,
        SubscriptionState.CLOSED,
    ]


def test_a_final_error_of_the_stream_ends_the_subscription_with_it() -> None:
    """And only then is the future done: everything is shut down."""
    running = Managed(Message.ack)
    running.stream.end(NotFound("no such subscription"))
    assert isinstance(running.future.exception(PATIENCE), NotFound)
    assert running.future.state is SubscriptionState.CLOSED
    assert not running.future.cancelled()


def test_a_subscription_may_give_up_when_no_stream_has_worked_for_long_enough() -> None:
    """Of its own accord and in order: what runs is given back, and the future tells the error."""
    gate = Gate()
    running = Managed(gate, give_up_after=60.0)
    running.stream.deliver("a")
    gate.wait_for()
    running.stream.end(Unavailable("down"))
    began = running.clock.monotonic()

    def keep_breaking() -> bool:
        if running.calls.streams_waiting:
            running.calls.next_stream().end(Unavailable("still down"))
        running.clock.advance(1)
        return running.future.done()

    eventually(keep_breaking)
    assert running.clock.monotonic() >= began + 60.0
    assert isinstance(running.future.exception(PATIENCE), Unavailable)
    assert running.nacked(1) == ["a"]
    assert running.future.state is SubscriptionState.CLOSED
    gate.open()


def test_a_stream_on_which_the_server_falls_silent_is_replaced() -> None:
    """After a ping that it does not answer, though it answered one before."""
    with managed(Message.ack) as running:
        running.stream.respond(PONG)
        requests = running.stream.requests
        next(requests)
        assert next(requests).ByteSize() == 0
        advance_until(running, lambda: running.calls.streams_waiting == 1)
        assert running.stream.cancelled
        running.stream = running.calls.next_stream()


def test_a_stream_at_full_load_is_not_taken_for_dead() -> None:
    """Nobody reads the pongs while all callbacks are at work, which may take hours."""
    gate = Gate()
    with managed(gate, max_messages=1) as running:
        requests = running.stream.requests
        next(requests)
        next(requests)
        running.stream.respond(PONG)
        running.stream.deliver("a")
        gate.wait_for()
        for _ in range(20):
            running.clock.advance(PING_EVERY)
            assert next(requests).ByteSize() == 0
            running.clock.advance(PING_EVERY / 2)
        assert not running.stream.cancelled
        assert running.calls.streams_waiting == 0
        gate.open()


# ---- callbacks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_a_callback_that_raises_is_nacked_and_reported_and_the_stream_goes_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it raises, also what would end a program."""

    def fail_once(message: Message) -> None:
        if message.data == b"bad":
            raise error
        message.ack()

    with managed(fail_once) as running, caplog.at_level(logging.ERROR):
        running.stream.deliver("a", data=b"bad")
        assert running.nacked(1) == ["a"]
        running.stream.deliver("b")
        assert running.acknowledged(1) == ["b"]
        assert running.future.running()
        assert running.future.statistics().callback_errors == 1
    assert [record.message for record in caplog.records] == [
        "callback raised for message a, which is nacked"
    ]
    assert running.future.result() is True


def test_a_callback_that_raises_after_its_verdict_keeps_it() -> None:
    """An acknowledged message is not nacked on top."""

    def ack_and_fail(message: Message) -> None:
        message.ack()
        raise ValueError("too late")

    with managed(ack_and_fail) as running:
        running.stream.deliver("a")
        assert running.acknowledged(1) == ["a"]
    assert running.calls.modified.empty()


def test_every_callback_that_raises_is_counted() -> None:
    """Although they run on many threads."""
    together = threading.Barrier(8)

    def fail(message: Message) -> None:
        together.wait(PATIENCE)
        raise ValueError("bad")

    with managed(fail, workers=8) as running:
        running.stream.deliver(*map(str, range(80)))
        assert len(running.nacked(80)) == 80
    assert running.future.statistics().callback_errors == 80


@pytest.mark.parametrize("ordering", [True, None])
def test_messages_of_a_key_run_one_at_a_time(ordering: bool | None) -> None:
    """Where the subscription keeps order, or an older server does not tell."""
    gate = Gate()
    with managed(gate) as running:
        running.stream.deliver("1", "2", key="k", ordering=ordering)
        gate.wait_for()
        assert gate.begun == ["1"]
        gate.open(2)
        assert running.acknowledged(2) == ["1", "2"]


def test_on_a_subscription_without_order_a_key_means_nothing() -> None:
    """Its messages run side by side."""
    gate = Gate()
    with managed(gate) as running:
        running.stream.deliver("1", "2", "3", key="k", ordering=False)
        gate.wait_for(3)
        gate.open(3)


# ---- leases ------------------------------------------------------------------------------------


def test_a_message_given_up_while_it_waits_for_a_worker_is_not_begun() -> None:
    """Its lease is over: the server delivers it again, and it counts no more."""
    gate = Gate()
    with managed(gate, workers=1, max_messages=2, max_lease_duration=100) as running:
        running.stream.deliver("running", "waiting")
        gate.wait_for()
        # Full: this one is read when the others have been given up.
        running.stream.deliver("fresh")
        for _ in range(10):
            running.clock.advance(10)
        eventually(lambda: running.manager._gauge.messages == 1)
        gate.open(2)
        assert running.acknowledged(2) == ["running", "fresh"]
        assert gate.begun == ["running", "fresh"]


def test_held_messages_that_are_given_up_are_held_no_more() -> None:
    """Nor those behind them, which would overtake their redelivery; nothing piles up."""
    gate = Gate()
    with managed(gate, max_lease_duration=100) as running:
        running.stream.deliver("1", "2", key="k")
        gate.wait_for()
        for _ in range(5):
            running.clock.advance(10)
        running.stream.deliver("3", key="k")
        eventually(lambda: len(running.manager._hold) == 2)
        for _ in range(5):
            running.clock.advance(10)
        assert running.nacked(2) == ["2", "3"]
        assert len(running.manager._hold) == 0
        gate.open()
        assert running.acknowledged(1) == ["1"]
        # Late: the server has given up on it as well.
        running.stream.deliver("1/again", "2/again", "3/again", key="k")
        gate.open(3)
        assert running.acknowledged(3) == ["1/again", "2/again", "3/again"]


def test_a_late_acknowledgement_is_sent_and_not_called_a_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server may still take it; the user is warned, once for all that come together."""
    futures: list[AckFuture] = []
    gate = Gate(lambda message: futures.append(message.ack_with_response()))
    with managed(gate, max_lease_duration=100) as running:
        running.stream.deliver("a")
        gate.wait_for()
        advance_until(running, lambda: running.future.statistics().expired == 1)
        assert running.future.statistics().leased == 0
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            gate.open()
            assert running.acknowledged(1) == ["a"]
            eventually(lambda: bool(futures) and futures[0].done())
            eventually(lambda: bool(caplog.records))
        error = futures[0].exception(timeout=0)
        assert isinstance(error, AcknowledgeError)
        assert error.error_code is AcknowledgeStatus.INVALID_ACK_ID
        # No release without its add: what was given up counts no less for being acknowledged.
        assert running.future.statistics().leased == 0
    assert [record.message for record in caplog.records] == [
        "1 messages were acknowledged after their lease was given up: they may be delivered again"
    ]


def test_an_acknowledgement_made_twice_is_no_late_one(caplog: pytest.LogCaptureFixture) -> None:
    """The second frees nothing, and nothing was given up."""

    def twice(message: Message) -> None:
        message.ack()
        message.ack()

    with managed(twice) as running, caplog.at_level(logging.WARNING):
        running.stream.deliver("a")
        assert running.acknowledged(2) == ["a", "a"]
        eventually(lambda: running.future.statistics().acked == 1)
        assert running.future.statistics().leased == 0
    assert caplog.records == []


def test_what_lay_unread_is_extended_as_of_when_it_may_have_been_sent() -> None:
    """A server does not wait for a reader that is paused, and leases run from when it sends."""
    gate = Gate()
    with managed(gate, max_messages=1) as running:
        running.stream.deliver("a")
        gate.wait_for()
        running.stream.deliver("b")
        running.clock.advance(40)
        gate.open()
        gate.wait_for()
        running.clock.advance(8)
        assert running.calls.modified.get(timeout=PATIENCE) == ("b", 40)
        gate.open()


@pytest.mark.parametrize("release_after", ["callback", "ack"])
def test_a_late_verdict_and_the_next_of_its_key(release_after: ReleaseAfter) -> None:
    """It begins when the callback has ended, or only when the message is settled."""
    kept: list[Message] = []
    with managed(kept.append, release_after=release_after) as running:
        running.stream.deliver("1", "2", key="k")
        eventually(lambda: len(kept) == (2 if release_after == "callback" else 1))
        eventually(lambda: running.future.statistics().running == 0)
        assert running.future.statistics().held == (0 if release_after == "callback" else 1)
        kept[0].ack()
        assert running.acknowledged(1) == ["1"]
        eventually(lambda: len(kept) == 2)
        kept[1].ack()
        assert running.acknowledged(1) == ["2"]


def test_a_message_that_is_never_settled_does_not_hold_up_its_key_for_ever() -> None:
    """It is given up after max_lease_duration; its redelivery may then begin."""
    kept: list[Message] = []
    with managed(kept.append, release_after="ack", max_lease_duration=100) as running:
        running.stream.deliver("1", key="k")
        eventually(lambda: len(kept) == 1)
        advance_until(running, lambda: running.future.statistics().expired == 1)
        running.stream.deliver("1/again", key="k")
        eventually(lambda: len(kept) == 2 or running.future.statistics().held == 1)
        assert len(kept) == 2
