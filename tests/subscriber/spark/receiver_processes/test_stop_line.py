"""The line by which a driver stops its receivers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pullstream.spark.receiver_processes.stop_line import StopLine, wait_for_stop
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

HOST = "127.0.0.1"


class Receiver:
    """A thread that waits on the line."""

    def __init__(self, port: int) -> None:
        self.is_stopped = False
        self._thread = threading.Thread(target=wait_for_stop, args=(HOST, port, self._stop))
        self._thread.start()

    def _stop(self) -> None:
        self.is_stopped = True

    def join(self) -> None:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()


@pytest.fixture
def line() -> Iterator[StopLine]:
    one = StopLine(HOST)
    yield one
    one.close()


def test_a_driver_stops_all_its_receivers(line: StopLine) -> None:
    waiting = [Receiver(line.port) for _ in range(3)]
    eventually(lambda: len(line._lines) == 3)
    assert not any(one.is_stopped for one in waiting)
    line.stop()
    for one in waiting:
        one.join()
        assert one.is_stopped


def test_the_line_of_a_receiver_that_has_ended_is_closed(line: StopLine) -> None:
    """Receivers may start again a thousand times while the driver runs."""
    for _ in range(50):
        socket.create_connection((HOST, line.port)).close()
    last = Receiver(line.port)
    line.stop()
    last.join()
    assert len(line._lines) == 1


def test_a_receiver_that_starts_while_the_driver_ends_is_stopped_at_once(line: StopLine) -> None:
    """Spark may just have started its task."""
    line.stop()
    late = Receiver(line.port)
    late.join()
    assert late.is_stopped


def test_a_receiver_without_a_way_to_the_driver_is_not_stopped(line: StopLine) -> None:
    """It ends with its task."""
    line.close()
    alone = Receiver(line.port)
    alone.join()
    assert not alone.is_stopped
