"""Test equipment for watches of the SDK: handlers that record their frames."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pullstream.feeds import CaughtUp, Frame, Gap, Records
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.contract.face import TIMEOUT

F = TypeVar("F")


class Frames:
    """A handler that records each frame and then calls the given function."""

    def __init__(self, then: Callable[[Frame], object] = lambda frame: None) -> None:
        self._then = then
        self._changed = threading.Condition()
        self.all: list[Frame] = []

    def __call__(self, frame: Frame) -> None:
        with self._changed:
            self.all.append(frame)
            self._changed.notify_all()
        self._then(frame)

    def of(self, kind: type[F], topic: str | None = None) -> list[F]:
        """Return the frames of one kind and one topic."""
        some = [frame for frame in self.all if isinstance(frame, kind)]
        return [one for one in some if topic is None or getattr(one, "topic", None) == topic]

    def seqs(self, topic: str | None = None) -> list[int]:
        return [int(one.message_id) for some in self.of(Records, topic) for one in some.messages]

    def data(self, topic: str | None = None) -> list[bytes]:
        return [one.data for some in self.of(Records, topic) for one in some.messages]

    def accounted(self, topic: str | None = None) -> list[int]:
        """Return every received or lost number, in the order of the frames."""
        found: list[int] = []
        for frame in self.all:
            if topic is not None and getattr(frame, "topic", topic) != topic:
                continue
            if isinstance(frame, Gap):
                found.extend(range(frame.from_seq, frame.to_seq + 1))
            elif isinstance(frame, Records):
                found.extend(int(one.message_id) for one in frame.messages)
        return found

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which looks at these frames, is true."""
        deadline = SYSTEM_CLOCK.monotonic() + TIMEOUT
        with self._changed:
            while not condition():
                left = deadline - SYSTEM_CLOCK.monotonic()
                assert left > 0, f"it has not happened: {self.all[-5:]}"
                self._changed.wait(left)

    def wait_for_seqs(self, *seqs: int, topic: str | None = None) -> None:
        self.wait_for(lambda: len(self.seqs(topic)) >= len(seqs))
        assert self.seqs(topic) == list(seqs)

    def wait_for_caught_up(self, count: int = 1) -> None:
        self.wait_for(lambda: len(self.of(CaughtUp)) >= count)


class Held:
    """Blocks a handler at its first records until it is released."""

    def __init__(self) -> None:
        self._stands = threading.Event()
        self._go = threading.Event()

    def __call__(self, frame: Frame) -> None:
        if isinstance(frame, Records) and not self._go.is_set():
            self._stands.set()
            assert self._go.wait(TIMEOUT)

    def wait(self) -> None:
        """Wait until the handler blocks."""
        assert self._stands.wait(TIMEOUT)

    def release(self) -> None:
        self._go.set()
