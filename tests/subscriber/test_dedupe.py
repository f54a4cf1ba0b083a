"""Dedupe: a key's callback succeeds once within the window, and a failure is tried again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pullstream import Dedupe
from pullstream.message import Disposition, Message, ResponseBatch
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.behaviour.stage import Log, stage
from tests.subscriber.streaming.fakes import RecordingSettlementSink


def delivery(message_id: str = "1", **attributes: str) -> Message:
    """Return a message as a callback gets it, with its own record of dispositions."""
    received = pubsub.ReceivedMessage(
        ack_id="ack",
        message=pubsub.PubsubMessage(message_id=message_id, attributes=attributes),
    )
    response = pubsub.PullResponse(received_messages=[received])
    (message,) = ResponseBatch(RecordingSettlementSink(), 0.0, 0, response).messages()
    return message


def decided(message: Message) -> list[tuple[Disposition, int]]:
    """Return the dispositions of a message, with delays in seconds."""
    outcomes = message.batch.sink
    assert isinstance(outcomes, RecordingSettlementSink)
    return [(verdict, seconds) for verdict, _, seconds, _ in outcomes.taken]


ACKED = [(Disposition.ACK, 0)]


def held_back(seconds: int) -> list[tuple[Disposition, int]]:
    return [(Disposition.NACK, seconds)]


class Calls:
    """A callback that records the ids of its messages and calls `then`."""

    def __init__(self, then: Callable[[Message], Any] = Message.ack) -> None:
        self.then = then
        self.ids: list[str] = []

    def __call__(self, message: Message) -> Any:
        self.ids.append(message.message_id)
        return self.then(message)


# ---- duplicates ----------------------------------------------------------------------------------


def test_dedupe_acks_the_duplicate_of_a_completed_key_without_calling_the_callback() -> None:
    """The duplicate is counted."""
    dedupe, calls = Dedupe(), Calls()
    callback = dedupe(calls)
    again = delivery("1")
    for message in (delivery("1"), again, delivery("2")):
        callback(message)
    assert calls.ids == ["1", "2"]
    assert decided(again) == ACKED
    assert (dedupe.duplicates, dedupe.held_back) == (1, 0)


def fails(message: Message) -> None:
    raise RuntimeError("no luck")


@pytest.mark.parametrize("failure", [Message.nack, Message.drop])
def test_dedupe_calls_the_callback_again_for_a_message_that_was_nacked(
    failure: Callable[[Message], None],
) -> None:
    """A redelivery after a return is not a duplicate."""
    calls = Calls(failure)
    callback = Dedupe()(calls)
    callback(delivery())
    callback(delivery())
    assert calls.ids == ["1", "1"]


def test_dedupe_calls_the_callback_again_for_a_key_whose_callback_raised() -> None:
    """The subscription gets the error and nacks the message."""
    calls = Calls(fails)
    callback = Dedupe()(calls)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no luck"):
            callback(delivery())
    assert calls.ids == ["1", "1"]


def test_dedupe_treats_a_key_as_completed_if_its_callback_raises_after_the_ack() -> None:
    """An ack stays valid if the callback raises afterwards, so the message is not handled again."""

    def acks_and_fails(message: Message) -> None:
        message.ack()
        raise RuntimeError

    dedupe, calls = Dedupe(), Calls(acks_and_fails)
    with pytest.raises(RuntimeError):
        dedupe(calls)(delivery())
    dedupe(calls)(delivery())
    assert calls.ids == ["1"]


def test_dedupe_nacks_the_duplicate_of_a_key_in_progress_with_a_delay() -> None:
    """A duplicate of a running key is delayed by 10 to 600 seconds.

    The delay is the time that the first callback has been running.
    """
    clock = ManualClock()
    dedupe = Dedupe(clock=clock)
    duplicates = [delivery() for _ in range(3)]

    def first_runs(message: Message) -> None:
        for duplicate, seconds in zip(duplicates, (0, 45, 3600), strict=True):
            clock.advance(seconds)
            callback(duplicate)

    calls = Calls(first_runs)
    callback = dedupe(calls)
    callback(delivery())
    assert calls.ids == ["1"]
    assert [decided(one) for one in duplicates] == [held_back(10), held_back(45), held_back(600)]
    assert (dedupe.duplicates, dedupe.held_back) == (0, 3)


def test_dedupe_acks_the_duplicate_of_an_acked_message_whose_callback_still_runs() -> None:
    """An ack settles the message even while its callback still runs."""
    duplicate = delivery()

    def acks_early(message: Message) -> None:
        message.ack()
        callback(duplicate)

    callback = Dedupe()(acks_early)
    callback(delivery())
    assert decided(duplicate) == ACKED


def test_dedupe_keeps_the_key_of_a_dropped_message_in_progress_while_its_callback_runs() -> None:
    """The redelivery of a dropped message must not run at the same time as its callback."""
    again = delivery()

    def loses_its_lease(message: Message) -> None:
        message.settled = Disposition.DROP
        callback(again)

    callback = Dedupe()(loses_its_lease)
    callback(delivery())
    assert decided(again) == held_back(10)


@pytest.mark.parametrize(
    ("verdict", "called"), [(Message.ack, ["1"]), (Message.nack, ["1", "1"]), (None, ["1"])]
)
def test_dedupe_treats_a_key_as_in_progress_until_its_message_is_settled(
    verdict: Callable[[Message], None] | None, called: list[str]
) -> None:
    """The key is in progress until the message is settled."""
    calls = Calls(lambda message: None)
    callback = Dedupe()(calls)
    first, duplicate = delivery(), delivery()
    callback(first)
    if verdict is not None:
        verdict(first)
    callback(duplicate)
    assert calls.ids == called
    assert decided(duplicate) == (
        ACKED if verdict is Message.ack else [] if verdict else held_back(10)
    )


# ---- the window ----------------------------------------------------------------------------------


def test_dedupe_calls_the_callback_again_for_a_key_completed_longer_ago_than_configured() -> None:
    """The time counts from the end of the callback."""
    clock = ManualClock()
    calls = Calls()
    callback = Dedupe(seconds=60, clock=clock)(calls)
    callback(delivery())
    clock.advance(59)
    callback(delivery())
    assert calls.ids == ["1"]
    clock.advance(1)
    callback(delivery())
    assert calls.ids == ["1", "1"]


def test_dedupe_forgets_the_oldest_completed_keys_beyond_max_keys() -> None:
    """The oldest completed keys are removed when there are more than max_keys."""
    calls = Calls()
    callback = Dedupe(max_keys=2)(calls)
    for message_id in ("1", "2", "3", "3", "2", "1"):
        callback(delivery(message_id))
    assert calls.ids == ["1", "2", "3", "1"]


def test_dedupe_does_not_accumulate_keys_of_messages_settled_outside_the_callback() -> None:
    """Keys of messages that were settled outside the callback do not pile up.

    Later messages complete them, without a duplicate.
    """
    dedupe = Dedupe(max_keys=10)
    callback = dedupe(Calls(lambda message: None))
    for number in range(100):
        message = delivery(str(number))
        callback(message)
        message.ack()
    assert len(dedupe._in_progress) + len(dedupe._done) <= 12


# ---- the key -------------------------------------------------------------------------------------


def test_dedupe_can_recognize_duplicate_messages_by_the_value_of_an_attribute() -> None:
    """Two messages with the same attribute value are duplicates."""
    calls = Calls()
    callback = Dedupe(by="order")(calls)
    for number, order in enumerate(("a", "b", "a")):
        callback(delivery(str(number), order=order))
    assert calls.ids == ["0", "1"]


def test_dedupe_recognizes_duplicates_without_the_key_attribute_by_their_message_id() -> None:
    """Messages without the attribute are compared by id. An id never equals an attribute value."""
    calls = Calls()
    callback = Dedupe(by="order")(calls)
    messages = [
        delivery("1"),
        delivery("2", order=""),
        delivery("3", order="1"),
        delivery("4", order=""),
        delivery("1"),
        delivery("2", order=""),
    ]
    for message in messages:
        callback(message)
    assert calls.ids == ["1", "2", "3", "4"]
    assert "order" not in messages[0].attributes


def test_dedupe_uses_the_message_id_as_key_if_the_key_function_returns_none() -> None:
    """If the function returns None, the message id is the key."""
    calls = Calls()
    callback = Dedupe(by=lambda message: message.attributes.get("a"))(calls)
    for message in (delivery("1", a="x"), delivery("2", a="x"), delivery("3"), delivery("4")):
        callback(message)
    assert calls.ids == ["1", "3", "4"]


async def key_later(message: Message) -> str:
    return message.message_id


def test_dedupe_raises_for_a_key_function_that_returns_a_coroutine() -> None:
    """Each coroutine is another key, so nothing would be recognized as a duplicate."""
    by: Any = lambda message: key_later(message)  # noqa: E731
    once = Dedupe(by=by)(Message.ack)
    with pytest.raises(TypeError, match="pass the async def itself"):
        once(delivery())


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"by": 3}, TypeError, "by is 3"),
        ({"by": ""}, ValueError, "by is empty"),
        ({"by": key_later}, TypeError, "by is .*; it must be a plain function"),
        ({"max_keys": 0}, ValueError, "max_keys is 0"),
        ({"seconds": 0}, ValueError, "seconds is 0"),
        ({"seconds": float("nan")}, ValueError, "seconds is nan"),
    ],
)
def test_the_error_of_dedupe_for_an_invalid_argument_states_its_allowed_form(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    """The error gives the value and the allowed form."""
    with pytest.raises(error, match=says):
        Dedupe(**arguments)


# ---- callbacks of other kinds --------------------------------------------------------------------


def test_dedupe_treats_a_key_as_in_progress_while_its_async_callback_awaits() -> None:
    """The wrapper is an `async def` function too."""
    duplicate = delivery()
    dedupe = Dedupe()
    calls: list[str] = []

    async def handle(message: Message) -> str:
        calls.append(message.message_id)
        await callback(duplicate)
        message.ack()
        return "done"

    callback = dedupe(handle)
    assert asyncio.iscoroutinefunction(callback)
    assert asyncio.run(callback(delivery())) == "done"
    assert calls == ["1"]
    assert decided(duplicate) == held_back(10)


def test_dedupe_awaits_a_callback_object_with_an_async_call_method() -> None:
    """The coroutine of the call is awaited."""

    class Handler:
        async def __call__(self, message: Message) -> None:
            message.ack()

    message = delivery()
    asyncio.run(Dedupe()(Handler())(message))
    assert decided(message) == ACKED


def test_dedupe_calls_the_callback_once_for_two_threads_with_the_same_key() -> None:
    """One of the two threads calls the callback, and the other message is held back."""
    dedupe = Dedupe()
    entered, leave = threading.Event(), threading.Event()

    def waits(message: Message) -> None:
        entered.set()
        leave.wait()
        message.ack()

    callback = dedupe(waits)
    first = threading.Thread(target=callback, args=(delivery(),))
    first.start()
    entered.wait()
    callback(delivery())
    leave.set()
    first.join()
    assert dedupe.held_back == 1


def test_dedupe_passes_one_of_two_equal_messages_to_the_callback_and_acks_both() -> None:
    """On a real subscription, both messages leave the backlog."""
    dedupe, collected = Dedupe(by="order"), Log()
    with stage() as here:
        here.publisher.publish(
            "projects/p/topics/topic",
            [{"data": data, "attributes": {"order": "7"}} for data in (b"a", b"a")]
            + [{"data": b"b"}],
        )
        future = here.client.subscribe(
            "projects/p/subscriptions/subscription", dedupe(collected), max_workers=1
        )
        collected.wait_for(2)
        assert sorted(collected.data) == [b"a", b"b"]
        future.cancel()
        future.result()
        assert here.backlog == 0
    assert dedupe.duplicates == 1


# ---- against a model -----------------------------------------------------------------------------


class _Outcome:
    """An object that a callback awaits. The state machine sends the result."""

    def __await__(self) -> Any:
        return (yield)


class _Running:
    """A running callback that the test advances by hand, without an event loop."""

    def __init__(self, key: str, message: Message, steps: Coroutine[Any, Any, Any]) -> None:
        self.key = key
        self.message = message
        self.steps = steps


SECONDS, KEYS = 50, 3


class DedupeAgainstModel(RuleBasedStateMachine):
    """The model. Each key maps to None, "running", an unsettled message, or its completion time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.dedupe = Dedupe(by="key", max_keys=KEYS, seconds=SECONDS, clock=self.clock)
        self.callback = self.dedupe(self.handle)
        self.running: list[_Running] = []
        self.undecided: dict[str, Message] = {}
        # In the order of completion.
        self.done: dict[str, float] = {}

    async def handle(self, message: Message) -> None:
        await _Outcome()

    @rule(key=st.sampled_from("abcde"))
    def deliver(self, key: str) -> None:
        message = delivery(key=key)
        steps: Any = self.callback(message)
        try:
            steps.send(None)
            was_called = True
        except StopIteration:
            was_called = False
        if any(one.key == key for one in self.running) or key in self.undecided:
            assert not was_called
            assert [verdict for verdict, _ in decided(message)] == [Disposition.NACK]
        elif key in self.remembered():
            assert not was_called
            assert decided(message) == ACKED
        else:
            assert was_called
            assert decided(message) == []
            self.running.append(_Running(key, message, steps))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "raise", "leave open"]))
    def end(self, data: st.DataObject, how: str) -> None:
        one = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if how == "raise":
            with pytest.raises(RuntimeError):
                one.steps.throw(RuntimeError())
            return
        if how == "ack":
            one.message.ack()
            self.note_done(one.key)
        elif how == "nack":
            one.message.nack()
        else:
            self.undecided[one.key] = one.message
        with pytest.raises(StopIteration):
            one.steps.send(None)

    @precondition(lambda self: self.undecided)
    @rule(data=st.data())
    def nack_late(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.undecided)))
        self.undecided.pop(key).nack()

    @rule(seconds=st.integers(1, SECONDS))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def nothing_is_unbounded(self) -> None:
        assert len(self.dedupe._done) <= KEYS

    def note_done(self, key: str) -> None:
        self.done.pop(key, None)
        self.done[key] = self.clock.monotonic()

    def remembered(self) -> set[str]:
        # Entries over max_keys are removed at once. Expired entries were removed before.
        self.done = dict(list(self.done.items())[-KEYS:])
        now = self.clock.monotonic()
        return {key for key, at in self.done.items() if now < at + SECONDS}

    def teardown(self) -> None:
        for one in self.running:
            one.steps.close()


TestDedupeAgainstModel = DedupeAgainstModel.TestCase
TestDedupeAgainstModel.settings = settings(max_examples=60, stateful_step_count=40)
