"""Callback thread: runs the user's functions of one listener."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from pullstream.runtime.callback_kinds import refuse_awaitable
from pullstream.runtime.repeated_errors import RepeatedErrors

from .events import ChannelMessage, ListenEvent
from .subscription import Answered, Arrived, Failed, Notice

_log = logging.getLogger("pullstream.listen")

# While this many poll responses wait for callbacks, no new poll is sent. One more response may be
# on its way at that time.
_MAX_WAITING = 2


class CallbackThread:
    """Runs callbacks one at a time, in the order in which they are put.

    Only the listener's thread puts, and only this thread takes. A message is skipped if its
    subscription has ended before its turn. If a callback raises an error, the error is logged and
    the next callback runs. SystemExit and KeyboardInterrupt end the listener: no more messages are
    passed on, and the callbacks that report the end still run.

    Args:
        on_event: Called with each Reset and Dropped. None: they are logged.
        on_room: Called when there is room again after there was none.
        on_exit: Called with a SystemExit or another exception that ends the listener.
    """

    def __init__(
        self,
        on_event: Callable[[ListenEvent], object] | None,
        on_room: Callable[[], None],
        on_exit: Callable[[BaseException], None],
    ) -> None:
        self._on_event = on_event
        self._on_room = on_room
        self._on_exit = on_exit
        self._is_over = False
        # Each entry has the events of one response. None ends the thread.
        self._waiting: queue.SimpleQueue[Sequence[Notice] | None] = queue.SimpleQueue()
        self._was_full = False
        self._errors = RepeatedErrors(_log)
        # A daemon thread: a callback that never returns must not prevent the program from exiting.
        self._thread = threading.Thread(
            target=self._run, name="pullstream-listen-callbacks", daemon=True
        )
        self._thread.start()

    def put(self, notices: Sequence[Notice]) -> None:
        """Queue the events of one response; never waits."""
        if notices:
            self._waiting.put(notices)

    def has_room(self) -> bool:
        """Return whether to poll; if not, `on_room` is called when there is room again."""
        if self._waiting.qsize() < _MAX_WAITING:
            return True
        self._was_full = True
        # Check again: the thread may have emptied the queue before it could see the flag. Then it
        # does not call `on_room`.
        return self._waiting.qsize() < _MAX_WAITING

    def runs_here(self) -> bool:
        """Return whether the calling thread is this one, so that it is inside a callback."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread when it has run the callbacks for all earlier entries."""
        self._waiting.put(None)

    def has_ended(self, timeout: float) -> bool:
        """Return whether the thread has ended, after at most `timeout` seconds of real time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (notices := self._waiting.get()) is not None:
            for notice in notices:
                try:
                    self._deliver(notice)
                except Exception as error:
                    self._errors.report(error, "a callback of a listener raised an error")
                except BaseException as error:
                    _log.exception("a callback of a listener raised; the listener ends")
                    self._is_over = True
                    self._on_exit(error)
            # Otherwise the last message would stay in memory until the next one comes.
            del notices, notice
            if self._was_full:
                self._was_full = False
                self._on_room()
        self._errors.report_rest()

    def _deliver(self, notice: Notice) -> None:
        if isinstance(notice, Arrived):
            if notice.interest.is_wanted and not self._is_over:
                on_message = notice.interest.on_message
                refuse_awaitable(on_message(ChannelMessage(notice.item)), on_message)
        elif isinstance(notice, Failed):
            on_failure = notice.interest.on_failure
            if on_failure is not None:
                refuse_awaitable(on_failure(notice.error), on_failure)
            else:
                interest = notice.interest
                _log.error(
                    "the subscription to channel %s, key %s has failed: %s",
                    *(interest.channel, interest.key, notice.error),
                )
        elif isinstance(notice, Answered):
            on_done = notice.interest.on_done
            if on_done is not None:
                refuse_awaitable(on_done(notice.error), on_done)
        elif self._on_event is not None:
            refuse_awaitable(self._on_event(notice), self._on_event)
        else:
            _log.warning("messages were lost: %s", notice)
