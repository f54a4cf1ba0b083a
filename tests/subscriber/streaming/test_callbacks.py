"""Callbacks: the steps of a message, and the start of the next message of its key."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pullstream.columns.portions import Portion, Unit, messages_of
from pullstream.flow_control import FlowControl
from pullstream.message import Disposition, Message
from pullstream.scheduling.scheduler import Scheduler
from pullstream.streaming.callbacks import BatchRunner, CallbackRunner
from pullstream.streaming.failed_key import FIRST_WAIT
from pullstream.streaming.messages_on_hold import MessagesOnHold
from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import TIMEOUT, ids, message, portions
from tests.threads import on_threads


class ByHand(Scheduler):
    """A scheduler whose callbacks begin when and where the test says."""

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
        """Return the messages that are scheduled and have not begun."""
        return [one.ack_id for _, (one,) in self._scheduled]

    def run_next(self) -> None:
        callback, args = self._scheduled.pop(0)
        result = callback(*args)
        if asyncio.iscoroutine(result):
            asyncio.run(result)


class Rig:
    """A runner with its listener. The test plays the other parts."""

    def __init__(self, callback: Callable[[Any], Any], *, release_after_ack: bool = False) -> None:
        self.scheduler = ByHand()
        self.clock = ManualClock()
        self.hold = MessagesOnHold(FlowControl())
        self.given_back: list[str] = []
        self.forgotten: list[str] = []
        self.parked_messages = 0
        self.dues: list[float] = []
        self.errors: list[Exception] = []
        self.runner: CallbackRunner = CallbackRunner(
            callback,
            self.scheduler,
            self.hold,
            listener=self,
            clock=self.clock,
            release_after_ack=release_after_ack,
        )

    # ---- listener methods ------------------------------------------------------------------------

    def return_messages(self, messages: Sequence[Message]) -> None:
        self.given_back += [one.ack_id for one in messages if one.settled is None]

    def return_dropped(self, messages: Sequence[Message]) -> None:
        self.given_back += ids(messages)

    def forget(self, messages: Sequence[Message]) -> None:
        self.forgotten += ids(messages)

    def parked(self, messages: int, size: int) -> None:
        self.parked_messages += messages

    def wait_began(self, due: float) -> None:
        self.dues.append(due)

    def stop(self, error: Exception) -> None:
        self.errors.append(error)

    # ---- test methods ----------------------------------------------------------------------------

    def receive(self, *ack_ids: str, key: str = "k", in_order: bool = True) -> list[Message]:
        messages = [message(ack_id, key=key) for ack_id in ack_ids]
        self.runner.begin_callbacks(messages, in_order=in_order)
        return messages

    def run_one(self) -> None:
        self.receive("1", key="")
        self.scheduler.run_next()

    def settle(self, one: Message, decide: Callable[[Message], object] = Message.ack) -> None:
        """Settle a message, and report it as the dispatcher does."""
        decide(one)
        self.report(one)

    def report(self, one: Message) -> None:
        """Report the settled message as the dispatcher does."""
        by_verdict: dict[Disposition | None, list[Message]] = {one.settled: [one]}
        self.runner.messages_settled(
            by_verdict.get(Disposition.ACK, []),
            by_verdict.get(Disposition.NACK, []),
            by_verdict.get(Disposition.DROP, []),
        )


class ListRig(Rig):
    """A runner whose callback takes lists of at most two messages."""

    def __init__(self, callback: Callable[[list[Unit]], Any]) -> None:
        super().__init__(callback)
        self.lists: BatchRunner = BatchRunner(
            callback,
            self.scheduler,
            self.hold,
            listener=self,
            clock=self.clock,
            max_messages=2,
            max_latency=5.0,
            pack=lambda units: units,
        )
        self.runner = self.lists

    def receive_portions(self, *ack_ids: str, longest: int = 2) -> list[Portion]:
        received = portions(*ack_ids, longest=longest)
        self.lists.begin_portions(received, in_order=False)
        return received


def keep(one: Message) -> None:
    """Settle nothing, so that the test can settle the message."""


# ---- skipped callbacks ---------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_settled_while_it_waits_for_a_worker_is_not_passed_to_the_callback(
    in_order: bool, is_async: bool
) -> None:
    """The message was given up or returned while it waited."""
    run: list[str] = []

    def callback(one: Message) -> None:
        run.append(one.ack_id)
        one.ack()

    async def coroutine(one: Message) -> None:
        callback(one)

    rig = Rig(coroutine if is_async else callback)
    first, _ = rig.receive("a", "b", in_order=in_order, key="")
    first.settled = Disposition.DROP
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert run == ["b"]


def test_a_shutdown_returns_a_waiting_message_to_the_server_only_once() -> None:
    """With exactly-once delivery, a message may be confirmed after the shutdown returned it."""
    rig = Rig(keep)
    rig.runner.give_up_held()
    messages = [message(ack_id, key="k") for ack_id in ("a", "b")]
    messages[0].settled = Disposition.NACK
    rig.runner.begin_callbacks(messages, in_order=True)
    assert rig.given_back == ["b"]


def test_after_a_drop_of_a_waiting_message_later_ones_of_its_key_wait_for_its_redelivery() -> None:
    """Messages held behind it wait for its redelivery, which restarts the key."""
    rig = Rig(Message.ack)
    first, _ = rig.receive("1", "2")
    first.settled = Disposition.DROP
    rig.scheduler.run_next()
    rig.receive("3")
    assert (rig.scheduler.names, len(rig.hold), rig.parked_messages) == ([], 2, 2)
    rig.receive("1/again")
    assert (rig.scheduler.names, rig.parked_messages) == (["1/again"], 0)


def test_a_dropped_message_with_an_ordering_key_is_returned_to_the_server_once() -> None:
    """Otherwise the server would send later messages of the key until the lease ends."""
    rig = Rig(Message.drop)
    first, _ = rig.receive("1", "2")
    rig.scheduler.run_next()
    rig.report(first)
    assert (rig.given_back, rig.parked_messages) == (["1"], 1)
    rig.runner.nacks_answered(["1"], rig.clock.monotonic())
    assert rig.dues == [rig.clock.monotonic() + FIRST_WAIT]


def test_a_dropped_message_without_an_ordering_key_is_not_returned_to_the_server() -> None:
    """The server redelivers it when its lease ends."""
    rig = Rig(Message.drop)
    (only,) = rig.receive("1", key="")
    rig.scheduler.run_next()
    rig.report(only)
    assert rig.given_back == []


def test_a_message_held_too_long_behind_a_failed_one_of_its_key_is_returned_to_the_server() -> None:
    """The return happens at the time that the runner has given."""
    rig = Rig(Message.nack)
    rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    rig.runner.nacks_answered(["1"], rig.clock.monotonic())
    (due,) = rig.dues
    assert rig.runner.waits_over(due - 1) == due
    assert rig.given_back == []
    rig.runner.waits_over(due)
    assert rig.given_back == ["2"]


@pytest.mark.parametrize("in_order", [False, True])
def test_the_next_message_of_a_key_runs_after_the_previous_coroutine_callback_ended(
    in_order: bool,
) -> None:
    """The message is handled when its coroutine ends."""
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


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_whose_callback_raises_is_nacked_counted_and_logged(
    error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled coroutine counts as well. Its key waits for the message."""

    def callback(one: Message) -> None:
        raise error

    async def coroutine(one: Message) -> None:
        raise error

    rig = Rig(coroutine if is_async else callback)
    first, _ = rig.receive("1", "2")
    with caplog.at_level(logging.ERROR):
        rig.scheduler.run_next()
    assert first.settled is Disposition.NACK
    assert (rig.scheduler.names, len(rig.hold), rig.runner.errors) == ([], 1, 1)
    assert [record.message for record in caplog.records] == [
        "callback raised for message 1, which is nacked"
    ]


def test_a_message_settled_before_its_callback_raises_keeps_its_ack_or_nack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The message is handled, so the next of its key begins."""

    def callback(one: Message) -> None:
        one.ack()
        raise ValueError("too late")

    rig = Rig(callback)
    (first, _) = rig.receive("1", "2")
    rig.scheduler.run_next()
    assert (first.settled, rig.runner.errors) == (Disposition.ACK, 1)
    assert (rig.given_back, rig.scheduler.names) == ([], ["2"])


async def handle_later(one: Message) -> None:
    one.ack()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_is_nacked_if_its_plain_callback_returns_a_coroutine(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing would run it. The message is nacked, and the log says what to do."""

    async def forgets_to_await(one: Message) -> Any:
        return handle_later(one)

    rig = Rig(forgets_to_await if is_async else lambda one: handle_later(one))
    messages = rig.receive("1", "2", key="")
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert [one.settled for one in messages] == [Disposition.NACK] * 2
    assert rig.runner.errors == 2
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "callback raised for message" in record.message
    assert record.exc_info is not None
    assert "pass the async def itself" in str(record.exc_info[1])
    rig.runner.report_errors()
    assert "1 times" in caplog.messages[1]


def test_the_log_of_a_callback_error_says_whether_the_message_is_nacked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only an unsettled message is nacked."""

    def raise_after(settle: Callable[[Message], object]) -> Callable[[Message], None]:
        def callback(one: Message) -> None:
            settle(one)
            raise ValueError("no")

        return callback

    def give_up(one: Message) -> None:
        one.settled = Disposition.LOST

    for settle, outcome in ((keep, "is nacked"), (Message.ack, "it had acknowledged")):
        Rig(raise_after(settle)).run_one()
        assert caplog.messages[-1].endswith(outcome)
    Rig(raise_after(give_up)).run_one()
    assert caplog.messages[-1].endswith("had lost its lease")


# ---- leases that are over ------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("key", ["", "k"])
def test_a_message_whose_lease_has_ended_is_not_passed_to_its_callback(
    is_async: bool, key: str
) -> None:
    """The process was stopped for longer than the lease. The message is delivered again."""
    begun: list[str] = []

    def callback(one: Message) -> None:
        begun.append(one.ack_id)

    async def coroutine(one: Message) -> None:
        callback(one)

    rig = Rig(coroutine if is_async else callback)
    (over,) = rig.receive("over", key=key)
    (alive,) = rig.receive("alive", key="other")
    over.batch.lease_ends = rig.clock.monotonic() + 60
    alive.batch.lease_ends = rig.clock.monotonic() + 70
    rig.clock.advance(60)
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert begun == ["alive"]
    assert over.settled is Disposition.LOST
    # The key waits for the redelivery. The return, which the server may refuse, shows when.
    assert rig.given_back == (["over"] if key else [])


# ---- the turns of a key --------------------------------------------------------------------------


def test_the_next_message_of_an_ordering_key_runs_when_the_previous_callback_ends() -> None:
    """By default, a disposition is not needed."""
    rig = Rig(keep)
    rig.receive("1", "2", "3")
    assert rig.scheduler.names == ["1"]
    rig.scheduler.run_next()
    assert rig.scheduler.names == ["2"]
    rig.scheduler.run_next()
    assert rig.scheduler.names == ["3"]


def test_an_ack_in_a_callback_starts_the_next_message_of_its_key_only_after_the_callback() -> None:
    """If the disposition comes first, the dispatcher's later report changes nothing."""
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
def test_with_release_after_ack_the_next_message_of_a_key_waits_for_the_ack_or_nack(
    elsewhere: bool,
) -> None:
    """If the callback ends first, the disposition starts the next message once, on any thread."""
    rig = Rig(keep, release_after_ack=True)
    first, *_ = rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    assert rig.scheduler.names == []
    if elsewhere:
        thread = threading.Thread(target=rig.settle, args=(first,))
        thread.start()
        thread.join(TIMEOUT)
    else:
        rig.settle(first)
    assert rig.scheduler.names == ["2"]
    rig.settle(first)
    assert rig.scheduler.names == ["2"]


def test_with_release_after_ack_an_unsettled_message_delays_no_other_ordering_key() -> None:
    """Other keys continue, and messages without a key have nothing to wait for."""
    rig = Rig(keep, release_after_ack=True)
    rig.receive("1", "2", key="a")
    rig.receive("3", "4", key="")
    rig.receive("5", key="b")
    assert rig.scheduler.names == ["1", "3", "4", "5"]
    for _ in range(4):
        rig.scheduler.run_next()
    assert rig.scheduler.names == []
    assert len(rig.hold) == 1


def test_a_message_settled_as_its_callback_ends_starts_the_next_message_of_its_key_once() -> None:
    """The dispatcher reports as the callback ends. Only one of the two starts the next message."""

    class Moments(dict[Message, bool]):
        """A message that was just added is settled before its worker looks again."""

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
        rig.runner._ended_unsettled = Moments(reported)
        first, *_ = rig.receive("1", "2", "3")
        rig.scheduler.run_next()
        assert rig.scheduler.names == ["2"]
        rig.report(first)
        assert rig.scheduler.names == ["2"]


def test_a_race_of_callback_end_and_ack_starts_the_next_message_of_the_ordering_key_once() -> None:
    """With real threads, a few thousand times, the next message begins exactly once."""
    rig = Rig(keep, release_after_ack=True)
    begin, end = threading.Barrier(2), threading.Barrier(2)
    rounds = 3_000
    current: list[Message] = []

    def settle() -> None:
        for _ in range(rounds):
            begin.wait(TIMEOUT)
            rig.settle(current[0])
            end.wait(TIMEOUT)

    with on_threads(settle):
        messages = rig.receive(*map(str, range(rounds + 1)))
        for number in range(rounds):
            current[:] = [messages[number]]
            begin.wait(TIMEOUT)
            rig.scheduler.run_next()
            end.wait(TIMEOUT)
            assert rig.scheduler.names == [str(number + 1)]


@pytest.mark.parametrize("release_after_ack", [False, True])
@pytest.mark.parametrize("decide", [Message.nack, Message.drop])
def test_a_nack_inside_a_callback_holds_later_messages_of_the_ordering_key(
    release_after_ack: bool, decide: Callable[[Message], object]
) -> None:
    """The worker and the dispatcher report it in either order, and it counts once."""
    rig = Rig(decide, release_after_ack=release_after_ack)
    first, *_ = rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    assert (rig.scheduler.names, rig.parked_messages) == ([], 2)
    rig.receive("1/again", "2/again")
    rig.report(first)
    assert (rig.scheduler.names, len(rig.hold)) == (["1/again"], 1)
    given_back = ["1"] if decide is Message.drop else []
    assert (rig.given_back, sorted(rig.forgotten)) == (given_back, ["2", "3"])


@pytest.mark.parametrize("decide", [Message.nack, Message.drop])
def test_a_nack_after_the_callback_holds_messages_of_its_ordering_key_that_have_not_begun(
    decide: Callable[[Message], object],
) -> None:
    """The next message may run by then and finishes. A second report changes nothing."""
    rig = Rig(keep)
    first, *_ = rig.receive("1", "2", "3", "4")
    rig.scheduler.run_next()
    rig.settle(first, decide)
    assert (rig.scheduler.names, rig.parked_messages) == (["2"], 2)
    rig.scheduler.run_next()
    assert rig.scheduler.names == []
    rig.receive("1/again", "3/again")
    rig.report(first)
    assert (rig.scheduler.names, len(rig.hold)) == (["1/again"], 1)


def test_with_release_after_ack_only_the_redelivery_of_a_nacked_message_runs_next() -> None:
    """The next message waits for the disposition."""
    rig = Rig(keep, release_after_ack=True)
    first, *_ = rig.receive("1", "2", "3")
    rig.scheduler.run_next()
    rig.settle(first, Message.nack)
    rig.receive("4")
    assert rig.scheduler.names == []
    rig.receive("1/again")
    assert rig.scheduler.names == ["1/again"]


def test_a_message_that_loses_its_lease_before_it_runs_holds_later_messages_of_its_key() -> None:
    """The message does not begin, and the later ones wait for its redelivery."""
    rig = Rig(Message.ack)
    first, *_ = rig.receive("1", "2")
    first.settled = Disposition.DROP
    rig.runner.leases_lost([first], rig.clock.monotonic())
    rig.scheduler.run_next()
    assert rig.scheduler.names == []
    rig.receive("1/again")
    assert rig.scheduler.names == ["1/again"]


def test_acks_and_nacks_hold_no_messages_of_a_key_on_an_unordered_subscription() -> None:
    """Keys have no meaning there. If ordering is switched on later, they have no history."""
    rig = Rig(keep, release_after_ack=True)
    first, _ = rig.receive("1", "2", in_order=False)
    assert rig.scheduler.names == ["1", "2"]
    rig.scheduler.run_next()
    rig.settle(first, Message.nack)
    rig.receive("3")
    assert (rig.given_back, rig.scheduler.names) == ([], ["2", "3"])


def test_a_subscription_ends_if_its_scheduler_fails_to_run_the_next_message_of_a_key() -> None:
    """The listener gets the error, and the shutdown returns the message."""
    rig = Rig(Message.ack)
    rig.receive("1", "2")
    rig.scheduler.closed = True
    rig.scheduler.run_next()
    assert [str(error) for error in rig.errors] == ["no more"]


# ---- lists ---------------------------------------------------------------------------------------


def verdicts(messages: Sequence[Message]) -> list[Disposition | None]:
    return [one.settled for one in messages]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_of_lists_gets_full_lists_without_messages_that_were_given_up(
    is_async: bool,
) -> None:
    """A list that is not full waits in the batcher."""
    lists: list[list[str]] = []

    def callback(units: list[Unit]) -> None:
        lists.append(ids(messages_of(units)))

    async def coroutine(units: list[Unit]) -> None:
        callback(units)

    rig = ListRig(coroutine if is_async else callback)
    messages = rig.receive("1", "2", "3", "4", "5", key="", in_order=False)
    messages[2].settled = Disposition.LOST
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert lists == [["1", "2"], ["4"]]
    assert rig.runner.waiting == 1
    assert ids(rig.runner.close()) == ["5"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_of_lists_that_raises_nacks_the_first_unsettled_message_of_each_key(
    is_async: bool,
) -> None:
    """Later messages of the key are held until its redelivery."""

    def callback(units: list[Unit]) -> None:
        raise ValueError("on purpose")

    async def coroutine(units: list[Unit]) -> None:
        callback(units)

    rig = ListRig(coroutine if is_async else callback)
    messages = rig.receive("1", "2")
    rig.scheduler.run_next()
    assert verdicts(messages) == [Disposition.NACK, None]
    assert rig.parked_messages == 1
    assert rig.runner.errors == 1


def test_messages_without_a_key_in_a_list_whose_callback_raises_are_nacked_unless_settled() -> None:
    """A message that the callback has acknowledged stays so."""

    def callback(units: list[Unit]) -> None:
        messages_of(units)[0].ack()
        raise ValueError("on purpose")

    rig = ListRig(callback)
    messages = rig.receive("1", "2", key="", in_order=False)
    rig.scheduler.run_next()
    assert verdicts(messages) == [Disposition.ACK, Disposition.NACK]


def test_a_list_that_begins_takes_the_held_messages_of_its_keys() -> None:
    """Its turn ends for all of them; then the next message of the key begins."""
    lists: list[list[str]] = []

    def callback(units: list[Unit]) -> None:
        lists.append(ids(messages_of(units)))
        for one in messages_of(units):
            one.ack()

    rig = ListRig(callback)
    messages = rig.receive("1", "2", "3", "4", "5")
    rig.scheduler.run_next()
    for one in messages[:2]:
        rig.report(one)
    rig.scheduler.run_next()
    assert lists == [["1", "2"], ["3", "4"]]


def test_a_list_of_portions_whose_callback_raises_is_nacked_message_by_message() -> None:
    """The portion is divided, because its messages are no longer treated alike."""

    def callback(units: list[Unit]) -> None:
        raise ValueError("on purpose")

    rig = ListRig(callback)
    (portion,) = rig.receive_portions("1", "2")
    rig.scheduler.run_next()
    assert portion.divided is not None
    assert verdicts(portion.divided) == [Disposition.NACK, Disposition.NACK]


def test_a_callback_gets_the_messages_of_a_divided_portion_that_were_not_given_up() -> None:
    """A portion that is whole is one unit of the list."""
    lists: list[list[Unit]] = []
    rig = ListRig(lists.append)
    whole, divided = rig.receive_portions("1", "2", "3", "4")
    first, second = divided.messages()
    first.settled = Disposition.RETURN
    rig.scheduler.run_next()
    rig.scheduler.run_next()
    assert lists == [[whole], [second]]


def test_a_portion_whose_leases_are_over_is_lost_and_not_passed_to_the_callback() -> None:
    """The process was stopped for longer than the leases."""
    lists: list[list[Unit]] = []
    rig = ListRig(lists.append)
    (portion,) = rig.receive_portions("1", "2")
    portion.batch.lease_ends = rig.clock.monotonic() + 10
    rig.clock.advance(11)
    rig.scheduler.run_next()
    assert lists == []
    assert verdicts(portion.messages()) == [Disposition.LOST, Disposition.LOST]


def test_a_subscription_ends_if_its_scheduler_takes_no_list() -> None:
    """The listener gets the error."""
    rig = ListRig(lambda units: None)
    rig.scheduler.closed = True
    rig.receive("1", "2", key="", in_order=False)
    assert [str(error) for error in rig.errors] == ["no more"]
