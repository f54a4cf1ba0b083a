"""Routers: making, changing, listing and deleting them, and having them do their work."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from google.protobuf.empty_pb2 import Empty

from emulator.engine.filter import compile_filter
from emulator.engine.moment import Moment
from emulator.engine.observer import Observer, Resource
from emulator.engine.registry import check_room, page_of_project
from emulator.engine.settings import MAX_FILTER_BYTES
from emulator.engine.timetable import TimedTask, Timetable
from emulator.refusals import missing, too_large
from protocol import names
from protocol.messages import feeds_pb2 as feeds

from .copying import Batch
from .forwarding import Forwarder
from .route_ends import Ends
from .route_graph import RouteGraph
from .router import Phase, Router

if TYPE_CHECKING:
    from emulator.engine import Record

# How many a project may have.
MAX_ROUTERS = 10_000

# How far a router is: its position, and how many it has copied.
_NOTE = struct.Struct("<QQ")

_TOLD_ONLY = ("forwarded", "position", "created")


class Routers(TimedTask):
    """All routers of a broker. Single owner, as the engine.

    Whoever owns the feeds tells what happens to their topics: `appended`, `lost`, `freed`,
    `deleted`. Forwarding is done before `appended` and its kin return, as far as one turn goes.
    """

    def __init__(
        self,
        ends: Ends,
        *,
        now: Callable[[], Moment],
        timetable: Timetable,
        observer: Observer | None = None,
    ) -> None:
        self._ends = ends
        self._now = now
        self._timetable = timetable
        self._observer = observer or Observer()
        self._routers: dict[str, Router] = {}
        self._graph: RouteGraph[Router] = RouteGraph()
        self._forwarder = Forwarder(ends, None if observer is None else self._moved)

    @property
    def on_more(self) -> Callable[[], object]:
        """Called when there is more to copy than one turn may take: have `work` called soon."""
        return self._forwarder.on_more

    @on_more.setter
    def on_more(self, on_more: Callable[[], object]) -> None:
        self._forwarder.on_more = on_more

    # ---- requests ------------------------------------------------------------------------------

    def put(self, request: feeds.PutRouterRequest) -> feeds.Router:
        """Make a router, or give it other settings.

        With another source or destination it is a new one: it begins at the source's head.

        Raises:
            InvalidArgument: a name or the filter is malformed, or both ends are the same.
            NotFound: there is no source; or no destination, and it is not to be made.
            FailedPrecondition: a cycle, another router into the destination, or a schema there.
            ResourceExhausted: the project has as many as it may.
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
        router = Router(config, self._ends.source(config.source).head)
        self._enter(router)
        self._saved(router)
        state = router.state()
        state.created = known is None
        return state

    def get(self, request: feeds.GetRouterRequest) -> feeds.Router:
        router = self._routers.get(request.name)
        if router is None:
            raise missing(names.validate("routers", request.name))
        return router.state()

    def list(self, request: feeds.ListRoutersRequest) -> feeds.ListRoutersResponse:
        wanted = {
            name: router
            for name, router in self._routers.items()
            if request.source in ("", router.source) and request.dest in ("", router.dest)
        }
        listed, token = page_of_project("routers", wanted, request)
        return feeds.ListRoutersResponse(
            routers=[router.state() for router in listed], next_page_token=token
        )

    def delete(self, request: feeds.DeleteRouterRequest) -> Empty:
        """Stop copying; what was copied stays. One that is not there is deleted already."""
        router = self._routers.get(names.validate("routers", request.name))
        if router is not None:
            self._remove(router)
        return Empty()

    # ---- what happens to topics ----------------------------------------------------------------

    def appended(self, topic: str, records: Sequence[Record]) -> None:
        """These were appended to a topic."""
        routers = self._graph.of_source(topic)
        if routers:
            batch = Batch(records)
            for router in routers:
                router.offer(batch)
            self._set_to_work(routers)

    def lost(self, topic: str) -> None:
        """A topic has a gap at its head: what was to come to it is lost."""
        routers = self._graph.of_source(topic)
        for router in routers:
            router.fall_behind()
        self._set_to_work(routers)

    def freed(self, topic: str) -> None:
        """A topic may have room again."""
        router = self._graph.into(topic)
        if router is not None and router.phase is Phase.WAITING:
            self._forwarder.let_try((router,))
            self._run()

    def deleted(self, topic: str) -> None:
        """A topic was deleted, and its routers with it."""
        for router in self._graph.of_topic(topic):
            self._remove(router)

    # ---- work ----------------------------------------------------------------------------------

    def work(self) -> None:
        """Copy what an earlier turn has left, or a restart, for one turn."""
        now = self._now()
        self._forwarder.resume(now)
        self._timetable.watch(self, now)

    def _run(self) -> None:
        now = self._now()
        self._forwarder.run(now)
        self._timetable.watch(self, now)

    def next_due(self, now: Moment) -> float | None:
        return self._forwarder.next_due(now)

    def advance(self, now: Moment) -> None:
        self._forwarder.advance(now)

    def _set_to_work(self, routers: Iterable[Router]) -> None:
        self._forwarder.add(routers)
        self._run()

    # ---- keeping -------------------------------------------------------------------------------

    def restore(self, value: bytes, note: bytes | None) -> None:
        """Take up a router that an observer was told of; tells the observer nothing.

        What had not been copied yet is copied when `work` is called.
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
        self._ends.forget(router.dest)
        self._observer.removed(Resource.ROUTER, router.name)

    def _saved(self, router: Router) -> None:
        self._observer.saved(Resource.ROUTER, router.name, router.state().SerializeToString())

    def _moved(self, router: Router) -> None:
        note = _NOTE.pack(router.position, router.forwarded)
        self._observer.noted(Resource.ROUTER, router.name, note)

    def _check(self, config: feeds.Router, known: Router | None) -> None:
        """Refuse settings that cannot be; `known` is what has the name now."""
        _check_form(config)
        if known is None:
            check_room("routers", self._routers, config.name, MAX_ROUTERS)
        self._ends.check(config.source, config.dest, create=config.create_dest)
        if known is None or _moves(known, config) or known.config.allow_cycle:
            self._graph.check(
                config.source,
                config.dest,
                allow_cycle=config.allow_cycle,
                without="" if known is None else known.name,
            )


def _moves(router: Router, config: feeds.Router) -> bool:
    """Whether settings give a router other ends."""
    return (router.source, router.dest) != (config.source, config.dest)


def _complete(router: feeds.Router) -> feeds.Router:
    """The settings with their defaults, and without what is only told."""
    config = feeds.Router()
    config.CopyFrom(router)
    for field in _TOLD_ONLY:
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
