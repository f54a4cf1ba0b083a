"""Hooks: their calls, and their failures, which do no harm."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.hooks import Callback, Hooks, HookSet
from pullstream.message import Message
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Statistics
from pullstream_protocol.errors import FailedPrecondition, PermissionDenied, RpcError, Unavailable
from tests.subscriber.streaming.fakes import TIMEOUT, eventually, ids
from tests.subscriber.streaming.managed import SUBSCRIPTION, Gate, managed

EVENTS = [name for name, method in vars(Hooks).items() if callable(method) and name != "wrap"]


class Told(Hooks):
    """Hooks that record each call by event."""

    def __init__(self) -> None:
        self._heard: dict[str, queue.SimpleQueue[tuple[Any, ...]]] = {
            name: queue.SimpleQueue() for name in EVENTS
        }

    def next(self, event: str) -> tuple[Any, ...]:
        """Return the arguments of the next call for an event, or fail after TIMEOUT.

        The first argument is the name of the subscription.
        """
        return self._heard[event].get(timeout=TIMEOUT)

    def subscribed(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        self._heard["subscribed"].put((subscription, statistics))

    def received(self, subscription: str, messages: Sequence[Message]) -> None:
        self._heard["received"].put((subscription, ids(messages)))

    def settled(
        self, subscription: str, acked: Sequence[Message], nacked: Sequence[Message]
    ) -> None:
        self._heard["settled"].put((subscription, ids(acked), ids(nacked)))

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: str) -> None:
        self._heard["lease_lost"].put((subscription, ids(messages), why))

    def request_done(
        self,
        subscription: str,
        kind: str,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        self._heard["request_done"].put((subscription, kind, ack_ids, seconds, error))

    def refused(self, subscription: str, failures: Mapping[str, AcknowledgeError]) -> None:
        self._heard["refused"].put((subscription, failures))


# ---- the hook set ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("in a hook"), SystemExit("leaving")])
@pytest.mark.parametrize("event", EVENTS)
def test_an_exception_of_a_telemetry_hook_is_logged_and_the_other_hooks_are_called(
    event: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """No exception of a hook reaches the caller, not even SystemExit."""

    def fail(self: object, *args: object) -> None:
        raise error

    failing = type("Failing", (Hooks,), {event: fail})()
    calls: list[tuple[Any, ...]] = []
    told = type("Telling", (Hooks,), {event: lambda self, *args: calls.append(args)})()
    hooks = HookSet(SUBSCRIPTION, [failing, told])
    with caplog.at_level(logging.ERROR):
        hooks.tell(event, 1, "two")
    assert calls == [(SUBSCRIPTION, 1, "two")]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("event", EVENTS)
def test_methods_of_a_hooks_subclass_that_are_not_overridden_are_not_called(
    event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook costs only the events that it overrides."""

    def trap(self: object, *args: object) -> None:
        raise AssertionError("called")

    class Plain(Hooks):
        def unrelated(self) -> None: ...

    hooks = HookSet(SUBSCRIPTION, [Plain()])
    assert hooks._listening[event] == []
    monkeypatch.setattr(Hooks, event, trap)
    hooks.tell(event)


def test_the_callback_wrapper_of_the_first_telemetry_hook_is_the_outermost_one() -> None:
    """Hooks wrap like decorators from top to bottom. A hook without `wrap` changes nothing."""
    steps: list[str] = []

    class Wrapping(Hooks):
        def __init__(self, name: str) -> None:
            self._name = name

        def wrap(self, subscription: str, callback: Callback) -> Callback:
            def wrapped(message: Message) -> None:
                steps.append(f"{self._name} of {subscription} begins")
                callback(message)
                steps.append(f"{self._name} ends")

            return wrapped

    hooks = HookSet("s", [Wrapping("first"), Told(), Wrapping("second")])
    hooks.wrap(lambda message: steps.append("callback"))(None)
    assert steps == [
        "first of s begins",
        "second of s begins",
        "callback",
        "second ends",
        "first ends",
    ]


# ---- events of a subscription ------------------------------------------------------------------


def test_telemetry_hooks_are_called_when_messages_are_received_and_settled() -> None:
    """Hooks get whole responses, with acks and nacks apart, and the call about each."""
    told = Told()

    def settle(message: Message) -> None:
        message.nack() if message.ack_id == "bad" else message.ack()

    with managed(settle, hooks=[told], workers=1) as running:
        subscription, statistics = told.next("subscribed")
        assert (subscription, statistics().state) == (SUBSCRIPTION, running.future.state)
        running.stream.deliver("good", "bad")
        assert told.next("received") == (SUBSCRIPTION, ["good", "bad"])
        settled = [told.next("settled")]
        if len(settled[0][1]) + len(settled[0][2]) == 1:
            settled.append(told.next("settled"))
        assert [one for _, acked, _ in settled for one in acked] == ["good"]
        assert [one for _, _, nacked in settled for one in nacked] == ["bad"]
        done = sorted(told.next("request_done") for _ in range(2))
        assert done == [
            (SUBSCRIPTION, "acknowledge", 1, 0.0, None),
            (SUBSCRIPTION, "modify_ack_deadline", 1, 0.0, None),
        ]
    assert statistics().state is SubscriptionState.CLOSED


def test_telemetry_hooks_are_not_called_for_a_pull_response_without_messages() -> None:
    """The answer to a heartbeat has no messages."""
    told = Told()
    with managed(Message.ack, hooks=[told]) as running:
        running.stream.deliver()
        running.stream.deliver("a")
        assert told.next("received") == (SUBSCRIPTION, ["a"])


def test_telemetry_hooks_are_not_called_for_the_settlement_of_a_dropped_message() -> None:
    """A dropped message has no disposition that the server will get."""
    told = Told()

    def drop_or_ack(message: Message) -> None:
        message.drop() if message.ack_id == "dropped" else message.ack()

    with managed(drop_or_ack, hooks=[told], workers=1) as running:
        running.stream.deliver("dropped")
        eventually(lambda: len(running.manager._in_flight.leaser) == 0)
        running.stream.deliver("a")
        assert told.next("settled") == (SUBSCRIPTION, ["a"], [])


def test_telemetry_hooks_get_the_servers_error_for_each_refused_ack_id() -> None:
    """Hooks get the server's error for each refused id, and the failed call."""
    told = Told()
    with managed(Message.ack, hooks=[told]) as running:
        running.calls.acknowledge_error = PermissionDenied("not yours")
        running.stream.deliver("a")
        subscription, failures = told.next("refused")
        assert subscription == SUBSCRIPTION
        assert failures["a"].error_code is AcknowledgeStatus.PERMISSION_DENIED
        *_, error = told.next("request_done")
        assert isinstance(error, PermissionDenied)


def test_a_refused_lease_extension_is_reported_to_telemetry_hooks_as_a_lost_lease() -> None:
    """With exactly-once delivery the server names the expired ids."""
    told, gate = Told(), Gate()
    with managed(gate, hooks=[told]) as running:
        running.stream.deliver("a", "b", exactly_once=True)
        gate.wait_for(2)
        running.calls.answers_extensions = False
        running.clock.advance(48)
        ack_ids, call = running.calls.next_extension()
        assert ack_ids == ["a", "b"]
        named = {"b": "PERMANENT_FAILURE_INVALID_ACK_ID"}
        # The other ID has no answer yet, and is sent again.
        running.calls.answers_extensions = True
        call.answer_with(FailedPrecondition("over", reason="R", metadata=named))
        assert told.next("lease_lost") == (SUBSCRIPTION, ["b"], "expired")
        assert list(told.next("refused")[1]) == ["b"]
        assert running.future.statistics().expired == 1
        gate.open(2)


def fail(*args: object) -> None:
    raise ValueError("in a hook")


def test_a_subscription_whose_hooks_always_raise_handles_its_messages_normally(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Messages are handled, leases extended or given up, and the subscription ends normally."""
    gate = Gate()
    failing = type("Failing", (Hooks,), dict.fromkeys(EVENTS, fail))()
    with managed(gate, hooks=[failing], max_lease_duration=50) as running:
        running.stream.deliver("a")
        gate.wait_for()
        gate.open()
        assert running.acknowledged(1) == ["a"]
        running.stream.deliver("b")
        gate.wait_for()
        running.clock.advance(48)
        assert running.calls.modified.get(timeout=TIMEOUT) == ("b", 10)
        running.clock.advance(2)
        eventually(lambda: running.future.statistics().expired == 1)
        gate.open()
        running.stream.end(Unavailable("down"))
        eventually(lambda: running.future.state is SubscriptionState.RECONNECTING)
        running.clock.advance(1)
        running.stream = running.calls.next_stream()
    assert running.future.result(TIMEOUT) is True
    # All raise in one line, so the log has one traceback, and at the end the number.
    first, last = (record for record in caplog.records if "raised" in record.message)
    assert first.exc_info is not None
    assert last.exc_info is None
    assert int(last.message.rsplit(" times in", 1)[0].rsplit(" ", 1)[1]) >= 7
