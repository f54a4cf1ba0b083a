"""pullstream.feeds.v1.Feeds: topics as logs, one stream for many of them."""

from __future__ import annotations

import asyncio

from emulator.access.caller import caller
from emulator.feeds import Feeds, Watch
from emulator.feeds.cursors import Cursors
from emulator.feeds.reading import wait_of
from emulator.feeds.routers import Routers
from protocol.errors import PermissionDenied
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import feeds_pb2 as feeds
from protocol.waiting import longest_wait

from .context import Context


class FeedsService:
    """The feeds, their routers and cursors, under the names of the RPCs."""

    def __init__(self, core: Feeds, routers: Routers, cursors: Cursors) -> None:
        self._feeds = core
        self.put_feed = core.put_feed
        self.get_feed = core.get_feed
        self.list_feeds = core.list_feeds
        self.append = core.append
        self.delete_messages = core.delete_messages
        self.put_router = routers.put
        self.get_router = routers.get
        self.list_routers = routers.list
        self.delete_router = routers.delete
        self.put_cursor = cursors.put
        self.get_cursor = cursors.get
        self.list_cursors = cursors.list
        self.delete_cursor = cursors.delete

    # ---- reading -------------------------------------------------------------------------------

    async def read(self, request: feeds.ReadRequest, context: Context) -> None:
        response = self._feeds.read(request)
        wait = longest_wait(context, wait_of(request))
        if wait > 0 and not _has_news(response):
            response = await self._wait(request, response, wait)
        await context.write(response)

    async def _wait(
        self, request: feeds.ReadRequest, response: encoded.EncodedReadResponse, wait: float
    ) -> encoded.EncodedReadResponse:
        """Read on until there is something, or until `wait` seconds are over."""
        woken = asyncio.Event()
        timed_out = False

        def give_up() -> None:
            nonlocal timed_out
            timed_out = True
            woken.set()

        # Real time, as with a deadline, whatever clock the broker is on. No asyncio.wait_for:
        # before Python 3.12 it loses a cancellation that comes together with what it waits for.
        timer = asyncio.get_running_loop().call_later(wait, give_up)
        try:
            while not timed_out and not _has_news(response):
                # What was looked at is not looked at again. And the head of a moment ago, where a
                # reader of the tail began, is not the head now.
                request.start.after_seq = response.next_seq
                request.start.epoch = response.epoch
                waiting = self._feeds.wait_for(request.topic, woken.set)
                try:
                    if response.caught_up:
                        await woken.wait()
                    else:
                        # Much that is not wanted: others have their turn.
                        await asyncio.sleep(0)
                finally:
                    waiting.cancel()
                woken.clear()
                if waiting.ended is not None:
                    raise waiting.ended
                response = self._feeds.read(request)
            return response
        finally:
            timer.cancel()

    # ---- watching ------------------------------------------------------------------------------

    async def watch(self, request: feeds.WatchRequest, context: Context) -> None:
        if request.watch_id:
            watch = self._feeds.find(request.watch_id)
            check_creator(watch)
            watch.rewind(request.resume_token)
        else:
            watch = self._feeds.create(request.spec, request.resume_token)
            watch.creator = caller()
        await _serve(watch, context)


def check_creator(watch: Watch) -> None:
    """Refuse to open a watch for somebody else: its id may have got into a log.

    Raises:
        PermissionDenied: the caller has not begun it.
    """
    if watch.creator != caller():
        raise PermissionDenied(f"The watch {watch.id} was begun with another key.")


def _has_news(response: encoded.EncodedReadResponse) -> bool:
    return bool(response.messages) or response.HasField("gap")


async def _serve(watch: Watch, context: Context) -> None:
    """One stream of a watch, until its client cancels it or the watch ends it.

    There is one frame at a time: the next is asked for when the one before it has been written.
    """
    woken = asyncio.Event()
    serving = asyncio.current_task()

    def wake() -> None:
        if stream.ended is not None and serving is not None:
            # It may be in the middle of a write to a reader that takes nothing.
            serving.cancel()
        woken.set()

    stream = watch.attach(wake)
    try:
        await context.write(watch.opened())
        while True:
            woken.clear()
            frame = stream.next_frame()
            if frame is not None:
                await context.write(frame)
            else:
                await woken.wait()
                # Others have their turn, and what they bring goes out in one frame.
                await asyncio.sleep(0)
    except asyncio.CancelledError:
        if stream.ended is not None:
            raise stream.ended from None
        raise
    finally:
        stream.detach()
