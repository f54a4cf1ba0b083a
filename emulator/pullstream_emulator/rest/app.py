"""The HTTP application: the API under /v1, and the extra paths of Google's emulator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from aiohttp import web
from google.protobuf.message import Message

from pullstream_emulator.access import ALL_PROJECTS, Access
from pullstream_emulator.access.request_projects import projects_of
from pullstream_emulator.admin import Admin
from pullstream_emulator.admin.admin import PREFIX
from pullstream_emulator.broker import Broker
from pullstream_emulator.console import ConsoleMode
from pullstream_emulator.console.pages import Console, accepts_html
from pullstream_emulator.engine.resources.publish_limits import MAX_PAYLOAD_BYTES
from pullstream_emulator.faults import Faults
from pullstream_emulator.monitoring.access_log import log_call
from pullstream_emulator.monitoring.health import Health
from pullstream_emulator.monitoring.loop_delay import LoopDelay
from pullstream_emulator.services.disk_barrier import change
from pullstream_emulator.services.handlers import method_handlers
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import NotFound, RpcError, Unimplemented

from . import backup, http_request
from .dead_letters import DeadLetters
from .events import Events
from .foreign_pages import ForeignPages, is_preflight
from .http_call import HttpCall, error_response
from .live_status import LiveStatus
from .monitoring import Monitoring
from .request_binding import read
from .routes import Route, find
from .rpc_bridge import CallerGone, RpcBridge
from .subscription_state import SubscriptionStateHandlers
from .v0 import errors
from .v0.api import V0Api
from .v0.watches import Watches

_log = logging.getLogger("pullstream.emulator")


def application(
    broker: Broker,
    faults: Faults,
    access: Access | None,
    shutdown: Callable[[], None] | None,
    foreign_pages: ForeignPages,
    health: Health,
    loop_delay: LoopDelay,
    *,
    access_log: bool,
    console: ConsoleMode | None,
) -> web.Application:
    """Return the application of a broker.

    Args:
        broker: The broker.
        faults: Faults to apply to its calls.
        access: Checks tokens and projects; None allows everything to everybody.
        shutdown: Stops the broker; None if clients must not do this.
        foreign_pages: Refuses the requests of foreign web pages.
        health: Whether the broker is ready.
        loop_delay: Delay of the event loop.
        access_log: Whether to log each request.
        console: The mode of the console; None for no console.
    """
    handlers = method_handlers(*broker.services, faults=faults, storage=broker.storage)
    storage = broker.storage
    calls = RpcBridge(handlers)
    watches = Watches(broker.feeds, calls)
    v0 = V0Api(calls, watches, access, broker.clock)

    admin = Admin(broker.engine, broker.clock, faults)
    live = LiveStatus(broker)
    monitoring = Monitoring(broker, access, health, loop_delay, live)
    events = Events(broker, access, live, monitoring.members)
    console_pages = None if console is None else Console(console)

    async def administer(request: web.Request) -> web.Response:
        body = await request.read()
        answer = partial(admin.answer, request.method, request.path, request.query, body)
        # A change, such as an advanced clock, is on disk before its response.
        if request.path == f"{PREFIX}/clock:advance":
            # On a thread, so that other calls run between the slices of the due work.
            content = await asyncio.to_thread(answer)
            written = None if storage is None else storage.newest_barrier()
            if written is not None:
                await written
        else:
            content = await change(storage, answer)
        return http_request.json_response(content)

    async def reset() -> None:
        if storage is not None:
            storage.check_disk()
        await change(storage, broker.reset)

    api = RestApi(
        calls,
        v0,
        reset=reset,
        shutdown=shutdown,
        access=access,
        foreign_pages=foreign_pages,
        console=console_pages,
        access_log=access_log,
        open_routes=[
            *monitoring.routes(),
            *events.routes(),
            *SubscriptionStateHandlers(broker, access).routes(),
            *DeadLetters(broker, access).routes(),
        ],
        routes=[
            web.get(backup.PATH, backup.Backup(storage).answer),
            web.route("*", PREFIX + "/{rest:.*}", administer),
        ],
    )
    app = api.application()
    app.on_shutdown.append(events.close)
    return app


class RestApi:
    """Serves HTTP requests with the same handlers that serve gRPC calls.

    Args:
        calls: Runs RPCs.
        v0: Handles requests under /v0 that no other route handles.
        reset: Resets the broker.
        shutdown: Stops the broker; None if clients must not do this.
        access: Checks tokens and projects; None allows everything to everybody.
        foreign_pages: Refuses the requests of foreign web pages.
        console: The pages of the console; None for no console.
        access_log: Whether to log each request.
        open_routes: Further routes, whose handlers need no token or check it themselves.
        routes: Further routes, for callers that may use the whole broker.
    """

    def __init__(
        self,
        calls: RpcBridge,
        v0: V0Api,
        *,
        reset: Callable[[], Awaitable[None]],
        shutdown: Callable[[], None] | None = None,
        access: Access | None = None,
        foreign_pages: ForeignPages | None = None,
        console: Console | None = None,
        access_log: bool = False,
        open_routes: Iterable[web.RouteDef] = (),
        routes: Iterable[web.AbstractRouteDef] = (),
    ) -> None:
        self._calls = calls
        self._v0 = v0
        self._reset = reset
        self._shutdown = shutdown
        self._access = access
        self._foreign_pages = foreign_pages or ForeignPages()
        self._access_log = access_log
        self._console = console
        own = () if console is None else console.routes()
        self._routes = (*own, *open_routes, *routes)
        # These handlers need no token, or check the token's projects themselves.
        self._checking = {
            self._ok,
            self._answer,
            v0.answer,
            *(route.handler for route in (*own, *open_routes)),
        }
        # Any page may link to these, because their answers tell nothing about the broker.
        self._linkable = {self._ok, *(route.handler for route in own)}

    def application(self) -> web.Application:
        """Return the aiohttp application; it refuses bodies above MAX_PAYLOAD_BYTES."""
        middlewares = [_log_request, self._guard] if self._access_log else [self._guard]
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES, middlewares=middlewares)
        app.on_response_prepare.append(self._permit)
        app.router.add_get("/", self._ok)
        app.router.add_get("/healthz", self._ok)
        app.router.add_post("/reset", self._answer_reset)
        app.router.add_post("/shutdown", self._answer_shutdown)
        app.router.add_routes(self._routes)
        # `s`: the path may contain a line break, which must match like other characters.
        app.router.add_route("*", "/v0{path:(?s:(/.*)?)}", self._v0.answer)
        app.router.add_route("*", "/{path:(?s:.*)}", self._answer)
        return app

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Refuse callers that may not use the whole broker; give errors their API's form."""
        try:
            await self._foreign_pages.check(request, tells_nothing=handler in self._linkable)
            if is_preflight(request) and self._foreign_pages.permissions(request):
                return web.Response(status=204)
            if self._access is not None and handler not in self._checking:
                self._access.check(http_request.authorization(request), ALL_PROJECTS)
            return await handler(request)
        except RpcError as error:
            is_v0 = request.path == "/v0" or request.path.startswith("/v0/")
            return errors.response(error) if is_v0 else error_response(error)

    async def _permit(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self._foreign_pages.permissions(request))

    # ---- the API -------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        principal = self._access and self._access.authenticate(http_request.authorization(request))
        found = find(_verb(request), request.raw_path.partition("?")[0])
        if found is None:
            raise NotFound("Method not found.")
        route, name = found
        message = await self._read(route, name, request)
        if principal is not None:
            principal.check(*projects_of(message))
        call = HttpCall(request, route.rpc)
        try:
            await self._calls.carry_out(route.method, message, call)
        except CallerGone:
            _log.debug("%s: the client has disconnected", route.method)
        return call.response or web.Response()

    async def _read(self, route: Route, name: str, request: web.Request) -> Message:
        query, body = list(request.query.items()), await http_request.body(request)
        if len(body) > http_request.MAX_QUICK:
            return await asyncio.to_thread(read, route, name, query, body)
        return read(route, name, query, body)

    # ---- the broker as a whole -----------------------------------------------------------------

    async def _ok(self, request: web.Request) -> web.Response:
        """Say that the broker is up. Needs no token, because it reveals nothing else.

        A browser that opens the broker's address gets the console.
        """
        if self._console is not None and request.path == "/" and accepts_html(request):
            raise web.HTTPFound("console/")
        return web.Response(text="Ok\n")

    async def _answer_reset(self, request: web.Request) -> web.Response:
        await self._reset()
        return web.Response(text="Resetting...\n")

    async def _answer_shutdown(self, request: web.Request) -> web.Response:
        if self._shutdown is None:
            raise Unimplemented("This broker is part of another program, and ends with it.")
        self._shutdown()
        return web.Response(text="Shutting down...\n")


def _verb(request: web.Request) -> str:
    """Return the HTTP method that a request means.

    Like Google's front end, a POST may name another one. The HTTP/JSON transport of the official
    Java client sends PATCH in this way.
    """
    if request.method != "POST":
        return request.method
    return request.headers.get("X-HTTP-Method-Override", "POST").upper()


@web.middleware
async def _log_request(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    begun = SYSTEM_CLOCK.monotonic()
    outcome = "CANCELLED"
    try:
        response = await handler(request)
        outcome = str(response.status)
        return response
    except web.HTTPException as error:
        outcome = str(error.status)
        raise
    finally:
        # The query is left out, because it may contain a caller's values.
        call = f"{request.method} {request.path}"
        seconds = SYSTEM_CLOCK.monotonic() - begun
        log_call("HTTP", request.remote or "", call, outcome, seconds)
