"""Which topic is copied to which: at most one router into each, and cycles only on request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from protocol import names
from protocol.errors import FailedPrecondition, InvalidArgument


class Edge(Protocol):
    """A router, as far as the graph cares. The topics are full names."""

    name: str
    source: str
    dest: str
    is_on_cycle: bool


E = TypeVar("E", bound=Edge)


class RouteGraph(Generic[E]):
    """Routers by the topics that they join; it keeps their `is_on_cycle` true to the facts.

    A topic is fed by one router at most: so it has the order of one source, and a gap in it has one
    cause. And so each question here is answered by a walk upstream, without a search.
    """

    def __init__(self) -> None:
        self._into: dict[str, E] = {}
        self._from: defaultdict[str, dict[str, E]] = defaultdict(dict)

    def check(self, source: str, dest: str, *, allow_cycle: bool, without: str = "") -> None:
        """Refuse a router that must not be; `without`: the name of the one that it replaces.

        Raises:
            InvalidArgument: source and destination are the same topic.
            FailedPrecondition: another router feeds the destination, or a cycle would be closed.
        """
        if source == dest:
            raise InvalidArgument(f"A router's source and dest must differ; both are {source}.")
        feeder = self._into.get(dest)
        if feeder is not None and feeder.name != without:
            raise FailedPrecondition(
                f"{names.short_id(dest)} is the dest of router {names.short_id(feeder.name)}, from "
                f"{names.short_id(feeder.source)}; a topic may be that of one router.",
                reason="ROUTER_FAN_IN",
                metadata={"router": feeder.name},
            )
        path = () if allow_cycle else self._path(dest, source, without)
        if path:
            ids = [names.short_id(topic) for topic in (*path, dest)]
            raise FailedPrecondition(
                f"The router would close a cycle: {' -> '.join(ids)}. Set allow_cycle to have it.",
                reason="ROUTER_CYCLE",
                metadata={"path": ",".join(ids)},
            )

    def add(self, edge: E) -> None:
        """Take in a router that `check` has let pass."""
        self._into[edge.dest] = self._from[edge.source][edge.name] = edge
        for each in self._cycle(edge):
            each.is_on_cycle = True

    def remove(self, edge: E) -> None:
        for each in self._cycle(edge):
            each.is_on_cycle = False
        del self._into[edge.dest]
        del self._from[edge.source][edge.name]
        if not self._from[edge.source]:
            del self._from[edge.source]

    def into(self, topic: str) -> E | None:
        """The router that feeds a topic."""
        return self._into.get(topic)

    def of_source(self, topic: str) -> Sequence[E]:
        """The routers that copy from a topic."""
        return tuple(self._from[topic].values()) if topic in self._from else ()

    def of_topic(self, topic: str) -> Sequence[E]:
        """The routers that copy from a topic or to it."""
        into = self._into.get(topic)
        return self.of_source(topic) if into is None else (*self.of_source(topic), into)

    def _path(self, start: str, end: str, without: str) -> Sequence[str]:
        """The topics on the way from `start` to `end`, both included; empty if there is none."""
        path = [end]
        for edge in self._upstream(end):
            if edge.name == without:
                return ()
            path.append(edge.source)
            if edge.source == start:
                return path[::-1]
        return ()

    def _cycle(self, edge: E) -> Sequence[E]:
        """The routers of the cycle that a router is on; empty if it is on none."""
        passed = []
        for each in self._upstream(edge.dest):
            passed.append(each)
            if each.source == edge.dest:
                return passed
        return ()

    def _upstream(self, topic: str) -> Iterator[E]:
        """The router into a topic, the one into that one's source, and so on; none twice."""
        seen: set[str] = set()
        edge = self._into.get(topic)
        while edge is not None and edge.name not in seen:
            seen.add(edge.name)
            yield edge
            edge = self._into.get(edge.source)
