"""When a position is kept: after so many records, or after so many seconds."""

from __future__ import annotations

import logging

from protocol.clock import Clock
from protocol.errors import RpcError
from subscriber.streaming.stream import TERMINAL_CODES

from .events import Checkpoint
from .stores import CheckpointError, CheckpointStore

_log = logging.getLogger("pullstream.follow")


def is_passing(error: BaseException) -> bool:
    """Whether a failed call may succeed when it is made again."""
    return isinstance(error, RpcError) and error.grpc_status_code not in TERMINAL_CODES


class Keeper:
    """A follower's position, and how much of it its store knows. Used by one thread; any other may
    look at it.

    kept: what the store has; None: nothing yet.
    due: when the position is to be kept, on the monotonic clock; None while the store knows all.

    Args:
        every, seconds: the position is kept when it has passed so many records, or when so many
            seconds have passed since it left what is kept.
    """

    def __init__(self, store: CheckpointStore, every: int, seconds: float, clock: Clock) -> None:
        self.kept: Checkpoint | None = None
        self.due: float | None = None
        self._store = store
        self._every = every
        self._seconds = seconds
        self._clock = clock
        # Two numbers and not a Checkpoint, which would be made for each record.
        self._seq = -1
        self._epoch = 0
        self._passed = 0

    @property
    def position(self) -> Checkpoint | None:
        """After the last record that was handled; None until it is known."""
        return None if self._seq < 0 else Checkpoint(self._seq, self._epoch)

    def open(self, topic: str) -> Checkpoint | None:
        """What the store has from an earlier time.

        Raises:
            RpcError: it cannot be had now, but perhaps later.
            CheckpointError: it cannot be had.
        """
        try:
            self.kept = self._store.open(topic)
        except Exception as error:
            if is_passing(error):
                raise
            raise _final(error) from error
        return self.kept

    def passed(self, seq: int, epoch: int) -> None:
        """A record was handled. The position may be kept now, which takes its time."""
        self._seq = seq
        self._epoch = epoch
        self._passed += 1
        now = self._clock.monotonic()
        if self.due is None:
            self.due = now + self._seconds
        if self._passed >= self._every or now >= self.due:
            self.save()

    def moved(self, position: Checkpoint) -> None:
        """The follower stands here, behind records that are not for it or by its start. The
        position may be kept now, which takes its time."""
        if position != self.position:
            self._seq, self._epoch = position.seq, position.epoch
            if self.due is None and position != self.kept:
                self.due = self._clock.monotonic() + self._seconds
        # Also where a filter lets nothing pass, for hours perhaps.
        if self.due is not None and self._clock.monotonic() >= self.due:
            self.save()

    def save(self) -> None:
        """Keep the position if the store has another.

        What may pass is logged, and the next attempt is due after as many seconds as always.

        Raises:
            CheckpointError: the store has failed for good.
        """
        position = self.position
        if self.due is None or position is None:
            return
        try:
            self._store.save(position)
        except Exception as error:
            if not is_passing(error):
                raise _final(error) from error
            _log.warning("position %d could not be kept: %s", position.seq, error)
            self.due = self._clock.monotonic() + self._seconds
        else:
            self.kept, self.due = position, None
        self._passed = 0

    def close(self) -> None:
        self._store.close()


def _final(error: Exception) -> CheckpointError:
    if isinstance(error, CheckpointError):
        return error
    return CheckpointError(f"the checkpoint store failed: {error!r}")
