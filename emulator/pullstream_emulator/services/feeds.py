"""pullstream.feeds.v1.Feeds: topics as logs, and watches of many feeds in one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pullstream_emulator.access.current_principal import caller
from pullstream_emulator.logs import Feeds, WatchSession
from pullstream_emulator.logs.cursors import Cursors
from pullstream_emulator.logs.deletion import Deletion
from pullstream_emulator.logs.read import wait_of
from pullstream_emulator.logs.routers import Routers
from pullstream_protocol.errors import PermissionDenied
from pullstream_protocol.long_poll import longest_wait
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.rpcs import FEEDS

from .context import Context
from .rpc_methods import RpcMethod, UnaryMethod, WritingMethod
from .schema_checks import SchemaChecks


class FeedsService:
    """Feeds, routers and cursors."""

    service = FEEDS

    def __init__(
        self, core: Feeds, routers: Routers, cursors: Cursors, checks: SchemaChecks
    ) -> None:
        self._feeds = core
        self._routers = routers
        self._cursors = cursors
        self._checks = checks

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; Read may wait, and Watch writes frames until it is cancelled."""
        return {
            "PutFeed": UnaryMethod(self._feeds.put_feed),
            "GetFeed": UnaryMethod(self._feeds.get_feed),
            "ListFeeds": UnaryMethod(self._feeds.list_feeds),
            "Append": UnaryMethod(self._feeds.append, prepare=self._checks.check),
            "DeleteMessages": UnaryMethod(self._feeds.delete_messages, prepare=self._delete_most),
            "Read": WritingMethod(self.read),
            "Watch": WritingMethod(self.watch),
            "PutRouter": UnaryMethod(self._routers.put),
            "GetRouter": UnaryMethod(self._routers.get),
            "PutCursor": UnaryMethod(self._cursors.put),
            "GetCursor": UnaryMethod(self._cursors.get),
            "ListRouters": UnaryMethod(self._routers.list),
            "ListCursors": UnaryMethod(self._cursors.list),
            "DeleteRouter": UnaryMethod(self._routers.delete),
            "DeleteCursor": UnaryMethod(self._cursors.delete),
        }

    # ---- writing -------------------------------------------------------------------------------

    async def _delete_most(self, request: feeds.DeleteMessagesRequest) -> dict[str, Deletion]:
        """Do all steps of a deletion except the last one. Other tasks run between the steps."""
        deletion = self._feeds.deletion(request)
        while deletion.work():
            await asyncio.sleep(0)
        return {"deletion": deletion}

    # ---- reading -------------------------------------------------------------------------------

    async def read(self, request: feeds.ReadRequest, context: Context) -> None:
        """Write the matching records; if there are none, wait for a record or a gap."""
        response = self._feeds.read(request)
        wait = longest_wait(context, wait_of(request))
        if wait > 0 and not _has_messages_or_gap(response):
            response = await self._wait(request, response, wait)
        await context.write(response)

    async def _wait(
        self, request: feeds.ReadRequest, response: encoded.EncodedReadResponse, wait: float
    ) -> encoded.EncodedReadResponse:
        """Read until there is a message or a gap, or for `wait` seconds."""
        woken = asyncio.Event()
        timed_out = False

        def give_up() -> None:
            nonlocal timed_out
            timed_out = True
            woken.set()

        # Use real time, as for a deadline, even if the broker has another clock. Do not use
        # asyncio.wait_for: before Python 3.12 it loses a cancellation that arrives at the same time
        # as the result.
        timer = asyncio.get_running_loop().call_later(wait, give_up)
        try:
            while not timed_out and not _has_messages_or_gap(response):
                # Continue after the records that were already read. A reader that starts at the
                # tail must also keep its first position, because the head has moved since.
                request.start.after_seq = response.next_seq
                request.start.epoch = response.epoch
                waiting = self._feeds.wait_for(request.topic, woken.set)
                try:
                    if response.caught_up:
                        await woken.wait()
                    else:
                        # Many records do not match: let other tasks run.
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
        """Serve a new watch, or continue an earlier one of the same caller."""
        if request.watch_id:
            watch = self._feeds.find(request.watch_id)
            check_creator(watch)
            watch.rewind(request.resume_token)
        else:
            watch = self._feeds.create(request.spec, request.resume_token)
            watch.creator = caller()
        await _serve(watch, context)


def check_creator(watch: WatchSession) -> None:
    """Refuse another principal's watch. A watch ID alone is no proof: it may be in a log.

    Raises:
        PermissionDenied: The caller has not created the watch.
    """
    if watch.creator != caller():
        raise PermissionDenied(f"The watch {watch.id} was created with another key.")


def _has_messages_or_gap(response: encoded.EncodedReadResponse) -> bool:
    return bool(response.messages) or response.HasField("gap")


async def _serve(watch: WatchSession, context: Context) -> None:
    """Serve one stream of a watch, until its client cancels it or the watch ends it.

    There is one frame at a time: the next one is requested after the previous one is written.
    """
    woken = asyncio.Event()
    serving = asyncio.current_task()

    def wake() -> None:
        if stream.ended is not None and serving is not None:
            # The task may be blocked in a write to a client that does not read.
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
                # Let other tasks run. Their messages go into one frame.
                await asyncio.sleep(0)
    except asyncio.CancelledError:
        if stream.ended is not None:
            raise stream.ended from None
        raise
    finally:
        stream.detach()
