"""Routers: create, change, list and delete them, and run their copying."""

from __future__ import annotations

import struct
from collections.abc import Callable, ItemsView, Iterable, Sequence
from typing import TYPE_CHECKING

from google.protobuf.empty_pb2 import Empty

from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.engine.resources.by_name import ByName
from pullstream_emulator.engine.resources.registry import check_room, page_of_project
from pullstream_emulator.engine.settings.resource_settings import MAX_FILTER_BYTES
from pullstream_emulator.engine.timetable import TimedTask, Timetable
from pullstream_emulator.error_texts import missing, too_large
from pullstream_protocol import names
from pullstream_protocol.filter import compile_filter
from pullstream_protocol.messages import feeds_pb2 as feeds

from .forwarder import Forwarder
from .record_copies import CopyBatch
from .route_graph import RouteGraph
from .router import Router, RouterPhase
from .router_endpoints import RouterEndpoints

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

# Maximum number of routers in a project.
MAX_ROUTERS = 10_000

# A router's progress: its position, and the number of messages it has copied.
_NOTE = struct.Struct("<QQ")

_OUTPUT_ONLY = ("forwarded", "position", "created")


class Routers(TimedTask):
    """All routers of a broker. Single owner, as for the engine.

    The owner of the feeds reports events of their topics by calling `appended`, `lost`, `freed`
    and `deleted`. These calls copy as much as one turn allows before they return.

    Args:
        endpoints: The feeds that routers connect.
        now: Reads the clocks.
        timetable: Due queue in which retries are registered.
        on_more: Called when more remains to copy than one turn allows; must schedule a call of
            `work`.
        observer: Persists changes of routers. None stores nothing.
    """

    def __init__(
        self,
        endpoints: RouterEndpoints,
        *,
        now: Callable[[], Now],
        timetable: Timetable,
        on_more: Callable[[], object],
        observer: Observer | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._now = now
        self._timetable = timetable
        self._observer = observer or Observer()
        self._routers: ByName[Router] = ByName()
        self._graph: RouteGraph[Router] = RouteGraph()
        self._forwarder = Forwarder(
            endpoints, on_moved=None if observer is None else self._moved, on_more=on_more
        )

    # ---- requests ------------------------------------------------------------------------------

    def put(self, request: feeds.PutRouterRequest) -> feeds.Router:
        """Create a router, or change its settings.

        A change of source or destination makes it a new router, which begins at the source's head.

        Raises:
            InvalidArgument: A name or the filter is malformed, or source and destination are equal.
            NotFound: The source does not exist; or the destination does not exist and `create_dest`
                is false.
            FailedPrecondition: The router would close a cycle, another router already feeds the
                destination, or the destination has a schema.
            ResourceExhausted: The project has the maximum number of routers.
        """
        config = _complete(request.router)
        known = self._routers.get(config.name)
        if known is not None and known.config == config:
            return known.state()
        self._check(config, known)
        if known is not None and not _moves(known, config):
            known.configure(config)
            self._saved(known)
            return known.state()
        if known is not None:
            self._remove(known)
        router = Router(config, self._endpoints.source(config.source).head)
        self._enter(router)
        self._saved(router)
        state = router.state()
        state.created = known is None
        return state

    def get(self, request: feeds.GetRouterRequest) -> feeds.Router:
        """Return a router with its progress; raise NotFound if it does not exist."""
        router = self._routers.get(request.name)
        if router is None:
            raise missing(names.validate("routers", request.name))
        return router.state()

    def list(self, request: feeds.ListRoutersRequest) -> feeds.ListRoutersResponse:
        """Return a page of a project's routers, optionally of one source or destination."""
        listed, token = page_of_project(
            self._routers,
            request,
            lambda router: (
                request.source in ("", router.source) and request.dest in ("", router.dest)
            ),
        )
        return feeds.ListRoutersResponse(
            routers=[router.state() for router in listed], next_page_token=token
        )

    def all(self) -> ItemsView[str, Router]:
        """Return all routers, with their full names."""
        return self._routers.items()

    def delete(self, request: feeds.DeleteRouterRequest) -> Empty:
        """Delete a router; its copies stay. Deleting an unknown router succeeds."""
        router = self._routers.get(names.validate("routers", request.name))
        if router is not None:
            self._remove(router)
        return Empty()

    # ---- what happens to topics ----------------------------------------------------------------

    def appended(self, topic: str, records: Sequence[Record]) -> None:
        """Offer records that were appended to a topic to the topic's routers."""
        routers = self._graph.of_source(topic)
        if routers:
            batch = CopyBatch(records)
            for router in routers:
                router.offer(batch)
            self._set_to_work(routers)

    def lost(self, topic: str) -> None:
        """Pass on a gap at a topic's head to the topic's routers."""
        routers = self._graph.of_source(topic)
        for router in routers:
            router.fall_behind()
        self._set_to_work(routers)

    def freed(self, topic: str) -> None:
        """Retry the router that waits for room in a topic."""
        router = self._graph.into(topic)
        if router is not None and router.phase is RouterPhase.WAITING:
            self._forwarder.let_try((router,))
            self._run()

    def deleted(self, topic: str) -> None:
        """Delete the routers from and to a deleted topic."""
        for router in self._graph.of_topic(topic):
            self._remove(router)

    # ---- work ----------------------------------------------------------------------------------

    def work(self) -> None:
        """Copy for one turn: messages that an earlier turn or a restart has left over."""
        now = self._now()
        self._forwarder.resume(now)
        self._timetable.watch(self, now)

    def _run(self) -> None:
        now = self._now()
        self._forwarder.run(now)
        self._timetable.watch(self, now)

    def next_due(self, now: Now) -> float | None:
        """Return when waiting routers try again; None if no router waits."""
        return self._forwarder.next_due(now)

    def advance(self, now: Now) -> None:
        """Let waiting routers try if the time for it has come, and run one turn."""
        self._forwarder.advance(now)

    def _set_to_work(self, routers: Iterable[Router]) -> None:
        self._forwarder.add(routers)
        self._run()

    # ---- keeping -------------------------------------------------------------------------------

    def restore(self, value: bytes, note: bytes | None) -> None:
        """Load a persisted router. The observer is not notified.

        The next call of `work` copies the messages that the router has not copied yet.
        """
        state = feeds.Router.FromString(value)
        position, forwarded = state.position, state.forwarded
        if note is not None:
            position, forwarded = _NOTE.unpack(note)
        router = Router(_complete(state), position, forwarded)
        self._enter(router)
        self._forwarder.add((router,))

    def _enter(self, router: Router) -> None:
        self._routers[router.name] = router
        self._graph.add(router)

    def _remove(self, router: Router) -> None:
        del self._routers[router.name]
        self._graph.remove(router)
        self._forwarder.forget(router)
        self._endpoints.forget(router.dest)
        self._observer.removed(Resource.ROUTER, router.name)

    def _saved(self, router: Router) -> None:
        self._observer.saved(Resource.ROUTER, router.name, router.state().SerializeToString())

    def _moved(self, router: Router) -> None:
        note = _NOTE.pack(router.position, router.forwarded)
        self._observer.noted(Resource.ROUTER, router.name, note)

    def _check(self, config: feeds.Router, known: Router | None) -> None:
        """Refuse invalid settings. `known` is the router that has this name now, if any."""
        _check_form(config)
        if known is None:
            check_room("routers", self._routers, config.name, MAX_ROUTERS)
        self._endpoints.check(config.source, config.dest, create=config.create_dest)
        if known is None or _moves(known, config) or known.config.allow_cycle:
            self._graph.check(
                config.source,
                config.dest,
                allow_cycle=config.allow_cycle,
                without="" if known is None else known.name,
            )


def _moves(router: Router, config: feeds.Router) -> bool:
    """Return whether settings give a router another source or destination."""
    return (router.source, router.dest) != (config.source, config.dest)


def _complete(router: feeds.Router) -> feeds.Router:
    """Return the settings with defaults filled in and output-only fields removed."""
    config = feeds.Router()
    config.CopyFrom(router)
    for field in _OUTPUT_ONLY:
        config.ClearField(field)
    for default_true in ("preserve_node", "preserve_tag", "create_dest"):
        if not config.HasField(default_true):
            setattr(config, default_true, True)
    return config


def _check_form(config: feeds.Router) -> None:
    names.validate("routers", config.name)
    names.validate("topics", config.source)
    names.validate("topics", config.dest)
    size = len(config.filter.encode())
    if size > MAX_FILTER_BYTES:
        raise too_large("filter", size, MAX_FILTER_BYTES)
    compile_filter(config.filter)
