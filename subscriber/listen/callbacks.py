"""The thread on which the users' functions of one listener run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from .notices import Answered, Arrived, ChannelMessage, Failed, ListenEvent, Notice

_log = logging.getLogger("pullstream.listen")

# With so many replies waiting for callbacks, no more is asked for. One more may be on its way then.
_MAX_WAITING = 2


class CallbackThread:
    """Runs callbacks one at a time, in the order in which they are put.

    The listener's own thread puts; only this one takes. A message whose subscription is over by the
    time that it would be told is passed over. A callback that raises is logged, and the next one
    runs.

    Args:
        on_event: told of resets and drops. None: they are logged.
        on_room: called when there is room again, after there was none.
    """

    def __init__(
        self, on_event: Callable[[ListenEvent], object] | None, on_room: Callable[[], None]
    ) -> None:
        self._on_event = on_event
        self._on_room = on_room
        # What one answer has brought is one entry. None ends the thread.
        self._waiting: queue.SimpleQueue[Sequence[Notice] | None] = queue.SimpleQueue()
        self._was_full = False
        # Daemon: a callback that never returns must not keep the program from ending.
        self._thread = threading.Thread(
            target=self._run, name="pullstream-listen-callbacks", daemon=True
        )
        self._thread.start()

    def put(self, notices: Sequence[Notice]) -> None:
        if notices:
            self._waiting.put(notices)

    def has_room(self) -> bool:
        """Whether more may be asked for; if not, `on_room` will tell."""
        if self._waiting.qsize() < _MAX_WAITING:
            return True
        self._was_full = True
        # Looked at again: the thread tells of room if it finds the flag after what waits now.
        return self._waiting.qsize() < _MAX_WAITING

    def runs_here(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Let it end when it has told what was put before."""
        self._waiting.put(None)

    def has_ended(self, timeout: float) -> bool:
        """Whether the thread is over, within so many seconds of real time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (notices := self._waiting.get()) is not None:
            for notice in notices:
                try:
                    self._tell(notice)
                except Exception:
                    _log.exception("a callback of a listener raised")
            # Else the last one would be kept for as long as nothing comes.
            del notices, notice
            if self._was_full:
                self._was_full = False
                self._on_room()

    def _tell(self, notice: Notice) -> None:
        if isinstance(notice, Arrived):
            if notice.interest.is_wanted:
                notice.interest.on_message(ChannelMessage(notice.item))
        elif isinstance(notice, Failed):
            if notice.interest.on_failure is not None:
                notice.interest.on_failure(notice.error)
            else:
                interest = notice.interest
                _log.error(
                    "the subscription to %s, key %s has failed: %s",
                    *(interest.channel, interest.key, notice.error),
                )
        elif isinstance(notice, Answered):
            if notice.interest.on_done is not None:
                notice.interest.on_done(notice.error)
        elif self._on_event is not None:
            self._on_event(notice)
        else:
            _log.warning("messages were lost: %s", notice)
