"""Leases are kept while messages are handled, within the time limit, and with few requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

import pytest

from pullstream import AcknowledgeError, AcknowledgeStatus, Hooks, Message
from tests.subscriber.behaviour.stage import (
    SUBSCRIPTION,
    Events,
    Gate,
    Log,
    Stage,
    is_idle,
    keep,
    stage,
)
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


@pytest.fixture
def here() -> Iterator[Stage]:
    with stage(PacedClock(), enable_message_ordering=True) as here:
        yield here


class FirstDeliveries(Hooks):
    """Notes the ack ids of the deliveries in their order."""

    def __init__(self, ack_ids: list[str]) -> None:
        self._ack_ids = ack_ids

    def received(self, subscription: str, messages: Sequence[Message]) -> None:
        self._ack_ids += [message.ack_id for message in messages]


def finish(here: Stage, gate: Gate) -> None:
    """Let every callback end, and wait for its acknowledgement."""
    gate.open(100)
    eventually(lambda: here.backlog == 0)


def wait_for_extensions(events: Events, extensions: list[tuple[int, int]]) -> None:
    """Wait for the reports of the extensions, which come just after the requests."""
    eventually(lambda: len(events.extensions) >= len(extensions))
    assert events.extensions == extensions


def test_the_client_extends_leases_of_messages_that_run_in_slow_callbacks_or_wait(
    here: Stage,
) -> None:
    """A message that runs, waits for a worker, or is held behind its key is delivered once."""
    gate = Gate()
    manager = here.manage(gate, workers=1)
    here.publish(b"1", b"2", b"3", key="k")
    here.publish(b"4")
    gate.wait_for(1)
    here.advance(300)
    assert here.free() == []
    finish(here, gate)
    assert sorted(gate.data) == [b"1", b"2", b"3", b"4"]
    manager.stop()
    assert manager.future.result(TIMEOUT) is True


def test_the_length_of_lease_extensions_follows_the_measured_duration_of_callbacks(
    here: Stage,
) -> None:
    """After messages of 100 seconds, one of 220 is extended at 48, 128 and 208, and not between."""
    events, gate = Events(), Gate()
    here.manage(gate, hooks=(events,))
    here.publish(*[b"x"] * 9)
    gate.wait_for(9)
    here.advance(100)
    gate.open(9)
    eventually(lambda: here.backlog == 0)
    events.extensions.clear()
    here.publish(b"slow")
    gate.wait_for(10)
    here.advance(220)
    wait_for_extensions(events, [(1, 100)] * 3)
    finish(here, gate)


def test_lease_extensions_are_short_until_callback_durations_are_measured(here: Stage) -> None:
    """Without measurements leases are short: the first ends at 48 seconds, then one every 8."""
    events, gate = Events(), Gate()
    here.manage(gate, hooks=(events,))
    here.publish(b"x")
    gate.wait_for(1)
    here.advance(128)
    wait_for_extensions(events, [(1, 10)] * 11)
    finish(here, gate)


def test_each_lease_is_extended_at_its_own_due_time(here: Stage) -> None:
    """A new lease is not extended together with an old one."""
    events, gate = Events(), Gate()
    here.manage(gate, hooks=(events,))
    here.publish(b"old")
    gate.wait_for(1)
    here.advance(40)
    here.publish(*[b"young"] * 5)
    gate.wait_for(6)
    here.advance(40)
    assert {messages for messages, _ in events.extensions} == {1}
    finish(here, gate)


def test_only_the_unsettled_messages_of_a_response_get_lease_extensions(here: Stage) -> None:
    """A message that its callback has not settled keeps its lease until other code settles it."""
    events, log = Events(), Log(keep)
    here.manage(log, hooks=(events,))
    here.publish(b"1", b"2", b"3")
    first, second, third = log.wait_for(3)
    first.ack()
    second.ack()
    eventually(lambda: here.backlog == 1)
    here.advance(50)
    wait_for_extensions(events, [(1, 10)])
    here.advance(200)
    assert here.free() == []
    assert {messages for messages, _ in events.extensions} == {1}
    assert third.ack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert (here.backlog, len(log.messages)) == (0, 3)


def test_the_lease_of_an_acknowledged_message_is_not_extended(here: Stage) -> None:
    """Nothing is sent or reported about acknowledged messages, even after the maximum duration."""
    events, log = Events(), Log()
    here.manage(log, hooks=(events,), max_lease_duration=100)
    here.publish(b"x")
    eventually(lambda: here.backlog == 0)
    here.advance(300)
    assert events.extensions == []
    assert events.lost == []


def test_a_configured_minimum_lease_extension_is_sent_as_the_ack_deadline_of_the_stream(
    here: Stage,
) -> None:
    """With five minutes, nothing is sent before four have passed. Then it is for five more."""
    events, gate = Events(), Gate()
    here.manage(gate, hooks=(events,), min_duration_per_lease_extension=300)
    here.publish(b"x")
    gate.wait_for(1)
    here.advance(238)
    assert events.extensions == []
    assert here.free() == []
    here.advance(4)
    wait_for_extensions(events, [(1, 300)])
    finish(here, gate)


def test_lease_extensions_are_no_longer_than_the_configured_maximum(here: Stage) -> None:
    """With at most half a minute, a crash is noticed that early, even with slow callbacks."""
    events, gate = Events(), Gate()
    here.manage(gate, hooks=(events,), max_duration_per_lease_extension=30)
    here.publish(b"x")
    gate.wait_for(1)
    here.advance(100)
    gate.open()
    eventually(lambda: here.backlog == 0)
    events.extensions.clear()
    here.publish(b"y")
    gate.wait_for(2)
    here.advance(50)
    wait_for_extensions(events, [(1, 30)] * 2)
    finish(here, gate)


# ---- the end of a lease ------------------------------------------------------------------------


def wait_until_given_up(events: Events, data: bytes) -> None:
    eventually(lambda: (data, "max_lease_duration") in events.lost)


@pytest.mark.parametrize("key", ["", "k"])
def test_a_message_is_dropped_and_reported_to_a_hook_after_max_lease_duration(
    here: Stage, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The hook gets the message, and flow control no longer counts it.

    The server has the lease until it ends. So it accepts an acknowledgement in this time.
    """
    events, log = Events(), Log(keep)
    manager = here.manage(log, hooks=(events,), max_lease_duration=100)
    here.publish(b"a", key=key)
    (message,) = log.wait_for(1)
    here.advance(98)
    assert events.lost == []
    with caplog.at_level(logging.WARNING):
        here.advance(4, extending=False)
        wait_until_given_up(events, b"a")
    assert manager.future.statistics().expired == 1
    assert manager.future.statistics().leased == 0
    assert message.ack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert here.backlog == 0
    assert "max_lease_duration" in caplog.text
    assert (manager.future.statistics().acked, manager.future.statistics().failed) == (1, 0)
    here.advance(12, extending=False)
    assert len(log.messages) == 1


def test_the_future_of_an_ack_after_the_end_of_the_lease_has_the_servers_answer() -> None:
    """With exactly-once delivery the answer is a refusal, otherwise OK."""
    for exactly_once in (True, False):
        with stage(PacedClock(), enable_exactly_once_delivery=exactly_once) as here:
            events, log = Events(), Log(keep)
            manager = here.manage(log, hooks=(events,), max_lease_duration=100)
            here.publish(b"a")
            (message,) = log.wait_for(1)
            here.advance(98)
            here.advance(64, extending=False)
            wait_until_given_up(events, b"a")
            log.wait_for(2)
            future = message.ack_with_response()
            if exactly_once:
                error = future.exception(TIMEOUT)
                assert isinstance(error, AcknowledgeError)
                assert error.error_code is AcknowledgeStatus.INVALID_ACK_ID
                assert not error.may_have_succeeded
            else:
                assert future.result(TIMEOUT) is AcknowledgeStatus.SUCCESS
            assert manager.future.statistics().failed == exactly_once


def test_a_plain_ack_after_the_end_of_the_lease_is_logged(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no future for the error."""
    events, log = Events(), Log(keep)
    here.manage(log, hooks=(events,), max_lease_duration=100)
    here.publish(b"a")
    (message,) = log.wait_for(1)
    here.advance(98)
    here.advance(4, extending=False)
    wait_until_given_up(events, b"a")
    with caplog.at_level(logging.WARNING):
        message.ack()
        eventually(lambda: "acknowledged after their lease was given up" in caplog.text)


def test_max_lease_duration_counts_from_the_end_of_the_previous_callback_of_the_key(
    here: Stage,
) -> None:
    """The held message is given up like any other when its time is over."""
    events = Events()
    first, second = Gate(), Gate()

    def handle(message: Message) -> None:
        (first if message.data == b"1" else second)(message)

    here.manage(handle, hooks=(events,), max_lease_duration=100)
    here.publish(b"1", b"2", key="k")
    first.wait_for(1)
    here.advance(40)
    first.open()
    second.wait_for(1)
    here.advance(58)
    assert events.lost == []
    here.advance(4, extending=False)
    wait_until_given_up(events, b"2")
    finish(here, second)


def test_a_message_dropped_while_it_waits_for_a_worker_is_not_passed_to_the_callback(
    here: Stage,
) -> None:
    """The message will be redelivered, so it would be handled twice."""
    events, gate = Events(), Gate()
    here.manage(gate, workers=1, hooks=(events,), max_lease_duration=100)
    here.publish(b"runs")
    gate.wait_for(1)
    here.publish(b"waits")
    eventually(lambda: events.received_count == 2)
    here.advance(98)
    here.advance(4, extending=False)
    eventually(lambda: len(events.lost) == 2)
    # Both are redelivered when their leases have ended.
    here.advance(12, extending=False)
    eventually(lambda: events.received_count == 4)
    finish(here, gate)
    assert sorted(gate.data) == [b"runs", b"runs", b"waits"]


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_no_callback_begins_on_a_lease_that_ended_while_the_process_was_stopped(
    exactly_once: bool, key: str
) -> None:
    """The message is delivered again, and begins once. The running callback continues."""
    settings = {"enable_exactly_once_delivery": exactly_once, "enable_message_ordering": True}
    with stage(PacedClock(), **settings) as here:
        events, first = Events(), list[str]()
        gate = Gate()
        manager = here.manage(gate, workers=1, hooks=(events, FirstDeliveries(first)))
        here.publish(b"runs")
        gate.wait_for(1)
        here.publish(b"waits", key=key)
        eventually(lambda: events.received_count == 2)
        assert isinstance(here.clock, PacedClock)
        here.clock.advance(70)
        gate.open(100)

        def is_handled() -> bool:
            # A new stream and repeated requests have pauses on this clock.
            assert isinstance(here.clock, PacedClock)
            here.clock.advance(0.02)
            return b"waits" in gate.data and here.backlog == 0 and is_idle(manager)

        eventually(is_handled)
        begun = [message for message in gate.messages if message.data == b"waits"]
        assert [message.ack_id for message in begun[:1]] != first[1:2]
        eventually(lambda: (b"waits", "expired") in events.lost)
        assert manager.future.statistics().expired >= 1


# ---- other ends of a lease, and leases of others -------------------------------------------------


@pytest.mark.parametrize("key", ["", "k"])
def test_the_server_redelivers_a_message_of_a_stuck_callback_after_max_lease_duration(
    here: Stage, key: str
) -> None:
    """While one callback is stuck, another gets the message, with a key or without."""
    gate = Gate()
    manager = here.manage(gate, max_lease_duration=100)
    here.publish(b"a", key=key)
    gate.wait_for(1)
    here.advance(98)
    assert here.free() == []
    here.advance(22, extending=False)
    if key:
        # The message waits behind itself, as each key has one callback at a time.
        eventually(lambda: len(manager._in_flight._hold) == 1)
        gate.open()
    gate.wait_for(2)
    gate.open(2)
    eventually(lambda: here.backlog == 0)
    assert len(gate.messages) == 2
    manager.stop()
    assert manager.future.result(TIMEOUT) is True


def test_a_dropped_message_is_redelivered_when_its_lease_has_ended(here: Stage) -> None:
    """Nothing extends the lease."""
    dropped = threading.Event()

    def drop_once(message: Message) -> None:
        if dropped.is_set():
            message.ack()
        else:
            message.drop()
            dropped.set()

    manager = here.manage(drop_once)
    here.publish(b"a")
    assert dropped.wait(TIMEOUT)
    eventually(lambda: len(manager._in_flight.leaser) == 0)
    here.advance(58, extending=False)
    assert here.backlog == 1
    here.advance(2, extending=False)
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(TIMEOUT) is True


def test_an_ack_deadline_set_by_the_user_holds_until_the_next_automatic_lease_extension(
    here: Stage,
) -> None:
    """A shorter deadline causes an earlier redelivery."""
    gate, other = Gate(), Gate()
    gates = iter((gate, other))
    manager = here.manage(lambda message: next(gates)(message))
    here.publish(b"a")
    gate.wait_for(1)
    # Its own lease is not extended in the first 48 seconds.
    message = next(iter(manager._in_flight.leaser.leased_messages()))
    assert message.modify_ack_deadline_with_response(20).result(TIMEOUT)
    here.advance(18, extending=False)
    assert here.free() == []
    here.advance(2, extending=False)
    other.wait_for(1)
    gate.open()
    other.open()
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(TIMEOUT) is True


def test_leases_adopted_from_another_client_are_extended_until_settlement(here: Stage) -> None:
    """Leases of another client are extended here, and acknowledged or returned at the end."""
    here.publish(b"a", b"b")
    pulled = here.other.pull(subscription=SUBSCRIPTION, max_messages=2).received_messages
    gate = Gate()
    manager = here.manage(gate)
    first, second = manager.future.adopt([one.ack_id for one in pulled], 100)
    statistics = manager.future.statistics()
    assert (statistics.leased, statistics.leased_bytes) == (2, 100)
    here.advance(200)
    first.ack()
    eventually(lambda: here.backlog == 1)
    assert (len(gate.messages), second.ack_id) == (0, pulled[1].ack_id)
    manager.stop()
    assert manager.future.result(TIMEOUT) is True
    assert here.free() == [b"b"]


def test_leases_adopted_from_another_client_count_towards_flow_control(here: Stage) -> None:
    """Adopted leases count like received messages, and make room when they are settled."""
    here.publish(b"a", b"b")
    pulled = here.other.pull(subscription=SUBSCRIPTION, max_messages=2).received_messages
    gate = Gate()
    manager = here.manage(gate, max_messages=2)
    adopted = manager.future.adopt([one.ack_id for one in pulled])
    assert manager.future.statistics().load == 1.0
    here.publish(b"c")
    for message in adopted:
        message.ack()
    gate.wait_for(1)
    gate.open()
    eventually(lambda: here.backlog == 0)
    manager.stop()
    assert manager.future.result(TIMEOUT) is True
