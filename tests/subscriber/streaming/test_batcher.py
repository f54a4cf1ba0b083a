"""Lists of messages, passed on when they are full or have waited long enough."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor

from pullstream.columns.portions import Unit, messages_of
from pullstream.streaming.batcher import Batcher
from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import TIMEOUT, ids, portions, response


def test_a_batch_handler_may_add_messages_to_the_next_batch_while_it_handles_a_batch() -> None:
    """The receiver of a batch may add messages to the next one.

    The end of a callback, perhaps on the thread that brought the list, begins the next message of a
    key. If a lock were held meanwhile, this would be a deadlock.
    """
    taken: list[list[str]] = []

    def ready(units: list[Unit]) -> None:
        taken.append(ids(messages_of(units)))
        if len(taken) < 3:
            batcher.add(response(f"{len(taken)}a", f"{len(taken)}b")[1])

    batcher = Batcher(ManualClock(), max_messages=2, max_latency=5.0, ready=ready)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(batcher.add, response("a", "b")[1]).result(TIMEOUT)
    assert taken == [["a", "b"], ["1a", "1b"], ["2a", "2b"]]


def test_the_result_of_closing_the_batcher_is_the_messages_not_passed_to_the_callback() -> None:
    """The batcher is closed while one of several lists is passed on."""
    left: list[Unit] = []
    batcher = Batcher(
        ManualClock(),
        max_messages=1,
        max_latency=5.0,
        ready=lambda messages: left.extend(batcher.close()),
    )
    batcher.add(response("a", "b", "c")[1])
    assert ids(messages_of(left)) == ["b", "c"]


def test_an_incomplete_list_is_passed_on_after_its_latency() -> None:
    """A later message of the list does not extend the wait."""
    clock = ManualClock()
    taken: queue.SimpleQueue[list[Unit]] = queue.SimpleQueue()
    batcher = Batcher(clock, max_messages=3, max_latency=5.0, ready=taken.put)
    batcher.start()
    batcher.add(response("a")[1])
    clock.advance(4)
    batcher.add(response("b")[1])
    assert len(batcher) == 2
    clock.advance(1)
    assert ids(messages_of(taken.get(timeout=TIMEOUT))) == ["a", "b"]
    batcher.close()


def test_a_portion_is_not_divided_for_a_full_list() -> None:
    """A list has whole portions, as many as fit."""
    taken: list[list[Unit]] = []
    batcher = Batcher(ManualClock(), max_messages=3, max_latency=5.0, ready=taken.append)
    first, second, third = portions("a", "b", "c", "d", "e", longest=2)
    batcher.add([first, second])
    assert taken == [[first]]
    batcher.add([third])
    assert taken == [[first], [second, third]]
    assert len(batcher) == 0


def test_an_urgent_list_is_passed_on_at_once() -> None:
    """Nothing is left for the latency."""
    taken: list[list[Unit]] = []
    batcher = Batcher(ManualClock(), max_messages=3, max_latency=5.0, ready=taken.append)
    (portion,) = portions("a", "b")
    batcher.add([portion], is_urgent=True)
    assert taken == [[portion]]
