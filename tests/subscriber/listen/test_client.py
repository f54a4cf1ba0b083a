"""The listener as a whole: its threads, its end, and refused arguments."""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pullstream import ChannelMessage, ChannelSubscriber, ForkedProcess, SubscriberClient
from pullstream.exceptions import SubscriberClosed
from pullstream.listen.events import ListenEvent
from pullstream.listen.session import ListenSettings
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Internal
from tests.contract.channel_fixtures import client as client
from tests.contract.channel_fixtures import listener as listener
from tests.contract.channel_peers import ORDERS, Heard, Recorder, create_topics, statistics
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


@pytest.fixture
def broker() -> Iterator[Emulator]:
    with Emulator() as emulator:
        create_topics(emulator)
        yield emulator


def wait_until_heard(broker: Emulator) -> None:
    """Wait until the broker knows the subscription and a poll waits, in either order."""
    eventually(lambda: statistics(broker).interests == 1 and statistics(broker).parked == 1)


def test_an_exception_of_a_listener_callback_is_logged_and_later_messages_are_delivered(
    broker: Emulator, listener: ChannelSubscriber, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[bytes] = []

    def handle(message: ChannelMessage) -> None:
        heard.append(message.data)
        raise RuntimeError("not to my taste")

    done = threading.Event()
    listener.subscribe(ORDERS, on_message=handle, on_done=lambda error: done.set())
    assert done.wait(TIMEOUT)
    broker.publish(ORDERS, "1")
    broker.publish(ORDERS, "2")
    eventually(lambda: heard == [b"1", b"2"])
    listener.close()
    first, second = caplog.records
    assert first.message == "a callback of a listener raised an error"
    assert first.exc_info is not None
    assert "RuntimeError: not to my taste (with the traceback above, 1 times" in second.message


def test_a_coroutine_returned_by_a_listener_callback_is_logged_as_an_error(
    broker: Emulator, listener: ChannelSubscriber, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing would run it."""
    done = threading.Event()
    listener.subscribe(
        ORDERS, on_message=lambda message: a_coroutine(message), on_done=lambda _: done.set()
    )
    assert done.wait(TIMEOUT)
    broker.publish(ORDERS, "1")
    # pytest adds the record before its text.
    eventually(lambda: "pass the async def itself" in caplog.text)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("channel", "key", "name"), [(ORDERS, "f\udcff", "key"), ("f\udcff", None, "channel")]
)
def test_a_listener_refuses_a_channel_name_that_utf_8_cannot_encode_and_continues(
    broker: Emulator, listener: ChannelSubscriber, channel: str, key: str | None, name: str
) -> None:
    """Python writes such names for files. The error names the argument."""
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    listener.subscribe(ORDERS, "k", on_message=lambda message: heard.put(message.data))
    with pytest.raises(ValueError, match=rf"{name} is 'f\\udcff', which is not valid UTF-8"):
        listener.subscribe(channel, key, on_message=print)
    wait_until_heard(broker)
    broker.publish(ORDERS, "x", ordering_key="k")
    assert heard.get(timeout=TIMEOUT) == b"x"


def test_a_listener_that_fails_passes_its_error_to_every_channel_subscription(
    client: SubscriberClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener's thread fails because of a defect. The error has the cause."""
    failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    defect = RuntimeError("defect")

    def fail(*_: object, **__: object) -> None:
        raise defect

    monkeypatch.setattr(client._rpcs, "begin", fail)
    listener = client.listen()
    listener.subscribe(ORDERS, on_message=print, on_failure=failures.put, on_done=answers.put)
    assert listener.exception(TIMEOUT) is defect
    assert failures.get(timeout=TIMEOUT).__cause__ is defect
    assert isinstance(answers.get(timeout=TIMEOUT), Internal)


def test_the_publisher_keeps_messages_for_a_listener_while_the_listener_callback_is_slow(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """At most two answers wait in the client. Everything comes after the callback continues."""
    go_on, heard = threading.Event(), []

    def handle(message: ChannelMessage) -> None:
        assert go_on.wait(TIMEOUT)
        heard.append(message.data)

    done = threading.Event()
    listener.subscribe(ORDERS, on_message=handle, on_done=lambda error: done.set())
    assert done.wait(TIMEOUT)
    # Under load the two answers may hold many messages, but never most of these.
    numbers = [str(number).encode() for number in range(500)]
    for number in numbers:
        broker.publish(ORDERS, number)
        eventually(lambda: statistics(broker).parked == 1 or statistics(broker).waiting > 0)
    assert statistics(broker).waiting >= 250
    go_on.set()
    eventually(lambda: heard == numbers)
    eventually(lambda: statistics(broker).waiting == 0)


def test_a_listener_keeps_its_session_with_the_publisher_during_a_very_long_callback() -> None:
    """The listener does not poll meanwhile, but sends signs of life to the publisher."""
    clock, go_on = ManualClock(), threading.Event()
    heard: list[bytes] = []

    def handle(message: ChannelMessage) -> None:
        assert go_on.wait(TIMEOUT)
        heard.append(message.data)

    recorder, events = Recorder(), list[ListenEvent]()
    with (
        Emulator(clock=clock, interceptors=[recorder]) as broker,
        SubscriberClient(endpoint=broker.endpoint) as client,
        ChannelSubscriber(client._rpcs, ListenSettings(), events.append, clock) as listener,
    ):
        create_topics(broker)
        listener.subscribe(ORDERS, on_message=handle)
        wait_until_heard(broker)
        # One is with the callback and two more wait for it. Then there is no poll.
        for polls in (2, 3):
            broker.publish(ORDERS, "x")
            eventually(lambda polls=polls: len(recorder.polls) == polls)  # type: ignore[misc]
        broker.publish(ORDERS, "x")
        broker.publish(ORDERS, "last")
        eventually(lambda: statistics(broker).parked == 0)
        for signs in range(2, 14):
            clock.advance(60)
            # The broker answers the last poll, the clock moves, and only then the listener sees the
            # answer: its first sign of life is due a minute after that.
            with suppress(AssertionError):
                eventually(lambda signs=signs: len(recorder.batches) >= signs, 2.0)  # type: ignore[misc]
                continue
            clock.advance(60)
            eventually(lambda signs=signs: len(recorder.batches) >= signs)  # type: ignore[misc]
        go_on.set()
        eventually(lambda: heard == [b"x", b"x", b"x", b"last"])
    assert events == []


def test_closing_a_listener_waits_for_the_running_callback(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """The close waits within its time limit.

    Nothing begins afterwards, and the publisher is informed.
    """
    running, go_on, heard = threading.Event(), threading.Event(), []

    def handle(message: ChannelMessage) -> None:
        heard.append(message.data)
        running.set()
        assert go_on.wait(TIMEOUT)

    listener.subscribe(ORDERS, on_message=handle)
    wait_until_heard(broker)
    broker.publish(ORDERS, "1")
    assert running.wait(TIMEOUT)
    broker.publish(ORDERS, "2")
    listener.begin_close()
    eventually(lambda: statistics(broker).subscribers == 0)
    assert not listener.done()
    go_on.set()
    assert listener.result(TIMEOUT)
    assert heard == [b"1"]
    with pytest.raises(SubscriberClosed):
        listener.subscribe(ORDERS, "a", on_message=print)


def test_closing_a_listener_takes_no_longer_than_the_time_limit(
    broker: Emulator, client: SubscriberClient
) -> None:
    go_on, running = threading.Event(), threading.Event()

    def handle(message: ChannelMessage) -> None:
        running.set()
        assert go_on.wait(TIMEOUT)

    listener = client.listen()
    listener.subscribe(ORDERS, on_message=handle)
    wait_until_heard(broker)
    broker.publish(ORDERS, "1")
    assert running.wait(TIMEOUT)
    listener.begin_close(timeout=0.05)
    # The handler would run for TIMEOUT.
    assert listener.result(TIMEOUT / 2) is True
    go_on.set()


def test_a_listener_callback_may_close_the_listener_and_the_client(
    broker: Emulator, client: SubscriberClient
) -> None:
    """A callback may also close the client, which closes the listener."""
    listener = client.listen()
    listener.subscribe(ORDERS, on_message=lambda message: client.close())
    wait_until_heard(broker)
    broker.publish(ORDERS, "1")
    assert listener.result(TIMEOUT)
    assert client.closed


def test_closing_a_listener_fails_subscribe_calls_that_the_publisher_has_not_answered(
    broker: Emulator, listener: ChannelSubscriber
) -> None:
    """The subscribe is answered before the end."""
    broker.faults.drop("Commands")
    heard = Heard()
    heard.subscribe(listener, ORDERS, "a", wait=False)
    assert listener.close()
    assert [str(error) for error in heard.done] == [
        "499 the listener was closed before the publisher had answered"
    ]
    assert heard.failures == []


def test_a_listener_retries_a_poll_that_the_publisher_does_not_answer(
    broker: Emulator, client: SubscriberClient
) -> None:
    """The retry comes after the time in which a working publisher would have answered."""
    broker.faults.drop("Poll", times=1)
    listener, heard = client.listen(poll_timeout=0.1), Heard()
    heard.subscribe(listener, ORDERS, "a")
    broker.publish(ORDERS, "x", ordering_key="a")
    heard.wait_for("x")
    assert heard.failures == []


def test_a_closed_listener_leaves_no_running_thread(
    broker: Emulator, client: SubscriberClient
) -> None:
    Heard().subscribe(client.listen(), ORDERS, "a")
    client.close()
    # The thread reports that it is over, then it ends.
    eventually(
        lambda: (
            not any(thread.name.startswith("pullstream-listen") for thread in threading.enumerate())
        )
    )


async def a_coroutine(message: ChannelMessage) -> None:
    """Do nothing: a listener does not run coroutines."""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"channel": ""}, "channel"),
        ({"channel": b"c"}, "channel"),
        ({"key": 7}, "key"),
        ({"on_message": None}, "on_message"),
        ({"on_message": a_coroutine}, "on_message"),
        ({"on_failure": 1}, "on_failure"),
        ({"on_failure": functools.partial(a_coroutine)}, "on_failure"),
        ({"on_done": 1}, "on_done"),
    ],
)
def test_a_listener_refuses_subscribe_arguments_of_the_wrong_type(
    listener: ChannelSubscriber, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(TypeError, match=f"^{named} is "):
        listener.subscribe(**{"channel": ORDERS, "on_message": print, **arguments})


@pytest.mark.parametrize("settings", [{"give_up_after": 0}, {"poll_timeout": -1}, {"max_batch": 0}])
def test_the_listen_call_refuses_settings_out_of_range(
    client: SubscriberClient, settings: dict[str, Any]
) -> None:
    (named,) = settings
    with pytest.raises(ValueError, match=f"^{named} is "):
        client.listen(**settings)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_every_use_of_the_parents_listener_in_a_forked_child_raises_an_error(
    listener: ChannelSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(ForkedProcess):
        listener.subscribe(ORDERS, on_message=print)
    with pytest.raises(ForkedProcess):
        listener.unsubscribe(ORDERS)
    monkeypatch.undo()
