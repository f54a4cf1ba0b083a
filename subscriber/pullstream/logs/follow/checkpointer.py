"""Checkpointer: saves a position after a number of records or a number of seconds."""

from __future__ import annotations

import logging

from pullstream.streaming.stream import TERMINAL_CODES
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError

from .events import Checkpoint
from .stores import CheckpointError, CheckpointStore

_log = logging.getLogger("pullstream.follow")


def is_temporary(error: BaseException) -> bool:
    """Return whether a failed call may succeed when it is retried."""
    return isinstance(error, RpcError) and error.grpc_status_code not in TERMINAL_CODES


class Checkpointer:
    """A follower's position, and the position that its store has saved.

    Used by one thread. Other threads may read the attributes.

    Attributes:
        kept: The position that the store has saved. None if nothing has been saved yet.
        due: The time at which the position must be saved, on the monotonic clock. None while the
            saved position is the current one.

    Args:
        store: The place where the position is saved.
        every: Save the position when it has moved past this many records.
        seconds: Save the position this many seconds after it has moved away from the saved one.
        clock: The source of time.
    """

    def __init__(self, store: CheckpointStore, every: int, seconds: float, clock: Clock) -> None:
        self.kept: Checkpoint | None = None
        self.due: float | None = None
        self._store = store
        self._every = every
        self._seconds = seconds
        self._clock = clock
        # Two numbers instead of a Checkpoint, which would have to be created for each record.
        self._seq = -1
        self._epoch = 0
        self._passed = 0

    @property
    def position(self) -> Checkpoint | None:
        """The position after the last handled record. None until it is known."""
        return None if self._seq < 0 else Checkpoint(self._seq, self._epoch)

    def open(self, topic: str) -> Checkpoint | None:
        """Open the store and return the position that it has saved.

        Raises:
            RpcError: The store cannot be read now; a retry may succeed.
            CheckpointError: The store cannot be read.
        """
        try:
            self.kept = self._store.open(topic)
        except Exception as error:
            if is_temporary(error):
                raise
            raise _final(error) from error
        return self.kept

    def passed(self, seq: int, epoch: int) -> None:
        """Record that a record was handled. May save the position, which may block."""
        self._seq = seq
        self._epoch = epoch
        self._passed += 1
        now = self._clock.monotonic()
        if self.due is None:
            self.due = now + self._seconds
        if self._passed >= self._every or now >= self.due:
            self.save()

    def moved(self, position: Checkpoint) -> None:
        """Move the position without a handled record. May save the position, which may block.

        The position moves in this way past records that the filter removes, and at the start.
        """
        if position != self.position:
            self._seq, self._epoch = position.seq, position.epoch
            if self.due is None and position != self.kept:
                self.due = self._clock.monotonic() + self._seconds
        # Save here too, because a filter may let no record pass for hours.
        if self.due is not None and self._clock.monotonic() >= self.due:
            self.save()

    def save(self) -> None:
        """Save the position if it differs from the saved one.

        A temporary failure is logged, and the next attempt is due after the usual interval.

        Raises:
            CheckpointError: The store has failed, and a retry cannot fix it.
        """
        position = self.position
        if self.due is None or position is None:
            return
        try:
            self._store.save(position)
        except Exception as error:
            if not is_temporary(error):
                raise _final(error) from error
            _log.warning("position %d could not be saved, retrying: %s", position.seq, error)
            self.due = self._clock.monotonic() + self._seconds
        else:
            self.kept, self.due = position, None
        self._passed = 0

    def close(self) -> None:
        """Close the store; a position that was not saved is lost."""
        self._store.close()


def _final(error: Exception) -> CheckpointError:
    if isinstance(error, CheckpointError):
        return error
    return CheckpointError(f"the checkpoint store failed: {error!r}")
