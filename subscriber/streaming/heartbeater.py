"""The heartbeater: pings the server, and notices when it falls silent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.clock import Clock

from .inbox import Inbox
from .liveness import Liveness


class Heartbeater:
    """An actor: what happens on the stream comes in as events, pings and alarms go out.

    Owns the Liveness rules; only its own thread touches them. The consumer's thread reports opened,
    received and closed streams, flow control when that thread is paused.

    Args:
        ping: send an empty request on the stream. Must not wait.
        on_silence: the server has stopped answering: the stream should be torn down.
    """

    def __init__(
        self, clock: Clock, *, ping: Callable[[], None], on_silence: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._ping = ping
        self._on_silence = on_silence
        self._liveness = Liveness()
        self._inbox: Inbox[Callable[[], None]] = Inbox(clock)
        self._stopped = False
        # A first answer is an event of its own. What happens time and again on a busy stream need
        # not wake us: it is read when the thread looks next, which is before it sounds an alarm.
        self._heard = False
        self._is_paused = False
        self._was_paused = False
        self._thread = threading.Thread(target=self._run, name="pullstream-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def opened(self) -> None:
        self._inbox.put(lambda: self._liveness.opened(self._clock.monotonic()))

    def closed(self) -> None:
        self._inbox.put(self._liveness.closed)

    def paused(self) -> None:
        # In this order; the thread looks at them in the other.
        self._is_paused = True
        self._was_paused = True

    def resumed(self) -> None:
        self._is_paused = False

    def received(self, *, is_pong: bool) -> None:
        """A response came; `is_pong` if it was one without messages."""
        if is_pong:
            self._inbox.put(lambda: self._liveness.received(is_pong=True))
        else:
            self._heard = True

    def stop(self, timeout: float | None = None) -> None:
        """End the thread. Idempotent.

        Args:
            timeout: seconds to wait for it.
        """
        self._stopped = True
        self._inbox.wake()
        self._thread.join(timeout)
        self._inbox.close()

    def _run(self) -> None:
        while not self._stopped:
            for event in self._inbox.take(self._liveness.next_due()):
                event()
            self._take_note()
            now = self._clock.monotonic()
            if self._liveness.is_dead(now):
                self._liveness.closed()
                self._on_silence()
            elif self._liveness.ping_due(now):
                self._ping()

    def _take_note(self) -> None:
        if self._was_paused:
            self._was_paused = False
            self._liveness.paused()
        if not self._is_paused:
            self._liveness.resumed()
        if self._heard:
            self._heard = False
            self._liveness.received(is_pong=False)
