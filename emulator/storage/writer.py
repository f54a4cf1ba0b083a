"""The thread that writes: changes gather while it is busy, and go to disk together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from protocol.errors import Unavailable

from .ledger import Change

_log = logging.getLogger("pullstream.emulator")

# How long changes gather when nobody waits for them, in seconds. A crash loses what came in then.
GATHER = 0.05

# After an error the same is tried again so often, in seconds.
RETRY = 0.5

# Messages of more bytes than this do not wait in memory: their publishers wait until it is less.
MAX_UNWRITTEN = 64 * 1024 * 1024


class Group:
    """Changes that are written in one transaction. `written` says when, or why they were not."""

    __slots__ = ("changes", "size", "urgent", "written")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.size = 0
        self.urgent = False
        self.written: Future[None] = Future()
        # Somebody who gives up waiting for it must not cancel it for the others.
        self.written.set_running_or_notify_cancel()


class Writer:
    """Writes groups of changes with `write`, one after the other, on a thread of its own.

    When a write fails nothing of it is done; it is repeated, together with what has come since,
    until it succeeds. `failure` says why meanwhile.
    """

    def __init__(self, write: Callable[[Sequence[Change]], None], where: str) -> None:
        self._write = write
        self._where = where
        self._changed = threading.Condition()
        self._group = Group()
        self._unwritten: list[Change] = []
        self._closing = False
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name="pullstream-storage", daemon=True)
        self._thread.start()

    def add(self, change: Change, *, size: int = 0, urgent: bool = False) -> Group:
        """Have a change written, soon or at once; returns the group that it is in."""
        with self._changed:
            group = self._group
            group.changes.append(change)
            group.size += size
            urgent = urgent or group.size > MAX_UNWRITTEN
            if len(group.changes) == 1 or (urgent and not group.urgent):
                self._changed.notify()
            group.urgent |= urgent
            return group

    def flush(self) -> None:
        """Wait until all that was added is on disk.

        Raises:
            Unavailable: it cannot be written.
        """
        self.add(lambda ledger: None, urgent=True).written.result()

    def close(self) -> None:
        """Write what there is, and end the thread. What cannot be written is lost, and logged."""
        self.add(lambda ledger: None)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            self._unwritten += group.changes
            try:
                self._write(self._unwritten)
            except Exception as error:
                self._fail(error)
                group.written.set_exception(Unavailable(self.failure))
            else:
                self._succeed()
                group.written.set_result(None)
        if self._unwritten:
            _log.error("%s lacks the last changes, for they could not be written", self._where)

    def _next_group(self) -> Group | None:
        """The next changes to write, once they have gathered; None when all is done."""
        with self._changed:
            if self.failure:
                self._changed.wait_for(lambda: self._closing, RETRY)
            else:
                self._changed.wait_for(lambda: self._group.changes or self._closing)
                self._changed.wait_for(lambda: self._group.urgent or self._closing, GATHER)
            group, self._group = self._group, Group()
            done = self._closing and not group.changes
            return None if done else group

    def _fail(self, error: Exception) -> None:
        if not self.failure:
            _log.error(
                "%s cannot be written: %s; until it can, whatever would change is refused",
                self._where,
                error,
            )
        self.failure = f"The broker cannot write to its disk ({error}). The call may be repeated."

    def _succeed(self) -> None:
        self._unwritten.clear()
        if self.failure:
            self.failure = ""
            _log.warning("%s can be written again", self._where)
