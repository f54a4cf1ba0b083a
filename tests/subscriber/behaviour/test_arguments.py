"""subscribe() with wrong arguments: a clear error, and nothing is started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pullstream import (
    CoroutineScheduler,
    FlowControl,
    Hooks,
    Message,
    Scheduler,
    SubscriberClient,
    ThreadScheduler,
)
from pullstream.exceptions import SubscriberClosed
from pullstream_protocol.errors import InvalidArgument, NotFound
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Stage
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import started_since


async def coroutine(message: object) -> None:
    """Do nothing."""


class Plain(Scheduler):
    def schedule(self, callback: Callable[..., Any], *args: Any) -> None: ...

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        return []


class MakesPlain(Hooks):
    def wrap(self, subscription: str, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda message: callback(message)


class IsAsync(Hooks):
    async def received(  # type: ignore[override]
        self, subscription: str, messages: Sequence[Message]
    ) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"callback": "print"}, TypeError, "callback is 'print'"),
        ({"flow_control": FlowControl(max_messages=0)}, ValueError, "max_messages is 0"),
        ({"flow_control": (1, 2, 3, 4, 5, 6, 7)}, TypeError, "takes from 1 to 7 positional"),
        ({"flow_control": {"max_messages": 3}}, TypeError, "must be a FlowControl"),
        ({"max_workers": 0}, ValueError, "max_workers is 0"),
        ({"max_workers": "3"}, TypeError, "max_workers is '3'; it must be an int"),
        ({"give_up_after": "3"}, TypeError, "give_up_after is '3'; it must be a number"),
        ({"give_up_after": float("nan")}, ValueError, "give_up_after is nan; it must be a number"),
        ({"hooks": 3}, TypeError, "hooks is 3; it must be a Hooks object"),
        ({"hooks": [print]}, TypeError, "it must be a Hooks object"),
        ({"scheduler": 3}, TypeError, "scheduler is 3; it must derive from Scheduler"),
        ({"max_workers": 2, "scheduler": ThreadScheduler()}, ValueError, "either scheduler"),
        ({"scheduler": CoroutineScheduler()}, TypeError, "a plain function, which would block"),
        ({"scheduler": ThreadScheduler(), "callback": coroutine}, TypeError, "an async def, which"),
        ({"scheduler": Plain(), "callback": coroutine}, TypeError, "an async def, which"),
        ({"hooks": MakesPlain(), "callback": coroutine}, TypeError, "the hooks wrapped"),
        ({"hooks": IsAsync()}, TypeError, "is an async def; hooks must be plain functions"),
        ({"subscription": 5}, TypeError, "subscription is 5; it must be the full name"),
        ({"subscription": "s\udcff"}, ValueError, "subscription is .*, which is not valid UTF-8"),
    ],
)
def test_subscribe_refuses_wrong_arguments_before_it_starts_a_thread(
    here: Stage, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error comes before any thread runs, and names the argument."""
    before = set(threading.enumerate())
    given = {"subscription": SUBSCRIPTION, "callback": print, **arguments}
    with pytest.raises(error, match=text):
        here.client.subscribe(**given)
    if "give_up_after" not in given:
        with pytest.raises(error, match=text):
            here.client.subscribe_batch(**given)
    assert started_since(before, named="pullstream") == set()


@pytest.mark.parametrize(
    ("name", "error"), [("projects/p/subscriptions/none", NotFound), ("none", InvalidArgument)]
)
def test_a_subscription_that_the_server_refuses_ends_with_the_servers_error(
    here: Stage, name: str, error: type[Exception]
) -> None:
    """The future has the error, and nothing is left running."""
    future = here.client.subscribe(name, Message.ack)
    assert isinstance(future.exception(TIMEOUT), error)
    assert not future.running()


def test_subscribe_on_a_closed_client_raises_and_starts_no_thread(here: Stage) -> None:
    """The error is clear, and no thread is started."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    client.close()
    before = set(threading.enumerate())
    with pytest.raises(SubscriberClosed, match="make a new one"):
        client.subscribe(SUBSCRIPTION, Message.ack)
    assert started_since(before, named="pullstream") == set()


def test_a_subscription_fails_if_its_scheduler_was_used_by_an_earlier_subscription(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The future has the error, after the first message."""
    used: Scheduler = ThreadScheduler()
    used.shutdown()
    here.publish(b"a")
    future = here.client.subscribe(SUBSCRIPTION, Message.ack, scheduler=used)
    assert "each subscription needs its own" in str(future.exception(TIMEOUT))
    assert here.free() == [b"a"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.fetch("s\udcff"), ValueError, "subscription is .* not valid UTF-8"),
        (lambda c: c.fetch(b"s"), TypeError, "subscription is b's'; it must be the full name"),
        (lambda c: c.follow("t\udcff", print), ValueError, "topic is .* not valid UTF-8"),
        (lambda c: c.watch({"t\udcff": 0}, print), ValueError, r"^topics: .*udcff"),
        (lambda c: c.feeds.append("t", "text"), TypeError, "records is 'text'; it must be a list"),
        (lambda c: c.feeds.append("t", None), TypeError, "records is None; it must be a list"),
        (lambda c: c.feeds.append("t", ["\udcff"]), ValueError, "record is .* not valid UTF-8"),
        (lambda c: c.feeds.append("t\udcff", [b"x"]), ValueError, "topic: .* does not fit"),
        (lambda c: c.feeds.read("t", wait="1"), TypeError, "wait is '1'; it must be a number"),
        (lambda c: c.feeds.read("t", filter=5), TypeError, "filter is 5; it must be a str"),
        (lambda c: c.get_subscription(subscription="\udcff"), ValueError, "subscription: .* does"),
        (lambda c: c.get_subscription(subscription="s", timeout="5"), TypeError, "timeout is '5'"),
        (lambda c: c.get_subscription(subscription="s", retry=3), TypeError, "retry is 3; it must"),
        (lambda c: c.get_subscription(subscription="s", metadata=3), TypeError, "metadata is 3"),
        (lambda c: c.listen().close("5"), TypeError, "timeout is '5'; it must be a number"),
        (lambda c: c.close("5"), TypeError, "timeout is '5'; it must be a number"),
        (lambda c: c.close(-1), ValueError, "timeout is -1; it must not be negative"),
    ],
)
def test_the_error_of_a_client_method_for_a_wrong_argument_names_the_argument(
    here: Stage, call: Callable[[SubscriberClient], object], error: type[Exception], text: str
) -> None:
    """Python's own error would name a detail of the SDK."""
    with pytest.raises(error, match=text) as raised:
        call(here.client)
    assert type(raised.value) is error
