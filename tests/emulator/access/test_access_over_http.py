"""Tokens on HTTP requests: the same rules as for gRPC calls, with Google's error bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from tests.emulator.broker import TOPIC
from tests.emulator.rest_client import RestClient

MINE, FOREIGN = f"/v1/{TOPIC}", "/v1/projects/other/topics/orders"


@pytest.fixture
def guarded() -> Iterator[Emulator]:
    tokens = {"t-test": Principal("tester", frozenset({"test"})), "t-root": Principal("root")}
    with Emulator(access=Access(tokens), rest=True) as emulator:
        yield emulator


def ask(emulator: Emulator, method: str, path: str, token: str | None) -> tuple[int, Any]:
    """Return status and body of an answer."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    body = b"{}" if method in ("PUT", "POST") else None
    status, kind, text = RestClient(emulator.endpoint).raw(method, path, body, **headers)
    return status, json.loads(text) if kind.startswith("application/json") else text


def test_a_token_gives_http_access_to_the_projects_of_its_principal(guarded: Emulator) -> None:
    """Other projects are refused, whether or not the resource exists."""
    assert ask(guarded, "PUT", MINE, "t-test") == (200, {"name": TOPIC})
    assert ask(guarded, "PUT", FOREIGN, "t-root")[0] == 200
    refusals = [
        ask(guarded, "GET", FOREIGN, "t-test"),
        ask(guarded, "DELETE", FOREIGN, "t-test"),
        ask(guarded, "GET", f"{FOREIGN}-not-there", "t-test"),
    ]
    error = {
        "code": 403,
        "message": "User not authorized to perform this action.",
        "status": "PERMISSION_DENIED",
    }
    assert [(status, body["error"]) for status, body in refusals] == [(403, error)] * 3
    assert ask(guarded, "GET", FOREIGN, "t-root")[0] == 200


@pytest.mark.parametrize("token", [None, "t-wrong", ""])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", MINE),
        ("GET", "/v1/no/such/thing"),
        ("GET", "/no/such/thing"),
        ("POST", "/reset"),
        ("POST", "/shutdown"),
    ],
)
def test_an_http_request_without_a_valid_token_is_refused(
    guarded: Emulator, token: str | None, method: str, path: str
) -> None:
    """The answer does not depend on whether the resource exists."""
    status, body = ask(guarded, method, path, token)
    assert (status, body["error"]["status"]) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/reset"), ("POST", "/shutdown")],
)
def test_a_principal_with_access_to_one_project_only_may_not_reset_or_stop_the_broker(
    guarded: Emulator, method: str, path: str
) -> None:
    """Only a principal of all projects may use it."""
    ask(guarded, "PUT", MINE, "t-test")
    status, body = ask(guarded, method, path, "t-test")
    assert (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert ask(guarded, "GET", MINE, "t-test")[0] == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v0/admin/faults"), ("DELETE", "/v0/events")]
)
def test_a_principal_with_access_to_one_project_only_may_not_use_the_admin_api(
    guarded: Emulator, method: str, path: str
) -> None:
    """Errors below /v0 have that API's form."""
    status, body = ask(guarded, method, path, "t-test")
    assert (status, body["error"]["code"]) == (403, "forbidden")
    status, body = ask(guarded, method, path, None)
    assert (status, body["error"]["code"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    "path", ["/v1/../reset", "/v1/%2e%2e/reset", "/v1//reset", "//reset", "/reset/v1/"]
)
def test_alternative_spellings_of_the_reset_path_do_not_bypass_access_control(
    guarded: Emulator, path: str
) -> None:
    """The rule holds for every spelling of the path."""
    ask(guarded, "PUT", MINE, "t-test")
    assert ask(guarded, "POST", path, "t-test")[0] in (400, 403, 404)
    assert ask(guarded, "GET", MINE, "t-test")[0] == 200


def test_a_principal_with_access_to_all_projects_may_reset_the_broker(guarded: Emulator) -> None:
    """Without tokens everybody may do so."""
    ask(guarded, "PUT", MINE, "t-root")
    assert ask(guarded, "POST", "/reset", "t-root")[0] == 200
    assert ask(guarded, "GET", MINE, "t-root")[0] == 404


@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_the_http_health_check_needs_no_token(guarded: Emulator, path: str) -> None:
    """Start scripts wait for this answer."""
    assert ask(guarded, "GET", path, None)[0] == 200
