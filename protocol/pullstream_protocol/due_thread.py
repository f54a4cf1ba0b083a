"""A thread that waits until something is due, and acts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from .clock import Clock
from .inbox import Inbox

# Seconds before the thread acts again by itself after an error. Work that stays due must not make
# it spin.
PAUSE_AFTER_ERROR = 1.0


class DueThread:
    """Calls `act` on its own thread when something is due, and after each wake-up.

    Any thread may call any method. The thread alone calls `next_due` and `act`, and runs the posted
    events. A due time before the one for which the thread waits needs a `wake`.

    Guarantees: after each wake-up, event and jump of the clock, `act` is called at least once.
    After `stop`, nothing begins any more. An error, also SystemExit, does not end the thread:
    `threading.excepthook` reports it, like any error of a thread, and the thread acts again at the
    next wake-up, or after PAUSE_AFTER_ERROR. The thread is a daemon, so that a program that forgets
    to stop it can exit.

    Args:
        clock: Measures time. A jump of the clock wakes the thread.
        next_due: Returns the time on the clock at which to act. None: nothing is due. Must not
            raise.
        act: Does the work that is due, if there is any.
        name: The name of the thread.
    """

    def __init__(
        self,
        clock: Clock,
        next_due: Callable[[], float | None],
        act: Callable[[], None],
        *,
        name: str,
    ) -> None:
        self._clock = clock
        self._next_due = next_due
        self._act = act
        self._inbox: Inbox[Callable[[], None]] = Inbox(clock)
        self._stopped = False
        # `post(event)` runs an event on the thread, and then `act`. It is a single C call.
        self.post: Callable[[Callable[[], None]], None] = self._inbox.put
        self.wake: Callable[[], None] = self._inbox.wake
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: The system refuses the thread. Nothing remains of it.
        """
        try:
            self._thread.start()
        except RuntimeError:
            self._inbox.close()
            raise

    def stop(self, timeout: float | None = None) -> None:
        """End the thread, and wait for it unless it is the calling thread. Idempotent.

        Args:
            timeout: Seconds to wait. None: until work in progress is done.
        """
        self._stopped = True
        self.wake()
        if self._thread.ident is None:
            self._inbox.close()
        elif not self.runs_here():
            self._thread.join(timeout)

    def runs_here(self) -> bool:
        """Return whether the calling thread is this one."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        pause = None
        while not self._stopped:
            events = self._inbox.take(pause or self._next_due())
            if self._stopped:
                break
            failed = [work for work in (*events, self._act) if not self._succeeds(work)]
            pause = self._clock.monotonic() + PAUSE_AFTER_ERROR if failed else None
        self._inbox.close()

    def _succeeds(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except BaseException:
            # This includes SystemExit: one piece of work must not stop the later ones.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
            return False
        return True
