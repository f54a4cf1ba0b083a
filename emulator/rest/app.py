"""The HTTP application: the API under /v1, and what Google's emulator has beside it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from emulator.access import ALL_PROJECTS, Access
from emulator.access.scope import projects_of
from emulator.admin import Admin, Controls
from emulator.admin.routes import admin_routes
from emulator.broker import Broker
from emulator.engine.publishing import MAX_PAYLOAD_BYTES
from emulator.faults import Faults
from emulator.services.handlers import method_handlers
from protocol.errors import NotFound, PermissionDenied, RpcError, Unimplemented

from . import incoming
from .call import Call, error_response
from .calls import CallerGone, Calls
from .request import read
from .routes import find
from .v0 import errors
from .v0.api import V0Api
from .v0.watches import Watches

_log = logging.getLogger("pullstream.emulator")

# What browsers say of requests that are not those of a page of ours. Without this any page that
# somebody looks at could empty a broker on that machine.
_FOREIGN = frozenset({"cross-site", "same-site"})


def application(
    broker: Broker, faults: Faults, access: Access | None, shutdown: Callable[[], None] | None
) -> web.Application:
    """The application of a broker whose calls these faults get at."""
    handlers = method_handlers(*broker.services, faults=faults, storage=broker.storage)
    controls = Controls(broker.engine, broker.clock, faults, broker.history)
    routes = admin_routes(Admin(controls))
    calls = Calls(handlers)
    v0 = V0Api(calls, Watches(broker.feeds, calls), access, broker.clock)
    api = RestApi(calls, v0, reset=broker.reset, shutdown=shutdown, access=access, routes=routes)
    return api.application()


class RestApi:
    """Answers HTTP requests with the very handlers that answer gRPC calls.

    Args:
        calls: carries out the RPCs that the requests stand for.
        v0: what answers under /v0, where no other route does.
        reset: empties the broker.
        shutdown: ends it; None if that is not for a client to do.
        access: who may do what; None for everybody everything.
        routes: what else there is under other paths, for those who may use the whole broker.
    """

    def __init__(
        self,
        calls: Calls,
        v0: V0Api,
        *,
        reset: Callable[[], None],
        shutdown: Callable[[], None] | None = None,
        access: Access | None = None,
        routes: Iterable[web.AbstractRouteDef] = (),
    ) -> None:
        self._calls = calls
        self._v0 = v0
        self._reset = reset
        self._shutdown = shutdown
        self._access = access
        self._routes = tuple(routes)
        # They ask for no token, or check by themselves what it may be used for.
        self._checking = (self._ok, self._answer, v0.answer)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES, middlewares=[self._guard])
        app.router.add_get("/", self._ok)
        app.router.add_get("/healthz", self._ok)
        app.router.add_post("/reset", self._answer_reset)
        app.router.add_post("/shutdown", self._answer_shutdown)
        app.router.add_routes(self._routes)
        # A line break is a character like the others.
        app.router.add_route("*", "/v0{path:(?s:(/.*)?)}", self._v0.answer)
        app.router.add_route("*", "/{path:(?s:.*)}", self._answer)
        return app

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Keep strangers from the broker as a whole; give every error the form of its API."""
        try:
            if handler != self._ok and request.headers.get("Sec-Fetch-Site") in _FOREIGN:
                raise PermissionDenied("Pages of other sites may not use the broker.")
            if self._access is not None and handler not in self._checking:
                self._access.check(incoming.authorization(request), ALL_PROJECTS)
            return await handler(request)
        except RpcError as error:
            is_v0 = handler == self._v0.answer
            return errors.response(error) if is_v0 else error_response(error)

    # ---- the API -------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        principal = self._access and self._access.authenticate(incoming.authorization(request))
        found = find(request.method, request.raw_path.partition("?")[0])
        if found is None:
            raise NotFound("Method not found.")
        route, name = found
        message = read(route, name, request.query.items(), await incoming.body(request))
        if principal is not None:
            principal.check(*projects_of(message))
        call = Call(request, route.rpc)
        try:
            await self._calls.carry_out(route.method, message, call)
        except CallerGone:
            _log.debug("%s: the caller is gone", route.method)
        return call.response or web.Response()

    # ---- the broker as a whole -----------------------------------------------------------------

    async def _ok(self, request: web.Request) -> web.Response:
        """Anybody may ask this: it tells no more than that the broker is up."""
        return web.Response(text="Ok\n")

    async def _answer_reset(self, request: web.Request) -> web.Response:
        self._reset()
        return web.Response(text="Resetting...\n")

    async def _answer_shutdown(self, request: web.Request) -> web.Response:
        if self._shutdown is None:
            raise Unimplemented("This broker ends with the program that it is part of.")
        self._shutdown()
        return web.Response(text="Shutting down...\n")
