"""Lists of messages, passed on when they are full or have waited long enough."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pullstream.message import Message
from pullstream.streaming.batcher import Batcher
from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import TIMEOUT, ids, response


def test_a_batch_handler_may_add_messages_to_the_next_batch_while_it_handles_a_batch() -> None:
    """The receiver of a batch may add messages to the next one.

    The end of a callback, perhaps on the thread that brought the list, begins the next message of a
    key. If a lock were held meanwhile, this would be a deadlock.
    """
    taken: list[list[str]] = []

    def ready(messages: list[Message]) -> None:
        taken.append(ids(messages))
        if len(taken) < 3:
            batcher.add(response(f"{len(taken)}a", f"{len(taken)}b")[1])

    batcher = Batcher(ManualClock(), max_messages=2, max_latency=5.0, ready=ready)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(batcher.add, response("a", "b")[1]).result(TIMEOUT)
    assert taken == [["a", "b"], ["1a", "1b"], ["2a", "2b"]]


def test_the_result_of_closing_the_batcher_is_the_messages_not_passed_to_the_callback() -> None:
    """The batcher is closed while one of several lists is passed on."""
    left: list[Message] = []
    batcher = Batcher(
        ManualClock(),
        max_messages=1,
        max_latency=5.0,
        ready=lambda messages: left.extend(batcher.close()),
    )
    batcher.add(response("a", "b", "c")[1])
    assert ids(left) == ["b", "c"]
