"""Routers of /v0 as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.v0_client import TOPIC, V0

ROUTER = "/v0/routers/orders-to-eu"
COPIES = "/v0/topics/orders:eu"


@pytest.fixture(autouse=True)
def source(v0: V0) -> None:
    v0.ok("PUT", TOPIC)


def route(v0: V0, **settings: Any) -> Any:
    return v0.ok("PUT", ROUTER, {"source": "orders", "dest": "orders:eu", **settings})


def test_the_v0_list_of_routers_can_be_limited_by_source_and_destination(v0: V0) -> None:
    """The list has all routers, in pages, or those of one topic."""
    v0.ok("PUT", COPIES)
    assert route(v0)["dest"] == v0.ok("GET", ROUTER)["dest"] == "orders:eu"
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


def test_the_error_for_a_v0_router_that_closes_a_cycle_names_the_path_of_the_cycle(v0: V0) -> None:
    """The error has the path as text and as a list of /v0 names for programs."""
    v0.ok("PUT", COPIES)
    route(v0)
    content = {"source": "orders:eu", "dest": "orders"}
    status, body = v0.rest.call("PUT", "/v0/routers/back", content)
    assert (status, body["error"]["code"]) == (409, "router_cycle")
    assert body["error"]["detail"] == {"cycle": ["orders", "orders:eu", "orders"]}
    assert v0.ok("PUT", "/v0/routers/back", {**content, "allow_cycle": True})["allow_cycle"] is True
