"""Routers of /v0 as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.v0_client import TOPIC, V0

ROUTER = "/v0/routers/orders-to-eu"
COPIES = "/v0/topics/orders:eu"
SETTINGS = {
    "source": "orders",
    "dest": "orders:eu",
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
}


@pytest.fixture(autouse=True)
def source(v0: V0) -> None:
    v0.ok("PUT", TOPIC)


def route(v0: V0, **settings: Any) -> Any:
    return v0.ok("PUT", ROUTER, {"source": "orders", "dest": "orders:eu", **settings})


def test_a_router_is_made_with_its_defaults(v0: V0) -> None:
    """A second put finds it unchanged."""
    assert route(v0) == {"router": "orders-to-eu", "created": True, **SETTINGS}
    assert route(v0) == {"router": "orders-to-eu", "created": False, **SETTINGS}


def test_a_state_tells_how_far_a_router_is(v0: V0) -> None:
    """The state has the number of copied records and the position in the source."""
    route(v0, filter=["tag", "Eq", "eu"])
    v0.append("a", tag="eu")
    v0.append("b", tag="us")
    assert v0.ok("GET", ROUTER) == {
        "router": "orders-to-eu",
        **SETTINGS,
        "filter": ["tag", "Eq", "eu"],
        "create_dest": True,
        "forwarded_total": 1,
        "position": 2,
    }
    assert v0.data(COPIES) == ["a"]


def test_routers_are_listed_by_their_ends(v0: V0) -> None:
    """The list has all routers, in pages, or those of one topic."""
    v0.ok("PUT", COPIES)
    route(v0)
    v0.ok("PUT", "/v0/routers/to-us", {"source": "orders", "dest": "orders:us"})
    v0.ok("PUT", "/v0/routers/onward", {"source": "orders:eu", "dest": "orders:all"})

    def listed(query: str) -> list[str]:
        return [router["router"] for router in v0.ok("GET", f"/v0/routers{query}")["routers"]]

    assert listed("") == ["onward", "orders-to-eu", "to-us"]
    assert listed("?source=orders") == ["orders-to-eu", "to-us"]
    assert listed("?dest=orders:all") == ["onward"]
    assert listed("?source=orders&dest=orders:us") == ["to-us"]
    first = v0.ok("GET", "/v0/routers?page_size=2")
    assert listed(f"?cursor={first['next_cursor']}") == ["to-us"]
    assert v0.ok("GET", ROUTER) in first["routers"]


def test_a_router_is_deleted_once(v0: V0) -> None:
    """It copies no further records. A second delete finds nothing."""
    route(v0)
    v0.append("a")
    assert v0.ok("DELETE", ROUTER) == {"router": "orders-to-eu", "deleted": True}
    assert v0.ok("DELETE", ROUTER) == {"router": "orders-to-eu", "deleted": False}
    v0.append("b")
    assert v0.data(COPIES) == ["a"]


def test_a_cycle_is_refused_with_its_path(v0: V0) -> None:
    """The error has the path as text and as a list of /v0 names for programs."""
    v0.ok("PUT", COPIES)
    route(v0)
    content = {"source": "orders:eu", "dest": "orders"}
    status, told = v0.rest.call("PUT", "/v0/routers/back", content)
    assert (status, told["error"]["code"]) == (409, "router_cycle")
    assert told["error"]["detail"] == {"cycle": ["orders", "orders:eu", "orders"]}
    assert v0.ok("PUT", "/v0/routers/back", {**content, "allow_cycle": True})["allow_cycle"] is True


def test_a_dest_is_fed_by_one_router(v0: V0) -> None:
    """Otherwise its order would be undefined."""
    route(v0)
    v0.ok("PUT", "/v0/topics/others")
    content = {"source": "others", "dest": "orders:eu"}
    assert v0.refused("PUT", "/v0/routers/second", content) == (409, "router_fan_in")


def test_a_dest_that_must_be_there_is_missed(v0: V0) -> None:
    """This holds if the router must not create it."""
    content = {"source": "orders", "dest": "missing", "create_dest": False}
    assert v0.refused("PUT", ROUTER, content) == (404, "not_found")
