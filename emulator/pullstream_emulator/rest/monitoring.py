"""Probes, metrics and the status of the broker over HTTP.

GET /healthz     whether the process answers; needs no token
GET /readyz      whether the broker can serve and store, otherwise 503; needs no token
GET /metrics     metrics in the text format of Prometheus
GET /v0/status   topics and subscriptions with their counters; ?project= limits it to one project

With tokens, a caller sees the projects that its principal may use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from pullstream_emulator.access import Access
from pullstream_emulator.broker import Broker
from pullstream_emulator.monitoring import subscription_status, topic_status
from pullstream_emulator.monitoring.health import Health
from pullstream_emulator.monitoring.loop_delay import LoopDelay
from pullstream_protocol.errors import Unimplemented
from pullstream_protocol.version import VERSION

from . import http_request

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
        may_see = self._may_see(request)
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
        may_use, wanted = self._may_see(request), request.query.get("project")

        def may_see(project: str) -> bool:
            return wanted in (None, project) and may_use(project)

        engine, counters = self._broker.engine, self._broker.counters
        content = {
            "broker": {
                "version": VERSION,
                "time": self._broker.clock.now(),
                "ready": self._health.obstacle() is None,
                "storedBytes": engine.kept_bytes,
            },
            "topics": [_json(each) for each in topic_status(engine, counters, may_see)],
            "subscriptions": [
                _json(each) for each in subscription_status(engine, counters, may_see)
            ],
        }
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        return web.Response(text=json.dumps(content), headers=headers)

    def _may_see(self, request: web.Request) -> Callable[[str], bool]:
        """Return whether the caller may see a project.

        Raises:
            Unauthenticated: The broker has tokens, and the request has none of them.
        """
        if self._access is None:
            return lambda project: True
        return self._access.authenticate(http_request.authorization(request)).may_use


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


def _json(status: Any) -> dict[str, Any]:
    """Return a status as JSON; its counters are fields like the others."""
    fields = asdict(status)
    fields |= fields.pop("counts")
    return {_camel_case(name): value for name, value in fields.items()}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
