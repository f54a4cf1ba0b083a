"""A Ctrl-C inside `publish` or `close`: the publisher stays usable, and its close ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pullstream import (
    BatchSettings,
    LimitExceededBehavior,
    PublisherClient,
    PublisherOptions,
    PublishFlowControl,
)
from tests.subscriber.streaming.fakes import TIMEOUT

from .conftest import TOPIC, Server

EACH_AT_ONCE = BatchSettings(max_messages=1)
LIMITS = PublisherOptions(flow_control=PublishFlowControl(10, 1000, LimitExceededBehavior.BLOCK))


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def publish_until_interrupted(publisher: PublisherClient) -> int:
    """Publish until the signal arrives; return the number of calls.

    The thread of the publisher may send some of the messages.
    """
    for number in range(1, 1000):
        try:
            publisher.publish(TOPIC, b"x")
        except KeyboardInterrupt:
            return number
    raise AssertionError("nothing was interrupted")


class InterruptedSet(set[int]):
    """A set during whose first `add` on the main thread a signal arrives.

    Python handles the signal after the `add`.
    """

    is_interrupted = False

    def add(self, item: int) -> None:
        super().add(item)
        if is_main_thread() and not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Let a signal arrive during the next call of a method on the main thread."""
    method = getattr(owner, name)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        if is_main_thread():
            monkeypatch.undo()
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, interrupted)


def close_ends(publisher: PublisherClient) -> bool:
    """Return whether a close without a time limit ends."""
    closing = threading.Thread(target=publisher.close, daemon=True)
    closing.start()
    closing.join(TIMEOUT)
    return not closing.is_alive()


@pytest.mark.parametrize("threads", ["_sending", "_adding"])
def test_ctrl_c_at_the_beginning_of_a_publish_does_not_block_later_publishes(
    server: Server, threads: str
) -> None:
    """The main thread does not count as the thread of an interrupted call for ever."""
    publisher = server.connect(EACH_AT_ONCE, publisher_options=LIMITS)
    sender: Any = publisher._sender
    setattr(sender, threads, InterruptedSet())
    publish_until_interrupted(publisher)
    assert publisher.publish(TOPIC, b"b").result(TIMEOUT)
    publisher.close(TIMEOUT)


def test_ctrl_c_at_the_beginning_of_a_publisher_close_does_not_block_a_later_close(
    server: Server,
) -> None:
    publisher = server.connect(EACH_AT_ONCE)
    future = publisher.publish(TOPIC, b"a")
    sender: Any = publisher._sender
    sender._closing = InterruptedSet()
    with pytest.raises(KeyboardInterrupt):
        publisher.close()
    publisher.close(TIMEOUT)
    assert future.result(0)


def test_ctrl_c_at_the_beginning_of_a_publish_rpc_does_not_block_later_publishes(
    server: Server,
) -> None:
    publisher = server.connect(EACH_AT_ONCE)
    rpcs: Any = publisher._rpcs
    rpcs._beginning = InterruptedSet()
    publish_until_interrupted(publisher)
    assert publisher.publish(TOPIC, b"b").result(TIMEOUT)


def test_a_publish_request_sent_before_ctrl_c_interrupts_the_publish_still_succeeds(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = server.connect(EACH_AT_ONCE)
    sender: Any = publisher._sender
    interrupt(monkeypatch, sender._outage, "sent")
    count = publish_until_interrupted(publisher)
    assert close_ends(publisher)
    assert publisher.statistics().published == count


@pytest.mark.parametrize(("owner", "method"), [("_gauge", "enter"), ("", "_send_ready")])
def test_closing_the_publisher_does_not_wait_for_a_publish_interrupted_by_ctrl_c(
    server: Server, monkeypatch: pytest.MonkeyPatch, owner: str, method: str
) -> None:
    """Flow control has counted the message. It is published or not, and the close ends."""
    publisher = server.connect(EACH_AT_ONCE, publisher_options=LIMITS)
    publisher.publish(TOPIC, b"a").result(TIMEOUT)
    sender: Any = publisher._sender
    interrupt(monkeypatch, getattr(sender, owner) if owner else sender, method)
    publish_until_interrupted(publisher)
    assert close_ends(publisher)
