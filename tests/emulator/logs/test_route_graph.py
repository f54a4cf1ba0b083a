"""Allowed routers: one into each topic, and no cycle without permission."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.logs.route_graph import RouteGraph
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument


@dataclass
class Edge:
    name: str
    source: str
    dest: str
    is_on_cycle: bool = False


def graph_of(*edges: Edge) -> RouteGraph[Edge]:
    graph: RouteGraph[Edge] = RouteGraph()
    for edge in edges:
        graph.check(edge.source, edge.dest, allow_cycle=True)
        graph.add(edge)
    return graph


def chain(*topics: str) -> list[Edge]:
    return [Edge(f"{a}-{b}", a, b) for a, b in itertools.pairwise(topics)]


def test_a_router_from_a_topic_to_itself_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must differ"):
        graph_of().check("a", "a", allow_cycle=True)


def test_a_second_router_to_the_same_destination_is_refused() -> None:
    """A router that replaces the first one is accepted."""
    graph = graph_of(Edge("first", "a", "c"))
    with pytest.raises(FailedPrecondition, match="router first, from a") as refused:
        graph.check("b", "c", allow_cycle=True)
    assert refused.value.reason == "ROUTER_FAN_IN"
    graph.check("b", "c", allow_cycle=True, without="first")


def test_the_error_for_a_router_that_closes_a_cycle_names_the_path_of_the_cycle() -> None:
    """The path leads from the destination over all topics in between back to it."""
    graph = graph_of(*chain("a", "b", "c", "d"), Edge("side", "b", "x"))
    with pytest.raises(FailedPrecondition, match="a -> b -> c -> d -> a") as refused:
        graph.check("d", "a", allow_cycle=False)
    assert refused.value.reason == "ROUTER_CYCLE"
    assert refused.value.metadata == {"path": "a,b,c,d,a"}
    graph.check("d", "a", allow_cycle=True)
    graph.check("x", "y", allow_cycle=False)


def test_a_router_change_is_checked_for_cycles_without_the_route_that_it_replaces() -> None:
    """Only the new route counts."""
    graph = graph_of(*chain("a", "b", "c"))
    graph.check("c", "a", allow_cycle=False, without="a-b")


def test_a_router_that_leads_out_of_an_existing_cycle_is_accepted() -> None:
    """The search does not follow that cycle for ever."""
    graph = graph_of(*chain("a", "b", "a"), Edge("out", "b", "c"))
    graph.check("c", "d", allow_cycle=False)


def test_exactly_the_routers_on_a_cycle_are_marked_as_part_of_the_cycle() -> None:
    """The mark stays until one of them is removed."""
    edges = [*chain("a", "b", "c", "a"), Edge("out", "b", "x"), Edge("on", "x", "y")]
    graph = graph_of(*edges)
    assert [edge.is_on_cycle for edge in edges] == [True, True, True, False, False]
    graph.remove(edges[3])
    assert all(edge.is_on_cycle for edge in edges[:3])
    graph.remove(edges[1])
    assert not any(edge.is_on_cycle for edge in edges)


def test_the_route_graph_finds_routers_by_source_and_destination() -> None:
    """The search is by source, by destination, or by either."""
    first, second, third = (
        chain("a", "b", "c")[0],
        Edge("second", "a", "x"),
        Edge("third", "x", "y"),
    )
    graph = graph_of(first, second, third)
    assert list(graph.of_source("a")) == [first, second]
    assert graph.into("x") is second
    assert list(graph.of_topic("x")) == [third, second]
    graph.remove(second)
    assert list(graph.of_source("a")) == [first]
    assert (graph.into("x"), list(graph.of_topic("z"))) == (None, [])


TOPICS = st.sampled_from("abcdef")


@given(st.lists(st.tuples(TOPICS, TOPICS, st.booleans()), max_size=20))
def test_router_changes_without_allow_cycle_never_create_a_cycle(
    puts: list[tuple[str, str, bool]],
) -> None:
    """Random changes never create a cycle, and `is_on_cycle` agrees with a search."""
    graph: RouteGraph[Edge] = RouteGraph()
    edges: list[Edge] = []
    for number, (source, dest, allow) in enumerate(puts):
        edge = Edge(str(number), source, dest)
        try:
            graph.check(source, dest, allow_cycle=allow)
        except (FailedPrecondition, InvalidArgument):
            if source != dest and allow:
                assert any(other.dest == dest for other in edges)
            continue
        graph.add(edge)
        edges.append(edge)
        assert allow or not leads_back(edge, edges)
    if edges:
        graph.remove(edges.pop(len(edges) // 2))
    for edge in edges:
        assert edge.is_on_cycle == leads_back(edge, edges)


def leads_back(edge: Edge, edges: list[Edge]) -> bool:
    """Return whether copies from the destination reach the source."""
    reached = {edge.dest}
    while True:
        more = {other.dest for other in edges if other.source in reached} - reached
        if not more:
            return edge.source in reached
        reached |= more
