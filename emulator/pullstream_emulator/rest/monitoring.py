"""Probes, metrics and the status of the broker over HTTP.

GET /healthz     whether the process answers; needs no token
GET /readyz      whether the broker can serve and store, otherwise 503; needs no token
GET /metrics     metrics in the text format of Prometheus
GET /v0/status   topics and subscriptions with their counters; ?project= limits it to one project

With tokens, a caller sees the projects that its principal may use.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from pullstream_emulator.access import ALL_PROJECTS, Access
from pullstream_emulator.broker import Broker
from pullstream_emulator.monitoring.health import Health
from pullstream_emulator.monitoring.loop_delay import LoopDelay
from pullstream_emulator.monitoring.status import MaySee, subscription_status, topic_status
from pullstream_emulator.services.channels import ChannelsService
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import Unimplemented
from pullstream_protocol.version import VERSION

from . import http_request
from .http_request import to_json, visible_projects
from .live_status import LiveStatus, camel_case, in_slices

# Most sessions of channels that the status lists.
MAX_SESSIONS = 100

MISSING = "Metrics need prometheus-client: pip install 'pullstream[emulator]'."


class Monitoring:
    """Answers the requests of probes, of Prometheus, and for the status.

    Args:
        broker: The broker.
        access: Checks tokens; None allows everything to everybody.
        health: Whether the broker is ready.
        loop_delay: Delay of the event loop.
        live: The status of the resources.
    """

    def __init__(
        self,
        broker: Broker,
        access: Access | None,
        health: Health,
        loop_delay: LoopDelay,
        live: LiveStatus,
    ) -> None:
        self._broker = broker
        self._live = live
        self._access = access
        self._health = health
        self._loop_delay = loop_delay
        # A caller that sees another value talks to another run of the broker.
        self._started = SYSTEM_CLOCK.now()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. Their handlers check the caller's token if they need one."""
        return [
            web.get("/readyz", self.ready),
            web.get("/metrics", self.metrics),
            web.get("/v0/status", self.status),
        ]

    async def ready(self, request: web.Request) -> web.Response:
        """Answer 200 if the broker is ready, otherwise 503 and the reason."""
        obstacle = self._health.obstacle()
        if obstacle is None:
            return web.Response(text="Ok\n")
        return web.Response(status=503, text=f"{obstacle}\n")

    async def metrics(self, request: web.Request) -> web.Response:
        """Answer with the metrics."""
        may_see = visible_projects(request, self._access)
        try:
            # Loaded at the first request, because most brokers never need it.
            from pullstream_emulator.monitoring import metrics
        except ImportError:
            raise Unimplemented(MISSING) from None
        broker, storage = self._broker, self._broker.storage
        topics = topic_status(broker.engine, broker.counters, may_see)
        subscriptions = subscription_status(broker.engine, broker.counters, may_see)
        sources = metrics.MetricSources(
            topics=await in_slices(topics),
            subscriptions=await in_slices(subscriptions),
            stored_bytes=broker.engine.kept_bytes,
            loop_delay=self._loop_delay,
            version=VERSION,
            max_bytes=broker.max_bytes,
            storage_bytes=None if storage is None else _size(storage.directory),
            is_ready=self._health.obstacle() is None,
        )
        # On a thread, because ten thousand subscriptions have 130,000 samples.
        body = await asyncio.to_thread(metrics.render, sources)
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def status(self, request: web.Request) -> web.Response:
        """Answer with the status of topics and subscriptions."""
        may_see = visible_projects(request, self._access)
        http_request.check_parameters(request, ())
        await self._live.refresh()
        text = f"{{{self.members(may_see)},{await self._live.whole(may_see)}}}\n"
        return web.Response(text=text, headers=http_request.JSON)

    def members(self, may_see: MaySee) -> str:
        """Return the members of GET /v0/status that are not resources, as JSON."""
        broker, storage = self._broker, self._broker.storage
        sees_all = may_see(ALL_PROJECTS)
        content = {
            "broker": {
                "version": VERSION,
                "started": self._started,
                "time": broker.clock.now(),
                "ready": self._health.obstacle() is None,
                "storedBytes": broker.engine.kept_bytes,
                "history": broker.history.limit,
                "dataDirectory": str(storage.directory.resolve()) if storage and sees_all else "",
            },
            "channels": _channels(broker.channels) if sees_all else None,
        }
        return to_json(content)[1:-1]


def _size(folder: Path) -> int:
    """Return the size of the files in a folder, in bytes."""
    sizes = []
    for path in folder.iterdir():
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            # SQLite deletes its temporary files at any time.
            continue
    return sum(sizes)


def _channels(channels: ChannelsService) -> dict[str, Any]:
    sessions = [_json(each) for each in channels.sessions(MAX_SESSIONS)]
    return {**_json(channels.statistics()), "sessions": sessions}


def _json(status: Any) -> dict[str, Any]:
    return {camel_case(name): value for name, value in asdict(status).items()}
