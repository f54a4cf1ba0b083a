"""The writer thread: changes gather while it is busy, and are written together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pullstream_protocol.clock import Clock, SystemClock
from pullstream_protocol.errors import Unavailable

from .sql_writer import Change

_log = logging.getLogger("pullstream.emulator")

# Time for which changes gather if no call waits for them, in seconds.
GATHER = 0.05

# The writer rests after this time without a change, in seconds.
REST = 0.05

# Interval between two attempts after an error, in seconds.
RETRY = 0.5

# Most bytes of unwritten messages in memory. Above this limit, publishers wait for the disk.
MAX_UNWRITTEN = 64 * 1024 * 1024


class WriteError(Exception):
    """The last changes could not be written. The text gives the reason."""


class WriteBatch:
    """Changes that are written in one transaction.

    Attributes:
        begun: The monotonic time of the first change.
        changes: The changes.
        size: Size of the messages in the changes, in bytes.
        urgent: Whether a call waits for them.
        written: Completes when the changes are on disk, or fails with the reason.
    """

    __slots__ = ("begun", "changes", "size", "urgent", "written")

    def __init__(self) -> None:
        self.begun = 0.0
        self.changes: list[Change] = []
        self.size = 0
        self.urgent = False
        self.written: Future[None] = Future()
        # A caller that stops waiting must not cancel it for the other callers.
        self.written.set_running_or_notify_cancel()


class Writer:
    """Writes batches of changes, one after the other, on a separate thread.

    A failed write changes nothing. It is repeated, together with the changes since, until it
    succeeds.

    Args:
        write: Writes changes to the database, all or none.
        confirm: Writes the mark of the newest commit. Calls get their replies after it.
        rest: Called when there was no change for REST seconds.
        where: The name of the database, for the log.
        max_loss: The greatest age of the oldest unwritten change, in seconds. While it is older,
            every new change must wait for the disk.
        clock: The clock; None: the system's clock.

    Attributes:
        failure: The reason while writes fail, otherwise "".
    """

    def __init__(
        self,
        write: Callable[[Sequence[Change]], None],
        confirm: Callable[[], None],
        rest: Callable[[], None],
        where: str,
        max_loss: float,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._write = write
        self._confirm = confirm
        self._rest = rest
        self._where = where
        self._max_loss = max_loss
        self._clock = clock or SystemClock()
        # If changes gathered longer than `max_loss`, every publisher would have to wait.
        self._gather = min(GATHER, max_loss / 2)
        self._changed = threading.Condition()
        self._group = WriteBatch()
        self._unwritten: list[Change] = []
        self._jobs: list[tuple[Callable[[], None], Future[None]]] = []
        # The time of the oldest change that the thread has taken and not written.
        self._oldest: float | None = None
        self._closing = False
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name="pullstream-storage", daemon=True)
        self._thread.start()

    def add(
        self, change: Change, *, size: int = 0, urgent: bool = False
    ) -> tuple[WriteBatch, bool]:
        """Queue a change.

        Args:
            change: The change.
            size: Size of the messages in it, in bytes.
            urgent: Whether to write it immediately, because its call waits.

        Returns:
            Its batch, and whether its call must wait for the batch.
        """
        with self._changed:
            group = self._group
            now = self._clock.monotonic()
            if not group.changes:
                group.begun = now
            group.changes.append(change)
            group.size += size
            oldest = group.begun if self._oldest is None else self._oldest
            is_behind = group.size > MAX_UNWRITTEN or now - oldest > self._max_loss
            must_wait = urgent or is_behind
            if len(group.changes) == 1 or (must_wait and not group.urgent):
                self._changed.notify()
            group.urgent |= must_wait
            return group, must_wait

    def hasten(self, group: WriteBatch) -> None:
        """Write a batch immediately, unless its write has already begun."""
        with self._changed:
            if group is self._group and not group.urgent:
                group.urgent = True
                self._changed.notify()

    def flush(self) -> None:
        """Wait until all queued changes are on disk.

        Raises:
            Unavailable: The changes cannot be written.
        """
        self.add(lambda ledger: None, urgent=True)[0].written.result()

    def run_between(self, job: Callable[[], None]) -> Future[None]:
        """Call `job` on the thread when all queued changes are on disk.

        Changes that are queued meanwhile wait until the job has ended.

        Returns:
            Completes with the job, or fails with its exception; with Unavailable if the changes
            cannot be written.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        with self._changed:
            self._jobs.append((job, done))
            self._changed.notify()
        return done

    def close(self) -> None:
        """Write the queued changes and end the thread.

        Raises:
            WriteError: The changes could not be written and are lost.
        """
        self.add(lambda ledger: None)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if self.failure:
            raise WriteError(
                f"{self._where} lacks the last changes, which could not be written "
                f"({self._reason}): messages that were confirmed may be lost"
            )

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            self._unwritten += group.changes
            # Topics keep the batch of their last reservation. It must not keep messages.
            group.changes.clear()
            try:
                if self._unwritten:
                    self._write(self._unwritten)
                    self._unwritten.clear()
                self._confirm()
            except Exception as error:
                self._fail(error)
                group.written.set_exception(Unavailable(self.failure))
            else:
                self._succeed()
                group.written.set_result(None)
            self._do_jobs()

    def _do_jobs(self) -> None:
        with self._changed:
            jobs, self._jobs = self._jobs, []
        for job, done in jobs:
            try:
                if self.failure:
                    raise Unavailable(self.failure)
                job()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _next_group(self) -> WriteBatch | None:
        """Wait for changes to gather, and return their batch; None after the last one."""
        with self._changed:
            if self.failure:
                self._changed.wait_for(lambda: self._closing, RETRY)
            else:
                if not self._changed.wait_for(self._has_work, REST):
                    self._take_rest()
                    self._changed.wait_for(self._has_work)
                self._changed.wait_for(self._must_write, self._gather)
            group, self._group = self._group, WriteBatch()
            if self._oldest is None and group.changes:
                self._oldest = group.begun
            done = self._closing and not group.changes and not self._jobs
            return None if done else group

    def _has_work(self) -> bool:
        return bool(self._group.changes) or bool(self._jobs) or self._closing

    def _must_write(self) -> bool:
        return self._group.urgent or bool(self._jobs) or self._closing

    def _take_rest(self) -> None:
        self._changed.release()
        try:
            self._rest()
        except Exception as error:
            _log.warning("%s: %s", self._where, error)
        finally:
            self._changed.acquire()

    def _fail(self, error: Exception) -> None:
        if not self.failure:
            _log.error(
                "%s cannot be written: %s; calls that change data are refused until it can",
                self._where,
                error,
            )
        self._reason = error
        self.failure = f"The broker cannot write to its disk ({error}). The call may be repeated."

    def _succeed(self) -> None:
        with self._changed:
            self._oldest = None
        if self.failure:
            self.failure = ""
            _log.warning("%s can be written again", self._where)
