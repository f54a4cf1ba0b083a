"""Where a follower's position is kept: in a file, with the server, or where the user wants it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from protocol.errors import FailedPrecondition, NotFound, PullstreamError
from protocol.messages import feeds_pb2 as feeds
from subscriber.rpc import Rpcs

from .events import Checkpoint

# Of one call for a cursor, in seconds.
_TIMEOUT = 10.0


class CheckpointError(PullstreamError):
    """A position could not be kept or read, or somebody else is keeping it."""


@runtime_checkable
class CheckpointStore(Protocol):
    """A place for the position of one follower. The follower's own thread makes all calls.

    An error of a call that another attempt may mend (`protocol.errors.Unavailable` and its like) is
    logged, and the call is made again. Any other ends the follower.
    """

    def open(self, topic: str) -> Checkpoint | None:
        """Begin to keep the position in `topic` (full name); returns the one that is kept."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep this instead. When it returns, it is kept whatever happens."""

    def close(self) -> None:
        """Nothing more will be kept. Also called when `open` has failed."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """Keeps positions in an SQLite file, which is made if need be: of many followers, each under
    its name.

    A position is replaced at once. While a follower uses a name nobody else can, in this process or
    another: the lock ends with the process, also when that is killed. Beside the file lies one that
    ends in `.lock` for each name.

    path: of the file; its folder must exist. name: of the follower. Default: its topic's.
    """

    path: str | os.PathLike[str]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ServerCursor:
    """Keeps the position with the broker, under a name: `projects/P/cursors/C`.

    The broker does not lock it: two that follow under one name overwrite each other's position.
    """

    name: str


Callback: TypeAlias = Callable[[Checkpoint], Any]
Checkpoints: TypeAlias = (
    "str | os.PathLike[str] | CheckpointFile | ServerCursor | CheckpointStore | Callback | None"
)


class Nowhere:
    """Forgets."""

    def open(self, topic: str) -> Checkpoint | None:
        return None

    def save(self, checkpoint: Checkpoint) -> None:
        pass

    def close(self) -> None:
        pass


class CallbackStore(Nowhere):
    """Tells the user, who has said where to begin, too."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def save(self, checkpoint: Checkpoint) -> None:
        self._callback(checkpoint)


class CursorStore:
    """A cursor of the broker's."""

    def __init__(self, rpcs: Rpcs, name: str) -> None:
        self._rpcs = rpcs
        self._name = name
        self._topic = ""

    def open(self, topic: str) -> Checkpoint | None:
        self._topic = topic
        request = feeds.GetCursorRequest(name=self._name)
        try:
            cursor = self._rpcs.call("GetCursor", request, retry=None, timeout=_TIMEOUT)
        except NotFound:
            return None
        if cursor.topic != topic:
            raise CheckpointError(f"{self._name} is a cursor of {cursor.topic}, not of {topic}")
        return Checkpoint(cursor.seq, cursor.epoch)

    def save(self, checkpoint: Checkpoint) -> None:
        cursor = feeds.Cursor(
            name=self._name, topic=self._topic, seq=checkpoint.seq, epoch=checkpoint.epoch
        )
        request = feeds.PutCursorRequest(cursor=cursor)
        try:
            self._rpcs.call("PutCursor", request, retry=None, timeout=_TIMEOUT)
        except (NotFound, FailedPrecondition) as error:
            # The topic is gone, or is another one by now: the next read will say so. A cursor that
            # somebody made for another topic is a mistake that nothing else would tell.
            if error.reason == "CURSOR_OF_OTHER_TOPIC":
                raise

    def close(self) -> None:
        pass
