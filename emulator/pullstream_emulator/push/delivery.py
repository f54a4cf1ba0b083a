"""Push delivery of a whole broker: one pusher for every subscription with an endpoint."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from typing import TYPE_CHECKING

from pullstream_emulator.due_timer import Timer
from pullstream_emulator.engine import Engine
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import NotFound

from .envelope import PushAnswer, PushRequest
from .pusher import OnAnswer, Pusher, Sender

if TYPE_CHECKING:
    from .sender import HttpSender


_log = logging.getLogger("pullstream.emulator")


class PushDelivery:
    """Follows the push configs of an engine, on its event loop, from `start` to `stop`.

    The engine's owner calls `follow_config` after each change of a push config.

    Args:
        engine: The engine.
        clock: The broker's clock.
        sender: Posts the requests; by default with aiohttp.
        on_answer: Called with the subscription, the message and the text of each answer.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        sender: Sender | None = None,
        on_answer: OnAnswer = lambda subscription, delivery, answer: None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._sender = sender or LateSender()
        self._on_answer = on_answer
        # By subscription: its endpoint, and its pusher.
        self._pushers: dict[str, tuple[str, Pusher]] = {}
        # Pushers that are not needed any more, but have active requests.
        self._closing: set[Pusher] = set()

    def start(self) -> None:
        """Begin to push to all endpoints, and follow later changes of subscriptions."""
        self._timer = Timer(self._clock)
        for name in self._engine.push_subscriptions():
            self.follow_config(name)

    async def stop(self) -> None:
        """Cancel every request; messages are given back without counting a delivery attempt."""
        pushers = [*self._closing, *(pusher for _, pusher in self._pushers.values())]
        self._pushers.clear()
        await asyncio.gather(*(pusher.stop() for pusher in pushers))
        self._timer.close()
        await self._sender.close()

    def follow_config(self, name: str) -> None:
        """Begin, redirect or end pushing, according to the subscription's present settings."""
        endpoint = self._endpoint(name)
        pushed_to, pusher = self._pushers.get(name, ("", None))
        if endpoint == pushed_to:
            return
        if pusher is None:
            self._begin(name, endpoint)
        elif endpoint:
            self._pushers[name] = (endpoint, pusher)
            pusher.start_afresh()
        else:
            self._pushers.pop(name)
            self._closing.add(pusher)
            pusher.close()

    def _endpoint(self, name: str) -> str:
        try:
            config = self._engine.get_subscription(name)
        except NotFound:
            return ""
        return "" if config.detached else config.push_config.push_endpoint

    def _begin(self, name: str, endpoint: str) -> None:
        if isinstance(self._sender, LateSender) and not is_available():
            _log.warning(
                "%s: cannot push to %s without aiohttp: pip install 'pullstream[http]'",
                name,
                endpoint,
            )
            return

        def ended() -> None:
            self._closing.discard(pusher)

        pusher = Pusher(
            self._engine,
            name,
            sender=self._sender,
            timer=self._timer,
            wall=self._clock.now,
            on_answer=self._on_answer,
            on_end=ended,
        )
        self._pushers[name] = (endpoint, pusher)


def is_available() -> bool:
    """Return whether aiohttp is installed."""
    return importlib.util.find_spec("aiohttp") is not None


class LateSender:
    """An HttpSender that is loaded at the first request.

    Few brokers push, and aiohttp takes as long to load as the rest of the broker, which would delay
    other calls. It is therefore loaded in a thread.
    """

    def __init__(self) -> None:
        self._loading: asyncio.Task[HttpSender] | None = None

    async def post(self, request: PushRequest) -> PushAnswer:
        """Post a request; the first one waits until a thread has loaded aiohttp."""
        if self._loading is None:
            self._loading = asyncio.create_task(_load())
        # Shielded: cancelling one request must not cancel the loading for the others.
        sender = await asyncio.shield(self._loading)
        return await sender.post(request)

    async def close(self) -> None:
        """Close the connections of the loaded client, if there is one."""
        if self._loading is not None:
            await (await self._loading).close()


async def _load() -> HttpSender:
    return (await asyncio.to_thread(_import))()


def _import() -> type[HttpSender]:
    from .sender import HttpSender

    return HttpSender
