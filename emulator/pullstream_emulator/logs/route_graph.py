"""Graph of routers between topics: one router at most into each topic, cycles only on request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from pullstream_protocol import names
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument


class Edge(Protocol):
    """The attributes of a router that the graph uses. Topics are full names.

    Attributes:
        name: The router's name.
        source: The topic it copies from.
        dest: The topic it copies to.
        is_on_cycle: Set by the graph.
    """

    name: str
    source: str
    dest: str
    is_on_cycle: bool


E = TypeVar("E", bound=Edge)


class RouteGraph(Generic[E]):
    """Routers by the topics they connect. The graph keeps each router's `is_on_cycle` up to date.

    At most one router feeds a topic, so the topic has the order of one source, and a gap in it has
    one cause. It also means that a walk upstream answers every question here, without a search.
    """

    def __init__(self) -> None:
        self._into: dict[str, E] = {}
        self._from: defaultdict[str, dict[str, E]] = defaultdict(dict)

    def check(self, source: str, dest: str, *, allow_cycle: bool, without: str = "") -> None:
        """Refuse a router that is not allowed.

        Args:
            source: Topic to copy from.
            dest: Topic to copy to.
            allow_cycle: Accept a router that closes a cycle.
            without: Name of the router that the new one replaces.

        Raises:
            InvalidArgument: Source and destination are the same topic.
            FailedPrecondition: Another router feeds the destination, or the router would close a
                cycle.
        """
        if source == dest:
            raise InvalidArgument(f"A router's source and dest must differ; both are {source}.")
        feeder = self._into.get(dest)
        if feeder is not None and feeder.name != without:
            raise FailedPrecondition(
                f"{names.short_id(dest)} is the dest of router {names.short_id(feeder.name)}, from "
                f"{names.short_id(feeder.source)}; a topic may be the dest of one router only.",
                reason="ROUTER_FAN_IN",
                metadata={"router": feeder.name},
            )
        path = () if allow_cycle else self._path(dest, source, without)
        if path:
            ids = [names.short_id(topic) for topic in (*path, dest)]
            raise FailedPrecondition(
                f"The router would close a cycle: {' -> '.join(ids)}. Set allow_cycle to allow it.",
                reason="ROUTER_CYCLE",
                metadata={"path": ",".join(ids)},
            )

    def add(self, edge: E) -> None:
        """Add a router that `check` has accepted."""
        self._into[edge.dest] = self._from[edge.source][edge.name] = edge
        for each in self._cycle(edge):
            each.is_on_cycle = True

    def remove(self, edge: E) -> None:
        """Remove a router; the other routers of its cycle are then on none."""
        for each in self._cycle(edge):
            each.is_on_cycle = False
        del self._into[edge.dest]
        del self._from[edge.source][edge.name]
        if not self._from[edge.source]:
            del self._from[edge.source]

    def into(self, topic: str) -> E | None:
        """Return the router that feeds a topic, if any."""
        return self._into.get(topic)

    def of_source(self, topic: str) -> Sequence[E]:
        """Return the routers that copy from a topic."""
        return tuple(self._from[topic].values()) if topic in self._from else ()

    def of_topic(self, topic: str) -> Sequence[E]:
        """Return the routers that copy from a topic or to it."""
        into = self._into.get(topic)
        return self.of_source(topic) if into is None else (*self.of_source(topic), into)

    def _path(self, start: str, end: str, without: str) -> Sequence[str]:
        """Return the topics on the way from `start` to `end`, both included; empty if none."""
        path = [end]
        for edge in self._upstream(end):
            if edge.name == without:
                return ()
            path.append(edge.source)
            if edge.source == start:
                return path[::-1]
        return ()

    def _cycle(self, edge: E) -> Sequence[E]:
        """Return the routers of the cycle that contains a router; empty if there is none."""
        passed = []
        for each in self._upstream(edge.dest):
            passed.append(each)
            if each.source == edge.dest:
                return passed
        return ()

    def _upstream(self, topic: str) -> Iterator[E]:
        """Yield the router into a topic, the router into its source, and so on; each only once."""
        seen: set[str] = set()
        edge = self._into.get(topic)
        while edge is not None and edge.name not in seen:
            seen.add(edge.name)
            yield edge
            edge = self._into.get(edge.source)
