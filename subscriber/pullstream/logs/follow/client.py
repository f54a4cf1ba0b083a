"""Client method `follow`: reads a topic from a position, without loss or duplicates."""

from __future__ import annotations

import os
from typing import TypedDict

from pullstream.logs.feeds.position import Start, position_of
from pullstream.rpc.background_client import BackgroundClient
from pullstream.rpc.rpcs import Rpcs
from pullstream.runtime.callback_kinds import is_coroutine_function, require_handler
from pullstream.runtime.validation import require_number, require_text, require_timeout
from pullstream_protocol.messages import feeds_pb2 as feeds

from .events import Checkpoint
from .future import Follower
from .runner import FollowRunner, Handler, OnEvent
from .settings import FollowRules, FollowSettings
from .source import Source
from .stores import (
    CallbackStore,
    CheckpointFile,
    Checkpoints,
    CheckpointStore,
    CursorStore,
    FileStore,
    NoStore,
    ServerCursor,
)


class FollowOptions(TypedDict, total=False):
    """Keyword arguments of `follow`; see there."""

    checkpoint: Checkpoints
    on_event: OnEvent | None
    filter: str
    exclude_node: str
    create: bool
    checkpoint_every: int
    checkpoint_seconds: float
    live_buffer: int
    give_up_after: float | None


class FollowingClient(BackgroundClient):
    """Follows topics: every record once and in order, from a saved position."""

    def follow(
        self,
        topic: str,
        handler: Handler,
        after: Start | Checkpoint = 0,
        *,
        checkpoint: Checkpoints = None,
        on_event: OnEvent | None = None,
        filter: str = "",
        exclude_node: str = "",
        create: bool = False,
        checkpoint_every: int = 1000,
        checkpoint_seconds: float = 2.0,
        live_buffer: int = 500,
        give_up_after: float | None = None,
    ) -> Follower:
        """Pass every record of a topic to `handler(record)`, in the background.

        The existing records come first, then new ones as they are appended. The handler runs on one
        thread, for one record at a time, in the order of the log. If records cannot be read any
        more, `on_event` receives a `Gap` before the next record. After a restart or a crash, the
        follower continues from the last saved checkpoint. The records that were handled after that
        checkpoint come again.

        Args:
            topic: The full name of the topic, `projects/P/topics/T`. The broker must support feeds.
            handler: The function that handles records. If it raises an error, the follower ends
                with that error, and its position stays before the record.
            after: The start position if no position is saved: "tail", the sequence number of the
                last record that the program has (0 starts from the oldest record), a Checkpoint, a
                Position or a Cursor. If the log has not reached the number yet, the follower waits
                for it.
            checkpoint: The place where the position is saved. A path: an SQLite file (see
                CheckpointFile). A ServerCursor: on the broker. A function: it is called with each
                Checkpoint, and `after` gives the start position. An object that implements
                CheckpointStore. None: the position is not saved.
            on_event: Called with each CaughtUp, FellBehind, Gap and Closed, on the handler's
                thread. An error that it raises is logged and otherwise ignored.
            filter: Deliver only records that match, in the language of subscription filters.
                Default: the filter of `after`, if it is a Position with a filter.
            exclude_node: Leave out the records of this node.
            create: Create the topic if it does not exist.
            checkpoint_every: Save the position after this many records. It is also saved at the
                end.
            checkpoint_seconds: Save the position after this many seconds, even if fewer records
                were handled.
            live_buffer: The most records that the stream may be ahead of the handler. If there are
                more, the follower goes back to reads.
            give_up_after: If the server does not answer for this many seconds, the follower ends
                with the last error. Default: it retries without a limit.

        Returns:
            A future that ends when the follower ends; `close()` or `cancel()` ends the follower.
            Its `result()` raises NotFound if the topic does not exist, CheckpointError, and other
            errors of the follower.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            SubscriberClosed: The client is closed.
            ForkedProcess: The client was created in the parent process, before a fork.
        """
        require_text("topic", topic, "the full name of a topic, a str")
        form = "that takes one record (for coroutines, use AsyncSubscriberClient.follow)"
        require_handler("handler", handler, form)
        if on_event is not None:
            require_handler("on_event", on_event, "of one event")
        for name, text in (("filter", filter), ("exclude_node", exclude_node)):
            require_text(name, text)
        _check_range("checkpoint_every", checkpoint_every, 1)
        _check_range("checkpoint_seconds", checkpoint_seconds, 0)
        _check_range("live_buffer", live_buffer, 1)
        require_timeout("give_up_after", give_up_after)
        if isinstance(after, Checkpoint):
            after = feeds.Position(after_seq=after.seq, epoch=after.epoch)
        position = position_of(after, topic)
        settings = FollowSettings(
            topic,
            filter or position.filter,
            exclude_node,
            checkpoint_every,
            checkpoint_seconds,
            create,
            FollowRules(live_buffer=live_buffer, give_up_after=give_up_after),
        )
        begin = _checkpoint_of(position)
        store = _store_of(checkpoint, self._rpcs)

        def start() -> Follower:
            follow = FollowRunner(
                Source(self._rpcs, settings), store, handler, on_event, begin, settings
            )
            follow.start()
            return follow.future

        return self._keep(start)


def _check_range(name: str, value: float, least: int) -> None:
    if require_number(name, value) < least:
        raise ValueError(f"{name} is {value!r}; it must be at least {least}")


def _checkpoint_of(after: feeds.Position) -> Checkpoint | None:
    """Return the checkpoint of a position; None is the end of the log."""
    return None if after.tail else Checkpoint(after.after_seq, after.epoch)


def _store_of(checkpoint: Checkpoints, rpcs: Rpcs) -> CheckpointStore:
    if checkpoint is None:
        return NoStore()
    if isinstance(checkpoint, (str, os.PathLike)):
        checkpoint = CheckpointFile(checkpoint)
    if isinstance(checkpoint, CheckpointFile):
        return FileStore(checkpoint)
    if isinstance(checkpoint, ServerCursor):
        return CursorStore(rpcs, checkpoint.name)
    if isinstance(checkpoint, CheckpointStore):
        return checkpoint
    if callable(checkpoint) and not is_coroutine_function(checkpoint):
        return CallbackStore(checkpoint)
    raise TypeError(
        f"checkpoint is {checkpoint!r}; it must be a path, a CheckpointFile, a ServerCursor, a "
        "CheckpointStore, a plain function or None"
    )
