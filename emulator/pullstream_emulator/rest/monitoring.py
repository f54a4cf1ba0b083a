"""Probes, metrics and the status of the broker over HTTP.

GET /healthz     whether the process answers; needs no token
GET /readyz      whether the broker can serve and store, otherwise 503; needs no token
GET /metrics     metrics in the text format of Prometheus
GET /v0/status   topics and subscriptions with their counters; ?project= limits it to one project

With tokens, a caller sees the projects that its principal may use.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from pullstream_emulator.access import ALL_PROJECTS, Access
from pullstream_emulator.broker import Broker
from pullstream_emulator.monitoring import (
    cursor_status,
    feed_status,
    router_status,
    schema_status,
    subscription_status,
    topic_status,
)
from pullstream_emulator.monitoring.health import Health
from pullstream_emulator.monitoring.loop_delay import LoopDelay
from pullstream_emulator.monitoring.status import MaySee
from pullstream_emulator.services.channels import ChannelsService
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import Unimplemented
from pullstream_protocol.version import VERSION

from . import http_request
from .http_request import json_response
from .project_access import visible_projects

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
    """

    def __init__(
        self, broker: Broker, access: Access | None, health: Health, loop_delay: LoopDelay
    ) -> None:
        self._broker = broker
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
        storage = self._broker.storage
        sources = metrics.MetricSources(
            engine=self._broker.engine,
            counters=self._broker.counters,
            loop_delay=self._loop_delay,
            version=VERSION,
            max_bytes=self._broker.max_bytes,
            storage_bytes=None if storage is None else _size(storage.directory),
            is_ready=self._health.obstacle() is None,
        )
        body = metrics.render(sources, may_see)
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def status(self, request: web.Request) -> web.Response:
        """Answer with the status of topics and subscriptions."""
        may_see = visible_projects(request, self._access)
        http_request.check_parameters(request, ())
        return json_response(self.status_content(may_see))

    def status_content(self, may_see: MaySee) -> dict[str, Any]:
        """Return the content of GET /v0/status for a caller that sees these projects."""
        broker = self._broker
        engine, counters = broker.engine, broker.counters
        storage, parts = broker.storage, broker.dependents
        sees_all = may_see(ALL_PROJECTS)
        return {
            "broker": {
                "version": VERSION,
                "started": self._started,
                "time": broker.clock.now(),
                "ready": self._health.obstacle() is None,
                "storedBytes": engine.kept_bytes,
                "history": broker.history.limit,
                "dataDirectory": str(storage.directory.resolve()) if storage and sees_all else "",
            },
            "topics": [_json(each) for each in topic_status(engine, counters, may_see)],
            "subscriptions": [
                _json(each) for each in subscription_status(engine, counters, may_see)
            ],
            "feeds": [_json(each) for each in feed_status(engine, may_see)],
            "routers": [_json(each) for each in router_status(engine, parts.routers, may_see)],
            "cursors": [_json(each) for each in cursor_status(engine, parts.cursors, may_see)],
            "schemas": [_json(each) for each in schema_status(broker.schemas, may_see)],
            "channels": _channels(broker.channels) if sees_all else None,
        }


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
    """Return a status as JSON; its counters are fields like the others."""
    fields = asdict(status)
    fields |= fields.pop("counts", {})
    return {_camel_case(name): value for name, value in fields.items()}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
