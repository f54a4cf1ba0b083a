"""Queue of commands to the publisher. Commands are sent in order, one batch at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pullstream_protocol.messages import channels_pb2 as channels

from .subscription import ChannelSubscription


class Command(NamedTuple):
    """A command to subscribe or unsubscribe.

    Attributes:
        interest: The subscription.
        subscribe: True to subscribe, False to unsubscribe.
    """

    interest: ChannelSubscription
    subscribe: bool

    def encode(self) -> channels.Command:
        """Return the command as a message of the protocol."""
        interest = self.interest
        return channels.Command(
            channel=interest.channel, key=interest.key, subscribe=self.subscribe
        )


@dataclass(eq=False)
class CommandBatch:
    """Commands that are sent together.

    Attributes:
        number: Grows from batch to batch. A batch that is sent again keeps its number, so that the
            publisher recognizes it.
        replace: Whether the batch replaces all subscriptions that the publisher has from this
            subscriber.
        commands: The commands. May be empty.
        is_sent: Whether its call is running.
        is_superseded: Whether the result of the batch is ignored.
    """

    number: int
    replace: bool
    commands: list[Command] = field(default_factory=list)
    is_sent: bool = False
    is_superseded: bool = False


class CommandQueue:
    """The current batch, and the commands after it.

    The first command of an idle queue forms a batch alone, so that it is sent at once. Commands
    that are added in the meantime form the next batch, up to `max_batch`. If a batch is refused, it
    is halved repeatedly until the refused command is alone in a batch. That command is dropped, and
    the others are applied.

    The very first batch, and the first one after `reset`, replace all subscriptions that the
    publisher may have from this subscriber.

    Attributes:
        batch: The batch that is being sent, or is sent next. None if there are no commands.
    """

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._limit = max_batch
        self._waiting: deque[Command] = deque()
        self.batch: CommandBatch | None = None
        self._replace = True
        self._number = 0

    def __len__(self) -> int:
        """Return the number of commands that have not been answered."""
        return len(self._waiting) + (0 if self.batch is None else len(self.batch.commands))

    def add(self, command: Command) -> None:
        """Add a command; if the queue is idle, it forms a batch at once."""
        self._waiting.append(command)
        if self.batch is None:
            self._form(1)

    def add_nothing(self) -> None:
        """Send an empty batch if no other batch is due, so that the publisher keeps the session."""
        if self.batch is None:
            self._number += 1
            self.batch = CommandBatch(self._number, self._replace)

    def applied(self) -> list[Command]:
        """Finish the batch because the publisher has applied it; return its commands."""
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
        """Finish the batch because the publisher refuses it.

        Returns:
            The refused command. None if the batch had several commands and is sent again in halves.
        """
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
        """Send the batch again: its call has failed, and it may or may not have been applied."""
        batch = self.batch
        assert batch is not None
        batch.is_sent = False
        if batch.is_superseded:
            self._finish()
            self._form(self._limit)

    def reset(self, interests: Iterable[ChannelSubscription]) -> None:
        """Send all of these subscriptions, because the publisher has lost the session."""
        self._waiting = deque(Command(interest, subscribe=True) for interest in interests)
        self._replace = True
        if self.batch is None or not self.batch.is_sent:
            self.batch = None
            self._form(self._limit)
        else:
            # Wait for the running call, because only one batch is sent at a time.
            self.batch.is_superseded = True

    def clear(self) -> None:
        """Drop all commands. The result of a running call is ignored."""
        self._waiting.clear()
        self.batch = None
        self._replace = True
        self._limit = self._max_batch

    def _finish(self) -> CommandBatch:
        batch, self.batch = self.batch, None
        assert batch is not None
        return batch

    def _form(self, limit: int) -> None:
        if self._waiting:
            self._number += 1
            count = min(limit, len(self._waiting))
            commands = [self._waiting.popleft() for _ in range(count)]
            self.batch = CommandBatch(self._number, self._replace, commands)
