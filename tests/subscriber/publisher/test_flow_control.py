"""Limits on unconfirmed messages."""

import pytest

from pullstream import FlowControlLimitError, LimitExceededBehavior, PublishFlowControl
from pullstream.publisher.flow_control import PublishGauge

BLOCK, ERROR = LimitExceededBehavior.BLOCK, LimitExceededBehavior.ERROR


def nothing() -> None:
    """Do nothing."""


def test_publisher_flow_control_admits_messages_up_to_its_limits_of_messages_and_bytes() -> None:
    """Both limits count, and a message that leaves makes room."""
    gauge = PublishGauge(PublishFlowControl(2, 100, ERROR))
    assert gauge.enter(40, nothing)
    assert gauge.enter(60, nothing)
    with pytest.raises(FlowControlLimitError, match="2 messages with 100 bytes wait"):
        gauge.enter(1, nothing)
    gauge.leave(1, 60)
    with pytest.raises(FlowControlLimitError, match="allows 2 and 100 bytes"):
        gauge.enter(61, nothing)
    assert gauge.enter(60, nothing)


def test_publisher_flow_control_admits_waiting_messages_in_the_order_of_their_arrival() -> None:
    """A small message does not overtake a large one."""
    gauge = PublishGauge(PublishFlowControl(10, 100, BLOCK))
    entered: list[str] = []
    assert gauge.enter(100, nothing)
    assert not gauge.enter(80, lambda: entered.append("large"))
    assert not gauge.enter(10, lambda: entered.append("small"))
    assert not gauge.enter(50, lambda: entered.append("last"))
    for admit in gauge.leave(1, 50):
        admit()
    assert entered == []
    for admit in gauge.leave(0, 50):
        admit()
    assert entered == ["large", "small"]


def test_publisher_flow_control_refuses_a_message_larger_than_its_byte_limit() -> None:
    """Otherwise `publish` would block for ever."""
    gauge = PublishGauge(PublishFlowControl(10, 100, BLOCK))
    with pytest.raises(FlowControlLimitError, match="a message of 101 bytes is above"):
        gauge.enter(101, nothing)


def test_threads_blocked_by_publisher_flow_control_wake_when_the_publisher_is_closed() -> None:
    """The `publish` calls find the publisher closed."""
    gauge = PublishGauge(PublishFlowControl(1, 100, BLOCK))
    gauge.enter(1, nothing)
    entered: list[int] = []
    gauge.enter(1, lambda: entered.append(1))
    for admit in gauge.abandon():
        admit()
    assert entered == [1]
    assert gauge.abandon() == []


def test_a_waiting_message_that_is_withdrawn_uses_no_room_in_publisher_flow_control() -> None:
    """The withdrawn message does not use up room later."""
    gauge = PublishGauge(PublishFlowControl(1, 100, BLOCK))
    gauge.enter(1, nothing)
    entered: list[int] = []

    def admit() -> None:
        entered.append(1)

    gauge.enter(1, admit)
    assert gauge.withdraw(admit)
    assert not gauge.withdraw(admit)
    assert gauge.leave(1, 1) == []
    assert gauge.enter(1, nothing)


def test_a_new_message_does_not_overtake_waiting_ones_that_publisher_flow_control_admits() -> None:
    """The owner runs their functions without its lock, while other threads publish."""
    gauge = PublishGauge(PublishFlowControl(2, 100, BLOCK))
    entered: list[str] = []
    assert gauge.enter(1, nothing)
    assert gauge.enter(1, nothing)
    assert not gauge.enter(1, lambda: entered.append("deferred"))
    admitted = gauge.leave_in_order(2, 2)
    assert not gauge.enter(1, lambda: entered.append("new"))
    # The answer of another request comes on another thread.
    assert gauge.leave_in_order(0, 0) == []
    while admitted:
        for admit in admitted:
            admit()
        admitted = gauge.admitted()
    assert entered == ["deferred", "new"]
    gauge.leave_in_order(2, 2)
    assert gauge.enter(1, nothing)
