"""`client.follow`: a topic from a position on, without a loss or a duplicate on the way."""

from __future__ import annotations

import os
from typing import TypedDict

from protocol.messages import feeds_pb2 as feeds
from subscriber.arguments import number, patience
from subscriber.feeds.position import Start, position_of
from subscriber.feeds.watching import WatchingClient
from subscriber.rpc import Rpcs
from subscriber.streaming.callbacks import is_coroutine_function

from .events import Checkpoint
from .file_store import FileStore
from .follow import Follow, Handler, OnEvent
from .follower import Follower
from .settings import Rules, Settings
from .source import Source
from .stores import (
    CallbackStore,
    CheckpointFile,
    Checkpoints,
    CheckpointStore,
    CursorStore,
    Nowhere,
    ServerCursor,
)


class FollowOptions(TypedDict, total=False):
    """Keywords of `follow`, which says what they mean."""

    checkpoint: Checkpoints
    on_event: OnEvent | None
    filter: str
    exclude_node: str
    create: bool
    checkpoint_every: int
    checkpoint_seconds: float
    live_buffer: int
    give_up_after: float | None


class FollowingClient(WatchingClient):
    """Follows topics: every record once and in order, from a position that is kept."""

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
        """Hand every record of a topic to `handler(record)`, in the background: first those that
        are there, then those that come.

        The handler runs on one thread, for one record after the other, in the order of the log. It
        is told of what cannot be had any more (`Gap`), before the record behind it. What was
        handled when the program stops or is killed is known at the next start by the checkpoint, up
        to the last few: those come again.

        Args:
            topic: full name, `projects/P/topics/T`, on a broker with feeds.
            handler: if it raises, the follower ends with that error, and its position stays before
                the record.
            after: where to begin when nothing is kept: "tail", the number of the last record that
                one has (0: from the oldest there is), a Checkpoint, a Position or a Cursor. A
                number that is yet to come is waited for.
            checkpoint: where the position is kept. A path: an SQLite file (see CheckpointFile). A
                ServerCursor: with the broker. A function: it is called with each Checkpoint, and
                `after` says where to begin. A CheckpointStore of one's own. None: nowhere.
            on_event: called with each CaughtUp, FellBehind, Gap and Closed, on the handler's
                thread. If it raises, that is logged and changes nothing.
            filter: only records that pass, in the language of subscription filters. Default: that
                of `after`, if it is a Position with one.
            exclude_node: leave out the records of this node.
            create: make the topic if it does not exist.
            checkpoint_every, checkpoint_seconds: the position is kept after so many records, or
                after so many seconds, whichever comes first; and at the end.
            live_buffer: records that may come by the stream while the handler is at work; with more
                the follower goes back to reading.
            give_up_after: seconds without an answer from the server after which the follower ends
                with the last error. Default: it goes on trying.

        Returns:
            A future that ends when the follower does; `close()` or `cancel()` ends it. NotFound,
            when there is no such topic, CheckpointError and other errors are raised by its
            `result()`.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or out of its range.
            SubscriberClosed: this client is closed.
            ForkedProcess: this client was made before a fork, in the parent.
        """
        if not isinstance(topic, str):
            raise TypeError(f"topic is {topic!r}; it must be the full name, a str")
        if not callable(handler) or is_coroutine_function(handler):
            raise TypeError(
                f"handler is {handler!r}; it must be a plain function of one record "
                "(AsyncSubscriberClient.follow is for coroutines)"
            )
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event is {on_event!r}; it must be callable with one event")
        for name, text in (("filter", filter), ("exclude_node", exclude_node)):
            if not isinstance(text, str):
                raise TypeError(f"{name} is {text!r}; it must be a str")
        _check_range("checkpoint_every", checkpoint_every, 1)
        _check_range("checkpoint_seconds", checkpoint_seconds, 0)
        _check_range("live_buffer", live_buffer, 1)
        patience("give_up_after", give_up_after)
        if isinstance(after, Checkpoint):
            after = feeds.Position(after_seq=after.seq, epoch=after.epoch)
        position = position_of(after, topic)
        settings = Settings(
            topic,
            filter or position.filter,
            exclude_node,
            checkpoint_every,
            checkpoint_seconds,
            create,
            Rules(live_buffer=live_buffer, give_up_after=give_up_after),
        )
        begin = _checkpoint_of(position)
        store = _store_of(checkpoint, self._rpcs)

        def start() -> Follower:
            follow = Follow(Source(self._rpcs, settings), store, handler, on_event, begin, settings)
            follow.start()
            return follow.future

        return self._keep(start)


def _check_range(name: str, value: float, least: int) -> None:
    if number(name, value) < least:
        raise ValueError(f"{name} is {value!r}; it must be at least {least}")


def _checkpoint_of(after: feeds.Position) -> Checkpoint | None:
    """None stands for the end."""
    return None if after.tail else Checkpoint(after.after_seq, after.epoch)


def _store_of(checkpoint: Checkpoints, rpcs: Rpcs) -> CheckpointStore:
    if checkpoint is None:
        return Nowhere()
    if isinstance(checkpoint, (str, os.PathLike)):
        checkpoint = CheckpointFile(checkpoint)
    if isinstance(checkpoint, CheckpointFile):
        return FileStore(checkpoint)
    if isinstance(checkpoint, ServerCursor):
        return CursorStore(rpcs, checkpoint.name)
    if isinstance(checkpoint, CheckpointStore):
        return checkpoint
    if callable(checkpoint):
        return CallbackStore(checkpoint)
    raise TypeError(
        f"checkpoint is {checkpoint!r}; it must be a path, a CheckpointFile, a ServerCursor, a "
        "CheckpointStore, a function or None"
    )
