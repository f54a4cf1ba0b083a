"""The work of holding messages grows with their number, and no faster.

The tests count executed instructions, so a busy machine does not change the result.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest

from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.flow_control import FlowControl
from pullstream.message import Disposition, Message
from pullstream.streaming import messages_on_hold
from pullstream.streaming.ack_requests import AckRequest, Purpose
from pullstream.streaming.failed_key import Actions
from pullstream.streaming.messages_on_hold import MessagesOnHold
from pullstream.streaming.receipts import ReceiptGate
from tests.subscriber.streaming.fakes import message
from tests.subscriber.streaming.test_in_flight import World

SIZE = 60
FACTOR = 4

# A quadratic step has the exponent 2. An exponent of 1 is a little exceeded by binary searches.
LARGEST_EXPONENT = 1.2

Work = Callable[[], object]


def instructions(work: Work) -> int:
    """Return the number of instructions of the interpreter that `work` executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def assert_grows_linearly(prepare: Callable[[int], Work]) -> None:
    """Assert that the work of `prepare` grows no faster than its size."""
    few = instructions(prepare(SIZE))
    many = instructions(prepare(SIZE * FACTOR))
    exponent = math.log(many / few, FACTOR)
    assert exponent < LARGEST_EXPONENT, f"exponent {exponent:.2f}: {few:,} and {many:,}"


def grows_linearly(prepare: Callable[[int], Work]) -> Callable[[], None]:
    """Make a test of a function that prepares work of a size."""

    # functools.wraps is unsuitable: pytest would look for a fixture named size.
    def test() -> None:
        assert_grows_linearly(prepare)

    test.__doc__ = prepare.__doc__
    return test


def deliveries(count: int, delivery: str = "", key: str = "k") -> list[Message]:
    return [message(f"{number}/{key}{delivery}", key=key) for number in range(count)]


def nacked(hold: MessagesOnHold, one: Message, *, taken: bool = True) -> Actions:
    """Fail a running message, and end its turn."""
    one.settled = Disposition.NACK
    actions = hold.failed(one)
    hold.ended(one)
    if taken:
        hold.nacks_accepted([one.ack_id], 0.0)
    return actions


def a_key(limit: int = 10**6) -> MessagesOnHold:
    return MessagesOnHold(FlowControl(max_messages=limit))


@grows_linearly
def test_the_work_for_redeliveries_of_a_key_received_one_by_one_grows_linearly(size: int) -> Work:
    """The server restarts the key, and each message comes in a response of its own."""
    hold, first, again = a_key(), deliveries(size), deliveries(size, "again")
    hold.offer(first, 0.0)

    def work() -> None:
        nacked(hold, first[0])
        for one in again:
            hold.offer([one], 1.0)

    return work


@grows_linearly
def test_the_work_for_repeated_failures_in_one_ordering_key_grows_linearly(size: int) -> Work:
    """Every message of the key fails once, and the others stay held, as with Google's emulator."""
    hold, first, again = a_key(), deliveries(size), deliveries(size, "again")
    hold.offer(first, 0.0)

    def work() -> None:
        running = first[0]
        for number in range(size):
            assert running is first[number]
            nacked(hold, running)
            (repeated,) = hold.offer([again[number]], 1.0).run
            repeated.settled = Disposition.ACK
            following, actions = hold.ended(repeated)
            (running,) = following or (actions.run if actions and actions.run else [running])

    return work


@grows_linearly
def test_the_work_for_redeliveries_before_their_nack_answers_grows_linearly(size: int) -> Work:
    """A redelivery proves nothing then, and stays cheap."""
    hold, first, again = a_key(), deliveries(size), deliveries(size, "again")
    hold.offer(first, 0.0)
    nacked(hold, first[0], taken=False)

    def work() -> None:
        for one in again[1:]:
            hold.offer([one], 1.0)
        hold.offer([again[0]], 1.0)

    return work


@grows_linearly
def test_the_work_to_lose_all_leases_of_an_ordering_key_grows_linearly(size: int) -> Work:
    """All leases end. The returns are answered one by one, and so are the messages redelivered."""
    hold, first, again = a_key(), deliveries(size), deliveries(size, "again")
    hold.offer(first, 0.0)

    def work() -> None:
        hold.lost(first, None)
        hold.ended(first[0])
        for one in first:
            hold.nacks_accepted([one.ack_id], 0.0)
        for one in again:
            hold.offer([one], 1.0)

    return work


@grows_linearly
def test_the_work_for_redeliveries_of_a_key_in_reverse_order_grows_linearly(size: int) -> Work:
    """Redeliveries that may be stale prove nothing, in any order."""
    hold, first, again = a_key(), deliveries(size), deliveries(size, "again")
    hold.offer(first, 0.0)
    hold.lost(first, None)
    hold.ended(first[0])
    hold.nacks_accepted([one.ack_id for one in first], 0.0)

    def work() -> None:
        for one in reversed(again):
            one.batch.may_be_stale = True
            hold.offer([one], 1.0)

    return work


@grows_linearly
def test_the_work_to_ack_all_messages_of_a_redelivered_key_grows_linearly(size: int) -> Work:
    """The held messages run one after the other, alone or in lists."""
    hold, first = a_key(), deliveries(size)
    hold.offer(first, 0.0)
    nacked(hold, first[0])
    (again,) = hold.offer([message("0/again", key="k")], 1.0).run

    def work() -> None:
        running: Message | None = again
        while running is not None:
            shared = hold.take_behind(running, 1)
            for one in (running, *shared):
                one.settled = Disposition.ACK
            following, actions = hold.ended(running, shared)
            running = next(iter(following or (actions.run if actions else ())), None)
        assert len(hold) == 0

    return work


@pytest.mark.parametrize("limit", [20, 10**6])
def test_the_work_for_failures_of_many_ordering_keys_grows_linearly(limit: int) -> None:
    """With and without room for all parked messages."""

    def prepare(size: int) -> Work:
        hold = a_key(limit)
        keys = [deliveries(3, key=str(number)) for number in range(size)]
        for key in keys:
            hold.offer(key, 0.0)

        def work() -> None:
            for key in keys:
                nacked(hold, key[0])
            for key in keys:
                hold.offer(deliveries(3, "again", key[0].ordering_key), 1.0)

        return work

    assert_grows_linearly(prepare)


def test_the_work_for_failed_keys_above_the_limit_of_stored_keys_grows_linearly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the keys hold messages and cannot be forgotten."""
    monkeypatch.setattr(messages_on_hold, "MAX_FAILED_KEYS", 20)

    def prepare(size: int) -> Work:
        hold = a_key()
        keys = [deliveries(1 + (number < size // 2), key=str(number)) for number in range(size)]
        for key in keys:
            hold.offer(key, 0.0)

        def work() -> None:
            for key in keys:
                nacked(hold, key[0])

        return work

    assert_grows_linearly(prepare)


@grows_linearly
def test_the_work_to_end_redelivery_waits_of_many_ordering_keys_grows_linearly(size: int) -> Work:
    """All end, and each key returns its messages."""
    hold = a_key()
    for number in range(size):
        key = deliveries(2, key=str(number))
        hold.offer(key, 0.0)
        nacked(hold, key[0])

    def work() -> None:
        assert len(hold.waits_over(1e6).to_return) == size

    return work


def refused(ack_id: str) -> Mapping[str, AcknowledgeError]:
    return {ack_id: AcknowledgeError(AcknowledgeStatus.INVALID_ACK_ID, "gone")}


@grows_linearly
def test_the_work_for_refused_lease_extensions_grows_linearly(size: int) -> Work:
    """With exactly-once delivery, each refused ack id ends one lease."""
    world = World()
    ack_ids = [str(number) for number in range(size)]
    world.receive(*ack_ids, exactly_once=True)
    world.in_flight.dispatcher.exactly_once = True
    requests = [AckRequest(Purpose.LEASE, [ack_id], 60.0, 60) for ack_id in ack_ids]

    def work() -> None:
        for request in requests:
            world.in_flight.ack_ids_refused(request, refused(request.ack_ids[0]))
        assert world.leased == []

    return work


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("each", [1, 60])
def test_the_work_for_answers_to_exactly_once_receipts_grows_linearly(
    is_refused: bool, each: int
) -> None:
    """Of many responses or of one, answered from the last to the first."""

    def prepare(size: int) -> Work:
        gate, messages = ReceiptGate(), deliveries(size)
        each_response = 1 if each == 1 else size
        for at in range(0, size, each_response):
            gate.hold_messages(messages[at : at + each_response], in_order=True)

        def work() -> None:
            for one in reversed(messages):
                ids = [one.ack_id]
                gate.record_answer(*(((), ids) if is_refused else (ids, ())))
            assert len(gate) == 0

        return work

    assert_grows_linearly(prepare)
