"""The connections between the parts of a subscription: responses in, requests out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from pullstream.ack_future import AckFuture
from pullstream.exceptions import AcknowledgeStatus
from pullstream.message import Message
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream_protocol.errors import Unavailable
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.subscriber.streaming.managed import SUBSCRIPTION, Gate, Managed, managed


def advance_until(running: Managed, condition: Callable[[], bool]) -> None:
    """Advance the clock second by second until the condition holds."""

    def check() -> bool:
        if not condition():
            running.clock.advance(1)
        return condition()

    eventually(check)


# ---- leases --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("longest", "seconds"), [(0, 60), (20, 20)])
def test_leases_with_unconfirmed_acks_are_extended_by_at_most_the_users_maximum(
    longest: int, seconds: int
) -> None:
    """The lease is extended at most by the user's limit, so after a crash it ends as early."""
    with managed(Message.ack, max_duration_per_lease_extension=longest) as running:
        running.calls.acknowledge_error = Unavailable("busy")
        running.stream.deliver("a")
        running.acknowledged(1)
        advance_until(running, lambda: not running.calls.modified.empty())
        assert running.calls.modified.get() == ("a", seconds)
        running.calls.acknowledge_error = None
        advance_until(running, lambda: not running.future.statistics().unanswered)


# ---- the stream --------------------------------------------------------------------------------


def test_the_first_stream_request_has_flow_control_limits_deadline_and_protocol_version() -> None:
    """The version is one with pongs. An empty ping follows."""
    with managed(Message.ack, max_messages=7, max_bytes=1234) as running:
        request, ping = next(running.stream.requests), next(running.stream.requests)
    assert request.subscription == SUBSCRIPTION
    assert (request.max_outstanding_messages, request.max_outstanding_bytes) == (7, 1234)
    assert request.stream_ack_deadline_seconds == 60
    assert request.protocol_version == 1
    assert request.client_id
    assert ping.ByteSize() == 0


def test_with_legacy_flow_control_the_first_stream_request_has_no_flow_control_limits() -> None:
    """Only the client counts."""
    with managed(Message.ack, limit_server=False) as running:
        request = next(running.stream.requests)
    assert (request.max_outstanding_messages, request.max_outstanding_bytes) == (0, 0)


def test_a_reopened_stream_is_requested_with_the_same_client_id() -> None:
    """The client id stays the same across streams."""
    with managed(Message.ack) as running:
        first = next(running.stream.requests)
        running.stream.end(Unavailable("down"))
        advance_until(running, lambda: running.calls.streams_waiting == 1)
        running.stream = running.calls.next_stream()
        assert next(running.stream.requests).client_id == first.client_id


def test_a_subscription_gives_up_after_the_configured_time_without_a_working_stream() -> None:
    """The subscription returns the running messages in order, and the future has the error."""
    gate = Gate()
    running = Managed(gate, give_up_after=60.0)
    running.stream.deliver("a")
    gate.wait_for()
    running.stream.end(Unavailable("down"))
    assert running.give_up() >= 60.0
    assert not running.future.cancelled()
    assert running.nacked(1) == ["a"]
    assert running.future.state is SubscriptionState.CLOSED
    gate.open()


# ---- callbacks ---------------------------------------------------------------------------------


def test_the_statistics_of_a_subscription_count_every_callback_that_raises() -> None:
    """The count is exact although callbacks run on many threads."""
    together = threading.Barrier(8)

    def fail(message: Message) -> None:
        together.wait(TIMEOUT)
        raise ValueError("bad")

    with managed(fail, workers=8) as running:
        running.stream.deliver(*map(str, range(80)))
        assert len(running.nacked(80)) == 80
    assert running.future.statistics().callback_errors == 80


def test_messages_of_a_key_run_one_at_a_time_if_the_server_reports_no_ordering_setting() -> None:
    """Older servers do not report whether the subscription keeps order."""
    gate = Gate()
    with managed(gate) as running:
        running.stream.deliver("1", "2", key="k", ordering=None)
        gate.wait_for()
        assert gate.begun == ["1"]
        gate.open(2)
        assert running.acknowledged(2) == ["1", "2"]


def test_messages_of_one_key_run_concurrently_on_an_unordered_subscription() -> None:
    """The messages run concurrently."""
    gate = Gate()
    with managed(gate) as running:
        running.stream.deliver("1", "2", "3", key="k", ordering=False)
        gate.wait_for(3)
        gate.open(3)


# ---- leases ------------------------------------------------------------------------------------


def test_messages_behind_a_running_one_return_to_the_server_after_max_lease_duration() -> None:
    """Later messages of the key keep their leases and wait for the redelivery."""
    gate = Gate()
    with managed(gate, max_lease_duration=100) as running:
        running.stream.deliver("1", "2", key="k")
        gate.wait_for()
        for _ in range(5):
            running.clock.advance(10)
        running.stream.deliver("3", key="k")
        eventually(lambda: len(running.manager._in_flight._hold) == 2)
        for _ in range(5):
            running.clock.advance(10)
        assert running.nacked(1) == ["2"]
        assert len(running.manager._in_flight._hold) == 1
        gate.open()
        assert running.acknowledged(1) == ["1"]
        # Late, because the server has ended the lease as well.
        running.stream.deliver("1/again", "2/again", "3/again", key="k")
        gate.open(3)
        assert running.acknowledged(3) == ["1/again", "2/again", "3/again"]


def test_an_ack_after_max_lease_duration_succeeds_and_is_one_ack_in_the_statistics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server may still accept it, and the statistics count it once."""
    futures: list[AckFuture] = []
    messages: list[Message] = []

    def acknowledge(message: Message) -> None:
        messages.append(message)
        futures.append(message.ack_with_response())

    gate = Gate(acknowledge)
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
        assert futures[0].result(timeout=0) is AcknowledgeStatus.SUCCESS
        assert running.future.statistics().acked == 1
        assert running.future.statistics().failed == 0
        messages[0].ack()
        assert running.acknowledged(1) == ["a"]
        assert running.future.statistics().acked == 1
        # An ack of a message that was given up does not release it a second time.
        assert running.future.statistics().leased == 0
    assert [record.message for record in caplog.records] == [
        "1 messages were acknowledged after their lease was given up: they may be delivered again"
    ]


def test_a_second_ack_of_a_message_is_not_logged_as_an_ack_after_the_end_of_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second ack releases nothing, and no lease was given up."""

    def twice(message: Message) -> None:
        message.ack()
        message.ack()

    with managed(twice) as running, caplog.at_level(logging.WARNING):
        running.stream.deliver("a")
        assert running.acknowledged(2) == ["a", "a"]
        eventually(lambda: running.future.statistics().acked == 1)
        assert running.future.statistics().leased == 0
    assert caplog.records == []


def test_leases_of_messages_unread_in_a_reader_pause_count_from_the_start_of_the_pause() -> None:
    """The server sends to a paused reader as well, and a lease begins when the server sends."""
    gate = Gate()
    with managed(gate, max_messages=1) as running:
        running.stream.deliver("a")
        gate.wait_for()
        running.stream.deliver("b")
        running.clock.advance(40)
        gate.open()
        gate.wait_for()
        # The other message is not leased any more.
        eventually(lambda: running.future.statistics().leased == 1)
        running.clock.advance(8)
        assert running.calls.modified.get(timeout=TIMEOUT) == ("b", 40)
        gate.open()


def test_an_unsettled_message_holds_its_ordering_key_only_for_max_lease_duration() -> None:
    """The message is given up after max_lease_duration, and its redelivery may begin."""
    kept: list[Message] = []
    with managed(kept.append, release_after="ack", max_lease_duration=100) as running:
        running.stream.deliver("1", key="k")
        eventually(lambda: len(kept) == 1)
        advance_until(running, lambda: running.future.statistics().expired == 1)
        running.stream.deliver("1/again", key="k")
        eventually(lambda: len(kept) == 2 or running.future.statistics().held == 1)
        assert len(kept) == 2
