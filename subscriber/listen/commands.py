"""Commands on their way to the publisher: in order, and one batch at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.messages import channels_pb2 as channels

from .interest import Interest


class Command(NamedTuple):
    """Subscribe or unsubscribe."""

    interest: Interest
    subscribe: bool

    def encode(self) -> channels.Command:
        interest = self.interest
        return channels.Command(
            channel=interest.channel, key=interest.key, subscribe=self.subscribe
        )


@dataclass(eq=False)
class Batch:
    """Commands that are sent together.

    number: grows from batch to batch. A batch that is sent again keeps its own, so that the
        publisher knows it.
    replace: it begins anew: what the publisher knew before is over.
    is_sent: its call is under way.
    is_superseded: it does not matter any more what becomes of it.
    """

    number: int
    replace: bool
    commands: list[Command] = field(default_factory=list)
    is_sent: bool = False
    is_superseded: bool = False


class CommandQueue:
    """The batch under way, and the commands behind it.

    The first command of an idle queue is a batch of its own, so that it goes at once; what comes
    meanwhile goes together in the next, up to `max_batch`. A batch that is refused is cut in two
    until the culprit stands alone: that is dropped, the others are applied.

    The first batch of all replaces whatever the publisher may know; so does the one after `reset`.
    """

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._limit = max_batch
        self._waiting: deque[Command] = deque()
        self._batch: Batch | None = None
        self._replace = True
        self._number = 0

    def __len__(self) -> int:
        """Commands that are not answered."""
        return len(self._waiting) + (0 if self._batch is None else len(self._batch.commands))

    @property
    def batch(self) -> Batch | None:
        """The batch that is under way, or to be sent."""
        return self._batch

    def add(self, command: Command) -> None:
        self._waiting.append(command)
        if self._batch is None:
            self._form(1)

    def add_nothing(self) -> None:
        """Have an empty batch sent, if no other is: the publisher is to hear of us."""
        if self._batch is None:
            self._number += 1
            self._batch = Batch(self._number, self._replace)

    def applied(self) -> list[Command]:
        """The batch has been applied; returns its commands."""
        batch = self._finish()
        if batch.is_superseded:
            commands: list[Command] = []
        else:
            commands = batch.commands
            self._replace = self._replace and not batch.replace
            self._limit = self._max_batch
        self._form(self._limit)
        return commands

    def refused(self) -> Command | None:
        """The publisher does not take the batch. Returns the culprit, when it is found."""
        batch = self._finish()
        culprit = None
        if not batch.is_superseded:
            if len(batch.commands) <= 1:
                culprit = next(iter(batch.commands), None)
                self._limit = self._max_batch
            else:
                self._waiting.extendleft(reversed(batch.commands))
                self._limit = len(batch.commands) // 2
        self._form(self._limit)
        return culprit

    def failed(self) -> None:
        """Nothing is known of what became of the batch: it is to be sent again."""
        batch = self._batch
        assert batch is not None
        batch.is_sent = False
        if batch.is_superseded:
            self._finish()
            self._form(self._limit)

    def reset(self, interests: Iterable[Interest]) -> None:
        """The publisher knows nothing: the next batch begins anew, with all of these."""
        self._waiting = deque(Command(interest, subscribe=True) for interest in interests)
        self._replace = True
        if self._batch is None or not self._batch.is_sent:
            self._batch = None
            self._form(self._limit)
        else:
            # Only one at a time, even so.
            self._batch.is_superseded = True

    def clear(self) -> None:
        """Forget everything. Whatever becomes of a batch under way is not to be told."""
        self._waiting.clear()
        self._batch = None
        self._replace = True
        self._limit = self._max_batch

    def _finish(self) -> Batch:
        batch, self._batch = self._batch, None
        assert batch is not None
        return batch

    def _form(self, limit: int) -> None:
        if self._waiting:
            self._number += 1
            count = min(limit, len(self._waiting))
            commands = [self._waiting.popleft() for _ in range(count)]
            self._batch = Batch(self._number, self._replace, commands)
