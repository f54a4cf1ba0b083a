"""A watch for an `async for`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from subscriber.mailbox import Mailbox
from subscriber.streaming.state import SubscriptionState

from .frames import Frame
from .position import Start
from .watch import NotTaken, WatchFuture
from .watching import WatchingClient

# How often the watch, while the loop has a frame, looks whether that is worth waiting for still, in
# seconds.
_LOOK_SECONDS = 0.1


class FrameStream:
    """The frames of one watch; see `AsyncSubscriberClient.watch`.

    The watch begins with the iteration and ends with it. One iteration at a time. A frame that the
    loop has got counts as handled when it asks for the next one, is left, or the watch is closed.
    """

    def __init__(self, client: WatchingClient, topics: Mapping[str, Start], **options: Any) -> None:
        self._client = client
        self._topics = topics
        self._options = options
        self._future: WatchFuture | None = None

    @property
    def future(self) -> WatchFuture:
        """The running watch, for its state and its resume token, and to end it from elsewhere.

        Raises:
            RuntimeError: the iteration has not begun.
        """
        if self._future is None:
            raise RuntimeError("the stream has not begun; iterate over it")
        return self._future

    async def __aiter__(self) -> AsyncGenerator[Frame, None]:
        if self._future is not None and not self._future.done():
            raise RuntimeError("this stream is being iterated over; ask the client for another")
        handover = Handover(asyncio.get_running_loop())
        self._future = future = self._client.watch(self._topics, handover.give, **self._options)
        handover.watch = future
        future.add_done_callback(lambda _: handover.mailbox.wake())
        try:
            while (frame := await handover.mailbox.get(until=future.done)) is not None:
                yield frame
                handover.taken.set()
            # Raises what ended the watch, if it was not the user.
            future.result()
        finally:
            future.cancel()
            handover.close()
            while not future.done():
                await handover.mailbox.wait()


class Handover:
    """One frame at a time from the watch's thread, which waits until it is done with, to the loop.

    watch: whose frames they are, once it is known. mailbox: what the loop takes them from. taken:
    set by the loop when it is done with one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_closed = False
        self.watch: WatchFuture | None = None
        self.mailbox: Mailbox[Frame] = Mailbox(loop)
        self.taken: threading.Event = threading.Event()

    def give(self, frame: Frame) -> None:
        """On the watch's thread."""
        self.taken.clear()
        self.mailbox.put(frame)
        while not (self._is_over() or self.taken.wait(_LOOK_SECONDS)):
            pass
        if self.mailbox.withdraw():
            raise NotTaken

    def close(self) -> None:
        """The loop takes no more."""
        self._is_closed = True
        self.taken.set()

    def _is_over(self) -> bool:
        """Whoever closes the watch waits for this thread, perhaps on the loop."""
        if self._is_closed or self._loop.is_closed():
            return True
        return self.watch is not None and self.watch.state is SubscriptionState.CLOSING
