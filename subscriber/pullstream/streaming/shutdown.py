"""Shutdown of a subscription: stops its parts in the order in which messages pass them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from pullstream.futures import ShutdownMode
from pullstream.message import return_messages
from pullstream.runtime.process import WakeUp
from pullstream.scheduling.scheduler import Scheduler
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock

from .in_flight import InFlight
from .pull_stream import PullStream

_log = logging.getLogger("pullstream.subscriber")

# Limit for the last acknowledgements if there is no other limit, in seconds.
FLUSH_TIMEOUT = 10.0

# The part of a shutdown's time that callbacks cannot use. It is reserved to return their messages
# and to send the last settlements to the server. The second limit is in seconds.
_RESERVED_PART = 0.2
_LONGEST_RESERVE = 2.0

# A thread that is not blocked ends within this many seconds.
_END_WAIT = 0.2


class ShutdownDeadline:
    """One deadline and one mode for all steps. Any thread may tighten them; none can relax them.

    Times are seconds on the clock. Without a deadline, callbacks have unlimited time.

    Attributes:
        drains: Whether running callbacks may finish.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = CallLock()
        self._deadline: float | None = None
        self._reserve = 0.0
        self.drains = True
        # Set when the waiting thread should check its conditions again.
        self._wake_up = WakeUp()

    def tighten(self, mode: ShutdownMode, timeout: float | None) -> None:
        """Apply a shutdown request.

        Args:
            mode: "drain" waits for running callbacks, "nack" does not.
            timeout: Seconds from now. None: no new limit.
        """
        with self._lock.once:
            if mode == "nack":
                self.drains = False
            if timeout is not None:
                deadline = self._clock.monotonic() + timeout
                if self._deadline is None or deadline < self._deadline:
                    self._deadline = deadline
                    self._reserve = min(timeout * _RESERVED_PART, _LONGEST_RESERVE)
        self._wake_up.set()

    def left(self, longest: float) -> float:
        """Return the seconds that a step may take: `longest`, or less if less time is left."""
        with self._lock.once:
            if self._deadline is None:
                return longest
            return min(max(self._deadline - self._clock.monotonic(), 0.0), longest)

    def wait_while_draining(self, is_done: Callable[[], bool]) -> None:
        """Wait until `is_done` returns True, the mode becomes "nack", or the time is up.

        The thread that does the work calls `check_again` when `is_done` changes.
        """
        self._clock.add_waker(self.check_again)
        try:
            while not is_done() and self.drains:
                with self._lock.once:
                    end = None if self._deadline is None else self._deadline - self._reserve
                timeout = self._clock.timeout(end)
                if timeout == 0.0:
                    return
                self._wake_up.wait(timeout)
                self._wake_up.clear()
        finally:
            self._clock.remove_waker(self.check_again)

    def check_again(self) -> None:
        """Make the waiting thread check its conditions again."""
        self._wake_up.set()


class Shutdown:
    """Stops the parts, once, on a thread that none of them waits for.

    The steps: collect the messages whose callbacks have not begun; end the streams; return these
    messages; let running callbacks finish, or not, as the ShutdownDeadline says; return unsettled
    messages; send the last settlements to the server. All steps run, even if one of them fails.

    Args:
        deadline: The time limit, and whether to wait for callbacks.
        streams: The streams, with their readers, heartbeats and connections.
        in_flight: The messages, with their leaser and dispatcher.
        scheduler: The threads or event loop of the callbacks.
    """

    def __init__(
        self,
        deadline: ShutdownDeadline,
        *,
        streams: Sequence[PullStream],
        in_flight: InFlight,
        scheduler: Scheduler,
    ) -> None:
        self._deadline = deadline
        self._streams = streams
        self._in_flight = in_flight
        self._scheduler = scheduler
        # Whether the shutdown waited for callbacks that did not end in time.
        self._is_cut_short = False

    def run(self) -> None:
        """Stop all parts. Returns when all steps are done, or when the time is up."""
        steps: tuple[Callable[[], None], ...] = (
            self._in_flight.begin_no_more,
            # All before the first wait, so that they end at the same time.
            *(stream.half_close for stream in self._streams),
            *(partial(self._stop_reading, stream) for stream in self._streams),
            self._in_flight.end_of_stream,
            *(partial(self._stop_heartbeats, stream) for stream in self._streams),
            self._wait_for_callbacks,
            self._return_unsettled,
            lambda: self._in_flight.leaser.stop(self._end_wait()),
            lambda: self._in_flight.dispatcher.stop(self._deadline.left(FLUSH_TIMEOUT)),
            *(stream.hang_up for stream in self._streams),
        )
        for step in steps:
            try:
                step()
            except Exception:
                # A user's scheduler may fail here. The later steps are still necessary.
                _log.exception("a step of the shutdown failed")

    def _stop_reading(self, stream: PullStream) -> None:
        stream.stop_reading(self._deadline.left(FLUSH_TIMEOUT))

    def _stop_heartbeats(self, stream: PullStream) -> None:
        stream.stop_heartbeats(self._end_wait())

    def _end_wait(self) -> float:
        """Return the seconds to wait for the end of a thread, which a user's hook may block."""
        return max(self._deadline.left(FLUSH_TIMEOUT), _END_WAIT)

    def _wait_for_callbacks(self) -> None:
        if not self._deadline.drains:
            return

        def drain() -> None:
            try:
                return_messages(self._scheduler.shutdown(await_msg_callbacks=True) or [])
            except Exception:
                _log.exception("the scheduler failed to wait for its callbacks")
            drained.set()
            self._deadline.check_again()

        # On a new thread, which continues alone if the time is up.
        drained = threading.Event()
        threading.Thread(target=drain, name="pullstream-drain", daemon=True).start()
        self._deadline.wait_while_draining(drained.is_set)
        self._is_cut_short = self._deadline.drains and not drained.is_set()

    def _return_unsettled(self) -> None:
        returned = self._in_flight.return_unsettled()
        if returned and self._is_cut_short:
            # The shutdown waited for these callbacks. Later acks and nacks have no effect.
            _log.warning(
                "shut down before all callbacks had ended: %d messages are returned and will be "
                "redelivered",
                returned,
            )
