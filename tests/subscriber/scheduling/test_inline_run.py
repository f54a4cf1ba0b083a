"""An inline run ends once: by its own thread, or by the thread that relieves it."""

from __future__ import annotations

import threading

import pytest

from pullstream.scheduling.inline_run import InlineRun
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.threads import on_threads


class Duties:
    """Counts how often they were taken over, and may block meanwhile."""

    def __init__(self) -> None:
        self.taken_over = 0
        self.asked = threading.Event()
        self.may = threading.Event()
        self.may.set()

    def take_over(self) -> None:
        self.asked.set()
        assert self.may.wait(TIMEOUT)
        self.taken_over += 1


def test_a_reader_thread_whose_inline_callback_has_ended_is_not_replaced() -> None:
    """The relief came too late."""
    duties = Duties()
    inline_run = InlineRun(duties.take_over)
    assert inline_run.end()
    assert not inline_run.relieve()
    assert duties.taken_over == 0


def test_a_reader_thread_replaced_during_an_inline_callback_stops_reading_the_stream() -> None:
    """An inline caller is relieved only once."""
    duties = Duties()
    inline_run = InlineRun(duties.take_over)
    assert inline_run.relieve()
    assert inline_run.is_over
    assert not inline_run.relieve()
    assert not inline_run.end()
    assert duties.taken_over == 1


def test_a_reader_thread_that_ends_its_callback_waits_for_a_replacement_that_is_starting() -> None:
    """The callback returns while the other thread starts. Only one thread may read on."""
    duties = Duties()
    duties.may.clear()
    inline_run = InlineRun(duties.take_over)
    goes_back: list[bool] = []
    with on_threads(inline_run.relieve):
        assert duties.asked.wait(TIMEOUT)
        caller = threading.Thread(target=lambda: goes_back.append(inline_run.end()))
        caller.start()
        caller.join(0.05)
        assert goes_back == []
        duties.may.set()
        caller.join(TIMEOUT)
    assert goes_back == [False]


def test_a_reader_thread_reads_on_after_its_callback_if_no_replacement_thread_can_start() -> None:
    """The process may have the maximum number of threads."""

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    inline_run = InlineRun(refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        inline_run.relieve()
    assert not inline_run.is_over
    assert inline_run.end()
