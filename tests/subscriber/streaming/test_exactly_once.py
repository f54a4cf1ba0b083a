"""Exactly-once delivery: no callback runs before the server has confirmed the ack id."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pullstream_protocol.errors import FailedPrecondition, Unavailable
from tests.subscriber.streaming.fakes import TIMEOUT, UnaryCall, eventually
from tests.subscriber.streaming.managed import Gate, Managed
from tests.subscriber.streaming.scripted_stream import PONG
from tests.subscriber.test_hooks import Told

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
TRANSIENT = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


class Once(Managed):
    """A subscription whose receipts the test answers."""

    def __init__(self, **options: object) -> None:
        self.told = Told()
        self.gate = Gate()
        super().__init__(self.gate, hooks=[self.told], **options)  # type: ignore[arg-type]
        self.calls.answers_extensions = False

    def deliver(self, *ack_ids: str, key: str = "", ordering: bool = True) -> UnaryCall:
        """Send a response, and return the call with its receipts."""
        self.stream.deliver(*ack_ids, key=key, ordering=ordering, exactly_once=True)
        asked, call = self.calls.next_extension()
        assert asked == list(ack_ids)
        return call


@pytest.fixture
def once() -> Iterator[Once]:
    running = Once()
    yield running
    running.gate.open(100)
    running.stop()


def refuse(call: UnaryCall, **reasons: str) -> None:
    """Answer that these ids failed with these reasons, and that all others are valid."""
    call.answer_with(FailedPrecondition("some failed", reason="R", metadata=reasons))


def refuse_first_of_two(once: Once) -> None:
    """Deliver two messages of a key, and refuse the first. The error does not name the second."""
    refuse(once.deliver("1", "2", key="k"), **{"1": INVALID})
    asked, call = once.calls.next_extension()
    assert asked == ["2"]
    call.answer()


def test_an_exactly_once_callback_begins_only_after_the_answer_to_its_receipt(once: Once) -> None:
    """The receipt has the stream's ack deadline, which the answer confirms."""
    call = once.deliver("a", "b")
    assert once.calls.modified.get(timeout=TIMEOUT) == ("a", 60)
    assert once.told.next("received")[1] == ["a", "b"]
    assert (once.gate.begun, once.future.statistics().waiting) == ([], 0)
    call.answer()
    once.gate.wait_for(2)
    assert sorted(once.gate.begun) == ["a", "b"]


def test_messages_that_wait_for_an_exactly_once_receipt_count_towards_flow_control(
    once: Once,
) -> None:
    """A message that waits for its receipt is unsettled like any other received message."""
    running = Once(max_messages=2)
    call = running.deliver("a", "b")
    assert running.future.statistics().load == 1.0
    running.stream.deliver("c", exactly_once=True)
    refuse(call, a=INVALID, b=INVALID)
    asked, call = running.calls.next_extension()
    assert asked == ["c"]
    call.answer()
    running.gate.wait_for()
    running.gate.open()
    assert running.acknowledged(1) == ["c"]
    running.stop()


def test_an_exactly_once_receipt_with_a_transient_failure_is_retried(once: Once) -> None:
    """The response waits until the server has answered for each id."""
    call = once.deliver("a", "b")
    refuse(call, b=TRANSIENT)
    assert once.told.next("request_done")[1:3] == ("modify_ack_deadline", 2)
    assert once.gate.begun == []
    once.clock.advance(1)
    asked, call = once.calls.next_extension()
    assert asked == ["a", "b"]
    call.answer_with(Unavailable("down"))
    once.told.next("request_done")
    once.clock.advance(1)
    asked, call = once.calls.next_extension()
    assert asked == ["a", "b"]
    call.answer()
    once.gate.wait_for(2)
    assert sorted(once.gate.begun) == ["a", "b"]
    assert once.future.statistics().expired == 0


def test_messages_of_a_key_run_in_order_if_receipt_answers_overtake_each_other(once: Once) -> None:
    """The later response waits for the earlier one, and then for its key."""
    first = once.deliver("1", "2", key="k")
    second = once.deliver("3", key="k")
    second.answer()
    assert once.told.next("request_done")[2] == 1
    assert once.gate.begun == []
    first.answer()
    once.gate.wait_for()
    assert once.gate.begun == ["1"]
    once.gate.open(3)
    assert once.acknowledged(3) == ["1", "2", "3"]


def test_messages_behind_one_with_a_refused_receipt_wait_for_its_redelivery(once: Once) -> None:
    """Later messages must not overtake one that another subscriber may have failed to handle."""
    refuse_first_of_two(once)
    once.deliver("3").answer()
    once.gate.wait_for()
    assert once.gate.begun == ["3"]
    assert once.future.statistics().held == 1
    once.deliver("1/again", "2/again", key="k").answer()
    once.gate.open(3)
    assert sorted(once.acknowledged(3)) == ["1/again", "2/again", "3"]
    assert once.future.statistics().returned == 0


def test_messages_behind_one_with_a_receipt_refused_on_retry_wait_for_its_redelivery(
    once: Once,
) -> None:
    """The later message waits although its own receipt was confirmed before."""
    first = once.deliver("1", key="k")
    second = once.deliver("2", key="k")
    refuse(first, **{"1": TRANSIENT})
    once.told.next("request_done")
    second.answer()
    once.told.next("request_done")
    once.clock.advance(1)
    asked, call = once.calls.next_extension()
    assert asked == ["1"]
    refuse(call, **{"1": INVALID})
    once.deliver("3").answer()
    once.gate.wait_for()
    assert once.gate.begun == ["3"]
    once.deliver("1/again", "2/again", key="k").answer()
    once.gate.open(3)
    assert sorted(once.acknowledged(3)) == ["1/again", "2/again", "3"]


def test_an_ended_lease_of_a_message_held_behind_a_failed_one_is_not_reported_as_lost(
    once: Once, caplog: pytest.LogCaptureFixture
) -> None:
    """The server ends the lease when it restarts the key, and the redelivery may be on its way."""
    refuse_first_of_two(once)
    eventually(lambda: once.future.statistics().expired == 1)
    caplog.clear()
    once.clock.advance(48)
    extended, call = once.calls.next_extension()
    assert extended == ["2"]
    refuse(call, **{"2": INVALID})
    eventually(lambda: once.future.statistics().held == 0)
    assert once.future.statistics().leased == 0
    once.deliver("1/again", "2/again", key="k").answer()
    once.gate.open(2)
    assert once.acknowledged(2) == ["1/again", "2/again"]
    assert once.future.statistics().expired == 1
    assert caplog.messages == []


def test_no_receipt_is_requested_after_exactly_once_delivery_was_switched_off(once: Once) -> None:
    """The newest response turns it off. A waiting message still waits for its answer."""
    call = once.deliver("a", ordering=False)
    once.stream.deliver("b", ordering=False)
    once.gate.wait_for()
    assert once.gate.begun == ["b"]
    assert not once.manager._in_flight.dispatcher.exactly_once
    call.answer()
    once.gate.wait_for()


def test_a_heartbeat_response_can_switch_exactly_once_delivery_off(once: Once) -> None:
    """Every response says whether delivery is exactly once."""
    once.stream.respond(PONG)
    once.deliver("a").answer()
    once.gate.wait_for()
    once.stream.respond(PONG)
    eventually(lambda: not once.manager._in_flight.dispatcher.exactly_once)


# ---- the end -----------------------------------------------------------------------------------


def test_a_shutdown_returns_messages_without_an_answered_receipt_to_the_server() -> None:
    """No callback begins, even if the answer still comes."""
    running = Once()
    call = running.deliver("a", "b")
    running.stream.end_when_half_closed()
    running.future.cancel()
    assert sorted(running.nacked(2)) == ["a", "b"]
    call.answer()
    assert running.future.result(TIMEOUT) is True
    assert running.gate.begun == []
    assert running.future.statistics().leased == 0


def test_a_draining_shutdown_waits_for_callbacks_after_a_receipt_is_answered() -> None:
    """The answered messages can no longer run, but running callbacks may finish."""
    running = Once()
    running.deliver("a", ordering=False).answer()
    running.gate.wait_for()
    call = running.deliver("late", ordering=False)
    running.stream.end_when_half_closed()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(running.future.close, TIMEOUT, "drain")
        eventually(lambda: "pullstream-drain" in {one.name for one in threading.enumerate()})
        call.answer()
        # The same thread takes this answer after the first one.
        running.calls.answers_extensions = True
        one = running.manager._in_flight.leaser.leased_messages()[0]
        assert one.modify_ack_deadline_with_response(30).result(TIMEOUT)
        assert running.future.running()
        running.gate.open()
        assert closing.result(TIMEOUT) is True
    assert running.acknowledged(1) == ["a"]
    assert running.nacked(1) == ["late"]
