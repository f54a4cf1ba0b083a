"""The way of a message through its callback, and when the next of its key begins."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from subscriber.message import Message, Verdict
from subscriber.scheduler import Scheduler
from subscriber.streaming.callbacks import CallbackRunner, is_coroutine_function
from subscriber.streaming.messages_on_hold import MessagesOnHold
from tests.subscriber.streaming.fakes import PATIENCE, ids, message


class ByHand(Scheduler):
    """Callbacks begin when a test says so, and run where it says so."""

    def __init__(self) -> None:
        self._scheduled: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.closed = False

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        if self.closed:
            raise RuntimeError("no more")
        self._scheduled.append((callback, args))

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        self.closed = True
        return []

    @property
    def names(self) -> list[str]:
        """What is scheduled and has not begun."""
        return [one.ack_id for _, (one,) in self._scheduled]

    def run_next(self) -> None:
        callback, args = self._scheduled.pop(0)
        result = callback(*args)
        if asyncio.iscoroutine(result):
            asyncio.run(result)


class Rig:
    """A runner whose neighbours are played by a test."""

    def __init__(
        self, callback: Callable[[Message], Any], *, release_after_ack: bool = False
    ) -> None:
        self.scheduler = ByHand()
        self.hold = MessagesOnHold()
        self.nacked: list[str] = []
        self.errors: list[Exception] = []
        self.runner = CallbackRunner(
            callback,
            self.scheduler,
            self.hold,
            nack=self._nack,
            stop=self.errors.append,
            release_after_ack=release_after_ack,
        )

    def _nack(self, messages: Sequence[Message]) -> None:
        self.nacked += ids(messages)

    def receive(self, *ack_ids: str, key: str = "k", in_order: bool = True) -> list[Message]:
        messages = [message(ack_id, key=key) for ack_id in ack_ids]
        self.runner.begin(messages, in_order=in_order)
        return messages

    def settle(self, one: Message, decide: Callable[[Message], object] = Message.ack) -> None:
        """A verdict that comes from somewhere, and the dispatcher's report of it."""
        decide(one)
        self.report(one)

    def report(self, one: Message) -> None:
        """What the dispatcher tells after a verdict."""
        by_verdict: dict[Verdict | None, list[Message]] = {one.settled: [one]}
        self.runner.settled(
            by_verdict.get(Verdict.ACK, []),
            by_verdict.get(Verdict.NACK, []),
            by_verdict.get(Verdict.DROP, []),
        )


def keep(one: Message) -> None:
    """A callback that leaves the verdict to somebody else."""


# ---- whether a callback runs ---------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_settled_before_its_turn_is_not_run(in_order: bool, is_async: bool) -> None:
    """Given up or given back while it waited: it is not ours any more."""
    run: list[str] = []

    def callback(one: Message) -> None:
        run.append(one.ack_id)
        one.ack()

    async def coroutine(one: Message) -> None:
        callback(one)

    rig = Rig(coroutine if is_async else callback)
    first, _ = rig.receive("a", "b", in_order=in_order, key="")
    first.settled = Verdict.DROP
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert run == ["b"]


def test_what_a_shutdown_has_given_back_is_not_given_back_again() -> None:
    """With exactly-once delivery it may be confirmed after that."""
    rig = Rig(keep)
    rig.hold.give_up()
    messages = [message(ack_id, key="k") for ack_id in ("a", "b")]
    messages[0].settled = Verdict.NACK
    rig.runner.begin(messages, in_order=True)
    assert rig.nacked == ["b"]


def test_a_message_dropped_before_its_turn_does_not_end_its_key() -> None:
    """What is held behind it is given back, and its own redelivery begins the key again."""
    rig = Rig(Message.ack)
    first, _ = rig.receive("1", "2")
    first.settled = Verdict.DROP
    rig.scheduler.run_next()
    assert rig.nacked == ["2"]
    rig.receive("3")
    assert rig.nacked == ["2", "3"]
    rig.receive("1/again")
    assert rig.scheduler.names == ["1/again"]


@pytest.mark.parametrize("in_order", [False, True])
def test_a_coroutine_is_awaited(in_order: bool) -> None:
    """And its message is handled when it has ended, not when it was begun."""
    steps: list[str] = []

    async def callback(one: Message) -> None:
        steps.append(f"{one.ack_id} begins")
        await asyncio.sleep(0)
        steps.append(f"{one.ack_id} ends")
        one.ack()

    rig = Rig(callback)
    rig.receive("1", "2", in_order=in_order)
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert steps == ["1 begins", "1 ends", "2 begins", "2 ends"]


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_raises_is_nacked_counted_and_logged(
    error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a coroutine a cancelled one as well; with its key it takes what is held behind it."""

    def callback(one: Message) -> None:
        raise error

    async def coroutine(one: Message) -> None:
        raise error

    rig = Rig(coroutine if is_async else callback)
    first, _ = rig.receive("1", "2")
    with caplog.at_level(logging.ERROR):
        rig.scheduler.run_next()
    assert first.settled is Verdict.NACK
    assert (rig.nacked, rig.runner.errors) == (["2"], 1)
    assert [record.message for record in caplog.records] == [
        "callback raised for message 1, which is nacked"
    ]


def test_what_raises_after_its_verdict_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    """The next of its key begins: the message is handled."""

    def callback(one: Message) -> None:
        one.ack()
        raise ValueError("too late")

    rig = Rig(callback)
    (first, _) = rig.receive("1", "2")
    rig.scheduler.run_next()
    assert (first.settled, rig.runner.errors) == (Verdict.ACK, 1)
    assert (rig.nacked, rig.scheduler.names) == ([], ["2"])


def test_whatever_is_a_coroutine_function_is_taken_for_one() -> None:
    """Also an object that is called like one, and not a plain function."""

    class Handler:
        async def __call__(self, one: Message) -> None: ...

        async def method(self, one: Message) -> None: ...

    assert is_coroutine_function(Handler())
    assert is_coroutine_function(Handler().method)
    assert is_coroutine_function(functools.partial(Handler.method, Handler()))
    assert not is_coroutine_function(keep)


# ---- the turns of a key --------------------------------------------------------------------------


def test_the_next_of_a_key_begins_when_the_callback_has_ended() -> None:
    """Whether or not there is a verdict by then, unless the user wants it otherwise."""
    rig = Rig(keep)
    rig.receive("1", "2", "3")
    assert rig.scheduler.names == ["1"]
    rig.scheduler.run_next()
    assert rig.scheduler.names == ["2"]
    rig.scheduler.run_next()
    assert rig.scheduler.names == ["3"]


def test_after_the_verdict_inside_the_callback_the_next_waits_for_its_end() -> None:
    """Verdict first, callback second: the report of the dispatcher changes nothing."""
    seen: list[list[str]] = []

    def settle_and_look(one: Message) -> None:
        rig.settle(one)
        seen.append(rig.scheduler.names)

    rig = Rig(settle_and_look, release_after_ack=True)
    first, _ = rig.receive("1", "2")
    rig.scheduler.run_next()
    assert seen == [[]]
    assert rig.scheduler.names == ["2"]
    rig.report(first)
    assert rig.scheduler.names == ["2"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_after_the_callback_without_a_verdict_the_next_waits_for_that(elsewhere: bool) -> None:
    """Callback first, verdict second, on this thread or another; the next begins once."""
    rig = Rig(keep, release_after_ack=True)
    first, *_ = rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    assert rig.scheduler.names == []
    if elsewhere:
        thread = threading.Thread(target=rig.settle, args=(first,))
        thread.start()
        thread.join(PATIENCE)
    else:
        rig.settle(first)
    assert rig.scheduler.names == ["2"]
    rig.settle(first)
    assert rig.scheduler.names == ["2"]


def test_an_ended_callback_without_a_verdict_holds_up_only_its_key() -> None:
    """Others go on, and messages without a key have nothing to wait for."""
    rig = Rig(keep, release_after_ack=True)
    rig.receive("1", "2", key="a")
    rig.receive("3", "4", key="")
    rig.receive("5", key="b")
    assert rig.scheduler.names == ["1", "3", "4", "5"]
    for _ in range(4):
        rig.scheduler.run_next()
    assert rig.scheduler.names == []
    assert len(rig.hold) == 1


def test_a_verdict_between_the_end_and_the_look_at_it_begins_the_next_once() -> None:
    """The dispatcher reports it as the callback ends: one of the two goes on, never both."""

    class Moments(dict[Message, bool]):
        """A message that has just been taken in is settled before its worker looks again."""

        def __init__(self, reported: bool) -> None:
            super().__init__()
            self._reported = reported

        def __setitem__(self, one: Message, value: bool) -> None:
            super().__setitem__(one, value)
            one.ack()
            if self._reported:
                rig.report(one)

    for reported in (False, True):
        rig = Rig(keep, release_after_ack=True)
        rig.runner._without_verdict = Moments(reported)
        first, *_ = rig.receive("1", "2", "3")
        rig.scheduler.run_next()
        assert rig.scheduler.names == ["2"]
        rig.report(first)
        assert rig.scheduler.names == ["2"]


def test_the_end_and_the_verdict_may_race() -> None:
    """With real threads, a few thousand times: the next of the key begins exactly once."""
    rig = Rig(keep, release_after_ack=True)
    begin, end = threading.Barrier(2), threading.Barrier(2)
    rounds = 3_000
    current: list[Message] = []

    def settle() -> None:
        for _ in range(rounds):
            begin.wait(PATIENCE)
            rig.settle(current[0])
            end.wait(PATIENCE)

    thread = threading.Thread(target=settle)
    thread.start()
    messages = rig.receive(*map(str, range(rounds + 1)))
    for number in range(rounds):
        current[:] = [messages[number]]
        begin.wait(PATIENCE)
        rig.scheduler.run_next()
        end.wait(PATIENCE)
        assert rig.scheduler.names == [str(number + 1)]
    thread.join(PATIENCE)


@pytest.mark.parametrize("release_after_ack", [False, True])
@pytest.mark.parametrize("decide", [Message.nack, Message.drop])
def test_a_failure_inside_the_callback_gives_back_what_is_held(
    release_after_ack: bool, decide: Callable[[Message], object]
) -> None:
    """Once, by the worker or by the dispatcher's report, whichever comes first."""
    rig = Rig(decide, release_after_ack=release_after_ack)
    first, *_ = rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    assert rig.nacked == ["2", "3"]
    rig.receive("1/again", "2/again")
    rig.report(first)
    assert rig.nacked == ["2", "3"]
    assert (rig.scheduler.names, len(rig.hold)) == (["1/again"], 1)


@pytest.mark.parametrize("decide", [Message.nack, Message.drop])
def test_a_late_failure_gives_back_what_is_held_then_once(
    decide: Callable[[Message], object],
) -> None:
    """The next one may run by then, and goes on; a second report of the failure is none."""
    rig = Rig(keep)
    first, *_ = rig.receive("1", "2", "3", "4")
    rig.scheduler.run_next()
    rig.settle(first, decide)
    assert rig.nacked == ["3", "4"]
    assert rig.scheduler.names == ["2"]
    rig.scheduler.run_next()
    assert rig.scheduler.names == []
    rig.receive("1/again", "2/again")
    rig.report(first)
    assert rig.nacked == ["3", "4"]
    assert (rig.scheduler.names, len(rig.hold)) == (["1/again"], 1)


def test_a_late_failure_that_ends_the_turn_begins_nothing_but_the_redelivery() -> None:
    """With the next one waiting for the verdict: all that is held goes back."""
    rig = Rig(keep, release_after_ack=True)
    first, *_ = rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    rig.settle(first, Message.nack)
    assert (rig.nacked, rig.scheduler.names) == (["2", "3"], [])
    rig.receive("4")
    assert rig.nacked == ["2", "3", "4"]
    rig.receive("1/again")
    assert rig.scheduler.names == ["1/again"]


def test_on_a_subscription_without_order_a_verdict_ends_no_turn() -> None:
    """Keys mean nothing there; should order be switched on, they begin with a clean slate."""
    rig = Rig(keep, release_after_ack=True)
    first, _ = rig.receive("1", "2", in_order=False)
    assert rig.scheduler.names == ["1", "2"]
    rig.scheduler.run_next()
    rig.settle(first, Message.nack)
    assert (rig.nacked, rig.scheduler.names) == ([], ["2"])
    rig.receive("3")
    assert (rig.nacked, rig.scheduler.names) == ([], ["2", "3"])


def test_without_a_place_to_run_the_next_the_subscription_ends() -> None:
    """It is told why; the shutdown gives the message back."""
    rig = Rig(Message.ack)
    rig.receive("1", "2")
    rig.scheduler.closed = True
    rig.scheduler.run_next()
    assert [str(error) for error in rig.errors] == ["no more"]
