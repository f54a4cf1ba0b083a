"""The end of a subscription: every part stopped, every message returned, nothing left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pullstream.hooks import Hooks
from pullstream.message import Message
from pullstream.scheduling.scheduler import Scheduler, ThreadScheduler
from pullstream.streaming import shutdown as shutdown_module
from tests.subscriber.streaming.fakes import TIMEOUT, UnaryCall, eventually
from tests.subscriber.streaming.managed import Gate, Managed
from tests.subscriber.streaming.scripted_stream import ScriptedCalls
from tests.threads import assert_ended_since


def test_messages_that_arrive_during_a_subscriptions_shutdown_are_returned_to_the_server() -> None:
    """The server still sends until it has seen the half-close."""
    running = Managed(Message.ack)
    running.future.cancel()
    running.stream.deliver("late")
    running.stream.end()
    assert running.future.result(TIMEOUT) is True
    assert running.nacked(1) == ["late"]
    statistics = running.future.statistics()
    assert (statistics.received, statistics.leased, statistics.leased_bytes) == (1, 0, 0)


def test_a_draining_shutdown_returns_waiting_messages_before_it_waits_for_callbacks() -> None:
    """A waiting message is queued or held for its key. Other subscribers need not wait for it."""
    gate = Gate()
    running = Managed(gate, workers=1, await_callbacks=True)
    running.stream.deliver("1", "held", key="k")
    gate.wait_for()
    running.stream.deliver("waiting")
    eventually(lambda: len(running.manager._in_flight.leaser) == 3)
    running.stream.end_when_half_closed()
    running.future.cancel()
    assert sorted(running.nacked(2)) == ["held", "waiting"]
    assert running.future.running()
    gate.open()
    assert running.future.result(TIMEOUT) is True
    assert running.acknowledged(1) == ["1"]
    assert running.calls.modified.empty()


def test_a_user_hook_that_never_returns_does_not_hold_up_the_shutdown_of_a_subscription() -> None:
    """The hook runs on a thread that the shutdown waits for only for a limited time."""
    entered, leave = threading.Event(), threading.Event()

    class Stuck(Hooks):
        def extended(self, subscription: str, messages: int, seconds: int) -> None:
            entered.set()
            assert leave.wait(3 * TIMEOUT)

    gate = Gate()
    running = Managed(gate, hooks=[Stuck()])
    running.stream.end_when_half_closed()
    running.stream.deliver("a")
    gate.wait_for()
    running.clock.advance(48)
    assert entered.wait(TIMEOUT)
    running.future.begin_close(timeout=1.0, mode="nack")
    assert running.future.result(TIMEOUT) is True
    leave.set()
    gate.open()


def test_a_shutdown_returns_messages_to_the_server_even_if_the_scheduler_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The failure is logged, messages are returned, and the future is resolved."""

    class Broken(ThreadScheduler):
        def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
            super().shutdown(await_msg_callbacks)
            raise AttributeError("'tuple' object has no attribute 'nack'")

    gate = Gate()
    running = Managed(gate, scheduler=Broken(max_workers=1))
    running.stream.deliver("a", "b")
    gate.wait_for()
    with caplog.at_level(logging.ERROR):
        running.stop()
    assert running.future.result(TIMEOUT) is True
    assert sorted(running.nacked(2)) == ["a", "b"]
    assert [record.message for record in caplog.records] == ["a step of the shutdown failed"]
    gate.open()


class FullAfterOne(Scheduler):
    """A user's scheduler that accepts one message and then no more."""

    def __init__(self) -> None:
        self._own = ThreadScheduler(max_workers=1)
        self._taken = 0

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        self._taken += 1
        if self._taken > 1:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._own.schedule(callback, *args)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        return self._own.shutdown(await_msg_callbacks)


def test_a_scheduler_that_refuses_messages_ends_its_subscription_with_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new message or the next one of a key cannot run, and it is returned."""
    for key in ("", "k"):
        running = Managed(Message.ack, scheduler=FullAfterOne())
        running.stream.deliver("1", "2", key=key)
        running.stream.end_when_half_closed()
        error = running.future.exception(TIMEOUT)
        assert str(error) == "cannot schedule new futures after shutdown"
        assert running.nacked(1) == ["2"]


def test_a_stopped_subscription_leaves_no_thread_and_no_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No thread and no timer remain, even if the server never ends its side."""
    monkeypatch.setattr("pullstream.streaming.consumer.HALF_CLOSE_WAIT", 0.01)
    before = set(threading.enumerate())
    for ends in (True, False):
        running = Managed(Message.ack)
        running.stream.deliver("a")
        assert running.acknowledged(1) == ["a"]
        if ends:
            running.stream.end_when_half_closed()
        running.future.cancel()
        assert running.future.result(TIMEOUT) is True
        assert_ended_since(before)
        assert running.clock._wakers == []


def test_an_unanswered_ack_fails_at_a_time_limit_and_does_not_hold_up_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shutdown gives it up after a time limit, and its future has the error."""
    monkeypatch.setattr(shutdown_module, "FLUSH_TIMEOUT", 0.01)
    futures = []

    def acknowledge(message: Message) -> None:
        futures.append(message.ack_with_response())

    monkeypatch.setattr(ScriptedCalls, "send", lambda calls, request: UnaryCall())
    running = Managed(acknowledge)
    running.stream.deliver("a")
    eventually(lambda: bool(futures))
    running.stop()
    assert "sent, but the subscription was shut down" in str(futures[0].exception(timeout=0))
