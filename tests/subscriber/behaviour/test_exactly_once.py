"""Exactly-once delivery: callbacks wait for the server's confirmation, and other work does not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pullstream import AcknowledgeError, AcknowledgeStatus
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Events, Gate, Log, Stage, keep, stage
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

EXACTLY_ONCE_IN_ORDER: dict[str, Any] = {
    "enable_exactly_once_delivery": True,
    "enable_message_ordering": True,
}


@pytest.fixture(params=[False, True], ids=["unordered", "ordered"])
def here(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(
        PacedClock(), enable_exactly_once_delivery=True, enable_message_ordering=request.param
    ) as here:
        yield here


def test_an_unanswered_exactly_once_receipt_does_not_block_the_stream_reader(here: Stage) -> None:
    """While the answers hang, responses continue to arrive, and no callback begins."""
    events, log = Events(), Log()
    with here.faults.drop("ModifyAckDeadline") as held:
        here.client.subscribe(SUBSCRIPTION, log, hooks=events)
        for number in range(5):
            here.publish(b"%d" % number, key=f"k{number}")
            held.wait_for_hits(number + 1)
        assert events.received_count == 5
        assert log.data == []
    log.wait_for(5)
    eventually(lambda: here.backlog == 0)
    assert len(log.messages) == 5


def test_an_unordered_exactly_once_message_does_not_wait_for_receipts_of_other_responses() -> None:
    """Without ordering, later messages overtake a hanging confirmation."""
    with stage(enable_exactly_once_delivery=True) as here:
        log = Log()
        with here.faults.drop("ModifyAckDeadline", times=1) as held:
            here.client.subscribe(SUBSCRIPTION, log)
            here.publish(b"hangs")
            held.wait_for_hits()
            here.publish(b"passes")
            log.wait_for(1)
            assert log.data == [b"passes"]
        log.wait_for(2)


def test_an_exactly_once_message_with_an_expired_ack_id_is_dropped_and_a_hook_is_called(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is handled once, after the confirmation of its new delivery."""
    events, log = Events(), Log()
    # The subscription's clock does not move, as if its process had been stopped.
    with here.faults.drop("ModifyAckDeadline", times=1) as held:
        manager = here.manage(log, clock=ManualClock(), hooks=(events,))
        here.publish(b"a", key="k")
        held.wait_for_hits()
        assert isinstance(here.clock, ManualClock)
        here.clock.advance(61)
        eventually(lambda: events.received_count == 2)
    with caplog.at_level(logging.WARNING):
        log.wait_for(1)
        eventually(lambda: here.backlog == 0)
        eventually(lambda: events.lost == [(b"a", "expired")])
    assert log.data == [b"a"]
    statistics = manager.future.statistics()
    assert (statistics.expired, statistics.acked) == (1, 1)
    assert "expired" in caplog.text


@pytest.mark.parametrize("first_answered", [0, 1])
def test_an_ordering_key_whose_ack_ids_all_expired_restarts_with_its_first_message(
    first_answered: int,
) -> None:
    """Redelivered messages are handled once and in order, in every order of the confirmations."""
    with stage(**EXACTLY_ONCE_IN_ORDER, return_leases_on_disconnect=True) as here:
        events, log = Events(), Log()
        here.client.subscribe(SUBSCRIPTION, log, hooks=events)
        hanging = []
        for data in (b"1", b"2"):
            hanging.append(here.faults.drop("ModifyAckDeadline", times=1))
            here.publish(data, key="k")
            hanging[-1].wait_for_hits()
        # Their leases end, and both are redelivered after the hanging deliveries.
        here.faults.abort_streams(Unavailable("away"))
        eventually(lambda: events.received_count == 4)
        hanging[first_answered].lift()
        eventually(lambda: len(events.lost) == 1)
        hanging[1 - first_answered].lift()
        eventually(lambda: here.backlog == 0)
    assert log.data == [b"1", b"2"]


def test_messages_of_a_response_whose_ack_ids_all_expired_are_redelivered_in_order() -> None:
    """The server reports both messages at once."""
    with stage(**EXACTLY_ONCE_IN_ORDER, return_leases_on_disconnect=True) as here:
        events, log = Events(), Log()
        with here.faults.drop("ModifyAckDeadline", times=1) as held:
            here.publish(b"1", b"2", b"3", key="k")
            here.client.subscribe(SUBSCRIPTION, log, hooks=events)
            held.wait_for_hits()
            here.faults.abort_streams(Unavailable("away"))
            eventually(lambda: events.received_count == 6)
        eventually(lambda: here.backlog == 0)
    assert log.data == [b"1", b"2", b"3"]


def test_leases_are_extended_while_an_exactly_once_receipt_has_no_answer(here: Stage) -> None:
    """The leases of the running message and of the unconfirmed one are both extended."""
    events, gate = Events(), Gate()
    here.manage(gate, hooks=(events,))
    here.publish(b"runs", key="k1")
    gate.wait_for(1)
    with here.faults.drop("ModifyAckDeadline", times=1) as held:
        here.publish(b"waits", key="k2")
        held.wait_for_hits()
        here.advance(200)
        assert here.free() == []
        assert gate.data == [b"runs"]
    gate.open(2)
    eventually(lambda: here.backlog == 0)
    assert gate.data == [b"runs", b"waits"]
    assert events.lost == []
    # As in the official clients. A lost lease would also lose the disposition.
    assert {seconds for _, seconds in events.extensions} == {60}


def test_an_exactly_once_ack_after_the_end_of_the_lease_fails_with_invalid_ack_id(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The server refuses the extension of a lease that is over.

    The hook gets the lost message, flow control stops counting it, and a later acknowledgement
    fails.
    """
    clock, events, log = ManualClock(), Events(), Log(keep)
    manager = here.manage(log, clock=clock, hooks=(events,))
    here.publish(b"a")
    (message,) = log.wait_for(1)
    # The lease ends without the subscription's knowledge.
    here.other.modify_ack_deadline(
        subscription=SUBSCRIPTION, ack_ids=[message.ack_id], ack_deadline_seconds=0
    )
    again = log.wait_for(2)[1]
    with caplog.at_level(logging.WARNING):
        clock.advance(48)
        eventually(lambda: events.lost == [(b"a", "expired")])
    eventually(lambda: manager.future.statistics().leased == 1)
    late = message.ack_with_response().exception(TIMEOUT)
    assert isinstance(late, AcknowledgeError)
    assert late.error_code is AcknowledgeStatus.INVALID_ACK_ID
    assert again.ack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert here.backlog == 0
    # The broker has asked for a repeat of the other extension, for which the end would wait.
    clock.advance(1)


def test_after_the_retry_of_a_failed_exactly_once_ack_the_later_acks_of_its_key_succeed() -> None:
    """Acknowledgements behind a failed one succeed together.

    Each is refused until the previous one has succeeded. If they were sent one by one with growing
    pauses, their key would wait for minutes.
    """
    clock, events, log = PacedClock(), Events(), Log(keep)
    with stage(enable_exactly_once_delivery=True, enable_message_ordering=True) as here:
        here.manage(log, clock=clock, hooks=(events,))
        here.publish(*(b"%d" % number for number in range(40)), key="k")
        futures = []
        with here.faults.error("Acknowledge", Unavailable("busy"), times=1):
            for message in log.wait_for(40):
                futures.append(message.ack_with_response())
                eventually(lambda: len(events.request_errors) == len(futures))

        here.pass_time(clock, lambda: all(future.done() for future in futures))
        assert {future.result(0) for future in futures} == {AcknowledgeStatus.SUCCESS}
        assert here.backlog == 0
    assert len(events.request_errors) < 50
