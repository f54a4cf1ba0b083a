"""A subscription whose server is played by a test and whose clock is moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pullstream.flow_control import FlowControl
from pullstream.hooks import Hooks
from pullstream.message import Message
from pullstream.scheduling.scheduler import Scheduler, ThreadScheduler
from pullstream.streaming.manager import StreamingPullManager
from pullstream.streaming.settings import ReleaseAfter, StreamingSettings
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.subscriber.streaming.scripted_stream import ScriptedCalls

SUBSCRIPTION = "projects/p/subscriptions/s"


class Managed:
    """A running manager and its first stream."""

    def __init__(
        self,
        callback: Callable[[Message], Any],
        *,
        scheduler: Scheduler | None = None,
        workers: int = 4,
        await_callbacks: bool = False,
        limit_server: bool = True,
        release_after: ReleaseAfter = "callback",
        give_up_after: float | None = None,
        streams: int = 1,
        hooks: Sequence[Hooks] = (),
        **limits: Any,
    ) -> None:
        self.clock = ManualClock()
        self.calls = ScriptedCalls()
        self.manager = StreamingPullManager(
            self.calls,
            SUBSCRIPTION,
            callback,
            StreamingSettings(
                limits=FlowControl(**limits),
                limit_server=limit_server,
                await_callbacks=await_callbacks,
                release_after=release_after,
                give_up_after=give_up_after,
                streams=streams,
                hooks=hooks,
            ),
            scheduler=scheduler or ThreadScheduler(max_workers=workers),
            clock=self.clock,
        )
        self.future = self.manager.future
        self.manager.start()
        self.stream = self.calls.next_stream()

    def give_up(self) -> float:
        """Let each new stream break until the subscription ends; return how long that took."""
        began = self.clock.monotonic()

        def keep_breaking() -> bool:
            while self.calls.streams_waiting:
                self.calls.next_stream().end(Unavailable("still down"))
            self.clock.advance(1)
            return self.future.done()

        eventually(keep_breaking)
        assert isinstance(self.future.exception(TIMEOUT), Unavailable)
        return self.clock.monotonic() - began

    def acknowledged(self, count: int) -> list[str]:
        """Return the next acknowledgements that reach the server."""
        return [self.calls.acknowledged.get(timeout=TIMEOUT) for _ in range(count)]

    def nacked(self, count: int) -> list[str]:
        """Return the next nacks that reach the server, without the extensions in between."""
        found: list[str] = []
        while len(found) < count:
            ack_id, seconds = self.calls.modified.get(timeout=TIMEOUT)
            if seconds == 0:
                found.append(ack_id)
        return found

    def stop(self) -> None:
        """Stop with a cooperative server, which ends its side at once."""
        self.stream.end_when_half_closed()
        self.future.cancel()
        self.future.exception(TIMEOUT)


@contextmanager
def managed(callback: Callable[[Message], Any], **options: Any) -> Iterator[Managed]:
    """Yield a running subscription for the `with` block."""
    running = Managed(callback, **options)
    try:
        yield running
    finally:
        running.stop()


class Gate:
    """A callback that waits until the test opens it and then calls the given function."""

    def __init__(self, then: Callable[[Message], Any] = Message.ack) -> None:
        self._then = then
        self._entered = threading.Semaphore(0)
        self._leave = threading.Semaphore(0)
        self.begun: list[str] = []

    def __call__(self, message: Message) -> None:
        self.begun.append(message.ack_id)
        self._entered.release()
        assert self._leave.acquire(timeout=3 * TIMEOUT)
        self._then(message)

    def wait_for(self, count: int = 1) -> None:
        """Return when this many more callbacks have begun."""
        for _ in range(count):
            assert self._entered.acquire(timeout=TIMEOUT)

    def open(self, count: int = 1) -> None:
        """Let this many callbacks continue."""
        self._leave.release(count)
