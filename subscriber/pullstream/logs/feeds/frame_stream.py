"""Async iteration over the frames of a watch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.runtime.loop_queue import LoopQueue

from .frames import Frame
from .position import Start
from .watch_client import WatchingClient
from .watch_reader import NotTaken, WatchFuture

# While the loop handles a frame, the watch's thread checks at this interval whether the watch has
# ended, in seconds.
_CHECK_SECONDS = 0.1


class FrameStream:
    """The frames of one watch; see `AsyncSubscriberClient.watch`.

    The watch begins and ends with the iteration. Only one iteration can run at a time. A frame
    counts as handled when the iteration asks for the next frame or ends, or when the watch is
    closed.
    """

    def __init__(self, client: WatchingClient, topics: Mapping[str, Start], **options: Any) -> None:
        self._client = client
        self._topics = topics
        self._options = options
        self._future: WatchFuture | None = None

    @property
    def future(self) -> WatchFuture:
        """The running watch: gives its state and resume token, and can end it from elsewhere.

        Raises:
            RuntimeError: The iteration has not begun.
        """
        if self._future is None:
            raise RuntimeError(
                "the watch has not started; start it by iterating over the stream with `async for`"
            )
        return self._future

    async def __aiter__(self) -> AsyncGenerator[Frame, None]:
        if self._future is not None and not self._future.done():
            raise RuntimeError(
                "another iteration over this stream is running; "
                "call `watch` again for a second stream"
            )
        frame_queue = FrameQueue(asyncio.get_running_loop())
        self._future = future = self._client.watch(self._topics, frame_queue.give, **self._options)
        frame_queue.watch = future
        future.add_done_callback(lambda _: frame_queue.mailbox.wake())
        try:
            while (frame := await frame_queue.mailbox.get(until=future.done)) is not None:
                yield frame
                frame_queue.handled.set()
            # Raises the error that ended the watch, unless the user ended it.
            future.result()
        finally:
            future.cancel()
            frame_queue.close()
            while not future.done():
                await frame_queue.mailbox.wait()


class FrameQueue:
    """Passes frames one at a time from the watch's thread to the event loop.

    The watch's thread waits until the loop is done with the frame.

    Attributes:
        watch: The watch that the frames come from. None until the watch has started.
        mailbox: The queue from which the loop takes the frames.
        handled: Set by the loop when it is done with a frame.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_closed = False
        self.watch: WatchFuture | None = None
        self.mailbox: LoopQueue[Frame] = LoopQueue(loop)
        self.handled: threading.Event = threading.Event()

    def give(self, frame: Frame) -> None:
        """Pass a frame to the loop and wait until it is handled. Runs on the watch's thread."""
        self.handled.clear()
        self.mailbox.put(frame)
        while not (self._is_over() or self.handled.wait(_CHECK_SECONDS)):
            pass
        if self.mailbox.withdraw():
            raise NotTaken

    def close(self) -> None:
        """Accept no more frames: the loop does not take them any more."""
        self._is_closed = True
        self.handled.set()

    def _is_over(self) -> bool:
        """Return whether to stop waiting for the loop.

        The thread that closes the watch waits for this thread. It may be the loop's own thread,
        which then cannot take the frame.
        """
        if self._is_closed or self._loop.is_closed():
            return True
        return self.watch is not None and self.watch.state is SubscriptionState.CLOSING
