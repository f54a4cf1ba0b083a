"""Signal handlers that call a client in the middle of another call of the same client.

A handler runs on the main thread between two instructions. What it calls ends, or raises
InterruptedCall. It never waits for the code that it has interrupted.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pullstream import (
    BatchSettings,
    LimitExceededBehavior,
    PublisherClient,
    PublisherOptions,
    PublishFlowControl,
)
from pullstream.publisher.exceptions import PublisherClosed
from pullstream_protocol.call_lock import InterruptedCall
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Log, Stage, stage
from tests.subscriber.interruptions import at_each_instruction
from tests.subscriber.streaming.fakes import TIMEOUT

LIMITS = PublisherOptions(flow_control=PublishFlowControl(10, 1000, LimitExceededBehavior.BLOCK))


class Handler:
    """Calls a function as a signal handler does, and counts how it ends."""

    def __init__(self) -> None:
        self.refused = 0
        self.done = 0

    def __call__(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except InterruptedCall:
            self.refused += 1
        except (PublisherClosed, concurrent.futures.TimeoutError):
            self.done += 1
        else:
            self.done += 1


@pytest.mark.parametrize(
    ("call", "handler_calls", "options"),
    [
        ("publish", "publish", PublisherOptions()),
        ("publish", "close", PublisherOptions()),
        ("publish", "stop", PublisherOptions()),
        ("publish", "statistics", PublisherOptions()),
        ("publish", "result", PublisherOptions()),
        ("publish_many", "close", PublisherOptions()),
        ("close", "close", PublisherOptions()),
        ("close", "publish", PublisherOptions()),
        ("result", "close", PublisherOptions()),
        ("publish", "publish", LIMITS),
        ("publish", "close", LIMITS),
    ],
)
def test_publisher_calls_in_a_signal_handler_that_interrupts_a_publisher_call_do_not_hang(
    call: str, handler_calls: str, options: PublisherOptions
) -> None:
    """Nothing hangs, and each future has a result after the close."""
    handler = Handler()
    publisher: PublisherClient
    futures: list[Any] = []

    def run(name: str) -> Any:
        match name:
            case "publish":
                futures.append(publisher.publish(TOPIC, b"x"))
            case "publish_many":
                futures.append(publisher.publish_many(TOPIC, [b"x", b"y"]))
            case "close":
                publisher.close(timeout=0.001)
            case "result":
                futures[0].result(timeout=0.001)
            case _:
                getattr(publisher, name)()

    def prepare() -> tuple[Callable[[], Any], Callable[[], Any]]:
        nonlocal publisher
        # No server, and one message in each batch, which is sent at once.
        publisher = PublisherClient(BatchSettings(max_messages=1), options, endpoint="127.0.0.1:1")
        futures[:] = [publisher.publish(TOPIC, b"first")]

        def interrupted_call() -> None:
            with suppress(PublisherClosed, concurrent.futures.TimeoutError):
                run(call)

        return interrupted_call, lambda: handler(lambda: run(handler_calls))

    for instruction in at_each_instruction(prepare, step=17):
        publisher.close(timeout=0.001)
        for future in futures:
            assert future.exception(TIMEOUT) is not None, f"instruction {instruction}"
    assert handler.done


@pytest.fixture
def here() -> Iterator[Stage]:
    with stage() as here:
        here.publish(*[b"x"] * 3)
        yield here


@pytest.mark.parametrize(
    ("call", "handler_calls"),
    [
        ("statistics", "statistics"),
        ("adopt", "adopt"),
        ("adopt", "statistics"),
        ("ack", "ack"),
        ("begin_close", "begin_close"),
        ("begin_close", "statistics"),
    ],
)
def test_calls_of_a_subscription_in_a_signal_handler_that_interrupts_a_call_do_not_hang(
    here: Stage, call: str, handler_calls: str
) -> None:
    log, handler = Log(lambda message: None), Handler()
    future = here.client.subscribe(SUBSCRIPTION, log)
    message = log.wait_for(1)[0]
    calls: dict[str, Callable[[], Any]] = {
        "statistics": future.statistics,
        "adopt": lambda: future.adopt(["unknown"]),
        "ack": message.ack_with_response,
        "begin_close": future.begin_close,
    }

    def prepare() -> tuple[Callable[[], Any], Callable[[], Any]]:
        return calls[call], lambda: handler(calls[handler_calls])

    for _ in at_each_instruction(prepare, step=5):
        pass
    assert handler.done
    future.close(timeout=TIMEOUT)
    assert future.done()


@pytest.mark.parametrize("kind", ["listen", "follow", "watch"])
def test_feed_reader_calls_in_a_signal_handler_that_interrupts_the_reader_do_not_hang(
    here: Stage, kind: str
) -> None:
    handler, client = Handler(), here.client
    if kind == "listen":
        listener = client.listen()

        def call() -> None:
            listener.subscribe(TOPIC, "k", on_message=print)
            listener.unsubscribe(TOPIC, "k")

        reader: Any = listener
    else:
        reader = (
            client.follow(TOPIC, print) if kind == "follow" else client.watch({TOPIC: 0}, print)
        )
        call = reader.cancel
    for _ in at_each_instruction(lambda: (call, lambda: handler(call))):
        pass
    assert handler.done
    assert reader.close(timeout=TIMEOUT)


def test_waiting_for_an_interrupted_subscription_in_a_signal_handler_raises_an_error(
    here: Stage,
) -> None:
    """Without a time limit, it would wait for ever."""
    future = here.client.subscribe(SUBSCRIPTION, Log())
    handler = Handler()

    def prepare() -> tuple[Callable[[], Any], Callable[[], Any]]:
        return lambda: future.adopt(["unknown"]), lambda: handler(
            lambda: future.wait_until_done(0.001)
        )

    for _ in at_each_instruction(prepare):
        pass
    assert handler.refused


def test_a_signal_handler_may_close_the_publisher_in_another_thread() -> None:
    """The error advises that: the thread waits until the interrupted call goes on."""
    publisher = PublisherClient(BatchSettings(max_messages=1), endpoint="127.0.0.1:1")
    closers: list[threading.Thread] = []

    def close() -> None:
        with pytest.raises(InterruptedCall, match="start a thread"):
            publisher.close()
        closers.append(threading.Thread(target=publisher.close, args=(0.01,)))
        closers[0].start()

    with publisher._sender._lock:
        close()
    closers[0].join(TIMEOUT)
    assert not closers[0].is_alive()
    assert publisher.closed
