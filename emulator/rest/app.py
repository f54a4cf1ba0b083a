"""The HTTP application: the API under /v1, and what Google's emulator has beside it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio
from aiohttp import web

from emulator.access import ALL_PROJECTS, Access
from emulator.access.scope import projects_of
from emulator.admin import Admin, Controls
from emulator.admin.routes import admin_routes
from emulator.broker import Broker
from emulator.engine.publishing import MAX_PAYLOAD_BYTES
from emulator.faults import Faults
from emulator.services.handlers import method_handlers
from protocol.errors import (
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RpcError,
    Unimplemented,
)

from .call import Call, CallerGone, error_response
from .request import read
from .routes import find

_log = logging.getLogger("pullstream.emulator")

# What browsers say of requests that are not those of a page of ours. Without this any page that
# somebody looks at could empty a broker on that machine.
_FOREIGN = frozenset({"cross-site", "same-site"})

Handlers = Mapping[str, Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]]


def application(
    broker: Broker, faults: Faults, access: Access | None, shutdown: Callable[[], None] | None
) -> web.Application:
    """The application of a broker whose calls these faults get at."""
    handlers = method_handlers(*broker.services, faults=faults, storage=broker.storage)
    controls = Controls(broker.engine, broker.clock, faults, broker.history)
    routes = admin_routes(Admin(controls))
    api = RestApi(handlers, reset=broker.reset, shutdown=shutdown, access=access, routes=routes)
    return api.application()


class RestApi:
    """Answers HTTP requests with the very handlers that answer gRPC calls.

    Args:
        handlers: those of every service, by service and method.
        reset: empties the broker.
        shutdown: ends it; None if that is not for a client to do.
        access: who may do what; None for everybody everything.
        routes: what else there is under other paths, for those who may use the whole broker.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        reset: Callable[[], None],
        shutdown: Callable[[], None] | None = None,
        access: Access | None = None,
        routes: Iterable[web.AbstractRouteDef] = (),
    ) -> None:
        self._handlers = handlers
        self._reset = reset
        self._shutdown = shutdown
        self._access = access
        self._routes = tuple(routes)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES, middlewares=[self._guard])
        app.router.add_get("/", self._ok)
        app.router.add_get("/healthz", self._ok)
        app.router.add_post("/reset", self._answer_reset)
        app.router.add_post("/shutdown", self._answer_shutdown)
        app.router.add_routes(self._routes)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Keep strangers from the broker as a whole; give every error Google's form."""
        try:
            if handler != self._ok and request.headers.get("Sec-Fetch-Site") in _FOREIGN:
                raise PermissionDenied("Pages of other sites may not use the broker.")
            if self._access is not None and handler not in (self._ok, self._answer):
                self._access.check(_authorization(request), ALL_PROJECTS)
            return await handler(request)
        except RpcError as error:
            return error_response(error)

    # ---- the API -------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        principal = self._access and self._access.authenticate(_authorization(request))
        found = find(request.method, request.raw_path.partition("?")[0])
        if found is None:
            raise NotFound("Method not found.")
        route, name = found
        message = read(route, name, request.query.items(), await _body(request))
        if principal is not None:
            principal.check(*projects_of(message))
        call = Call(request, route.rpc)
        try:
            handler = self._handlers[route.rpc.service][route.method]
            # A method that writes its answer itself was given to gRPC as a stream of one response.
            behaviour: Any = handler.unary_stream or handler.unary_unary
            response = await behaviour(message, call)
            if call.response is None:
                await call.write(response)
        except RpcError:
            raise
        except CallerGone:
            _log.debug("%s: the caller is gone", route.method)
        except Exception as error:
            _log.error("%s failed inside the broker", route.method, exc_info=error)
            raise Internal(f"{route.method} failed inside the broker.") from error
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


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise InvalidArgument(
            f"Request payload size exceeds the limit: {MAX_PAYLOAD_BYTES} bytes."
        ) from error


def _authorization(request: web.Request) -> str | None:
    """The header, or the parameter that Google's front end takes instead."""
    token = request.query.get("access_token") or request.query.get("oauth_token")
    return request.headers.get("Authorization") or (f"Bearer {token}" if token else None)
