"""Tokens on /v0: a token gives access to its projects, and a watch belongs to its creator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.event_reader import Refused
from tests.emulator.v0_client import TOPIC, V0
from tests.emulator.wire import TIMEOUT

OURS = f"{TOPIC}?project=ours"


class Caller(V0):
    """A client with a token."""

    def __init__(self, endpoint: str, token: str) -> None:
        super().__init__(endpoint)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, verb: str, path: str, content: Any = None, **headers: str) -> tuple[int, str]:
        """Return the status and, for a refusal, the code."""
        status, response = self.rest.call(verb, path, content, **self.headers, **headers)
        return status, response.get("error", {}).get("code", "")

    def begin(self) -> str:
        """Begin a watch of the project's topic, and return the path of its stream."""
        content: Any = {"topics": {"orders": {}}}
        response = self.rest.call("POST", "/v0/watch?project=ours", content, **self.headers)
        path: str = response.content["stream_url"]
        return path


@pytest.fixture
def endpoint() -> Iterator[str]:
    tokens = {
        "t-one": Principal("one", frozenset({"ours"})),
        "t-two": Principal("two", frozenset({"ours"})),
        "t-root": Principal("root"),
    }
    with Emulator(access=Access(tokens), rest=True) as emulator:
        yield emulator.endpoint


@pytest.fixture
def one(endpoint: str) -> Caller:
    caller = Caller(endpoint, "t-one")
    assert caller.ask("PUT", OURS) == (201, "")
    return caller


@pytest.mark.parametrize("token", ["", "t-wrong"])
@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("PUT", OURS),
        ("GET", "/v0/topics"),
        ("POST", "/v0/watch"),
        ("GET", "/v0/watch/x"),
        ("DELETE", "/v0/watch/x"),
        ("PATCH", OURS),
        ("GET", "/v0/nothing"),
    ],
)
def test_v0_requests_without_a_valid_token_are_refused(
    endpoint: str, token: str, verb: str, path: str
) -> None:
    """The answer does not depend on whether the resource exists."""
    assert Caller(endpoint, token).ask(verb, path) == (401, "unauthorized")


def test_a_token_gives_v0_access_only_to_the_projects_of_its_principal(one: Caller) -> None:
    """The default project has no special access."""
    assert one.ask("GET", OURS) == (200, "")
    for path in (TOPIC, f"{TOPIC}?project=theirs"):
        for verb in ("PUT", "GET", "DELETE", "POST"):
            assert one.ask(verb, path) == (403, "forbidden")
    assert one.ask("POST", "/v0/watch", {"topics": {"orders": {}}}) == (403, "forbidden")
    assert Caller(one.endpoint, "t-root").ask("PUT", TOPIC) == (201, "")


def test_the_token_of_a_v0_request_may_be_a_query_parameter(one: Caller) -> None:
    """The EventSource of a browser has no other way to send the token."""
    path = one.begin()
    with one.stream(f"{path}?access_token=t-one") as stream:
        assert stream.next().name == "caught-up"


def test_a_v0_watch_stream_can_be_opened_only_by_the_principal_that_created_the_session(
    endpoint: str, one: Caller
) -> None:
    """Another caller with access to its topics cannot open it either."""
    path = one.begin()
    two, root = Caller(endpoint, "t-two"), Caller(endpoint, "t-root")
    for other in (two, root):
        assert other.ask("GET", path) == (403, "forbidden")
        assert other.ask("DELETE", path) == (403, "forbidden")
    with pytest.raises(Refused) as refused, one.stream(path):
        pass
    assert refused.value.status == 401
    with one.stream(path, **one.headers) as stream:
        assert stream.next().name == "caught-up"
    assert one.ask("DELETE", path) == (200, "")


def test_v0_requests_from_web_pages_of_other_sites_are_refused(one: Caller) -> None:
    """Browsers send the origin of a page."""
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert one.ask("GET", OURS, **headers) == (403, "forbidden")
    assert one.ask("GET", one.begin(), **headers) == (403, "forbidden")


@pytest.mark.parametrize("path", ["/v0/admin/history", "/v0/%61dmin/history", "/v0/admin/x"])
def test_a_token_for_one_project_gives_no_v0_admin_access(one: Caller, path: str) -> None:
    """The token is refused although its path begins with /v0."""
    assert one.rest.call("GET", path, **one.headers).status in (403, 404)


@pytest.mark.parametrize(("token", "opens"), [("t-one", True), ("t-two", False), ("t-root", False)])
def test_a_v0_watch_session_can_be_opened_over_grpc_only_by_the_principal_that_created_it(
    endpoint: str, one: Caller, token: str, opens: bool
) -> None:
    """The watch was begun over HTTP."""
    rpc = BY_METHOD["Watch"]
    request = feeds.WatchRequest(watch_id=one.begin().rpartition("/")[2])
    with grpc.insecure_channel(endpoint) as channel:
        watch: Any = channel.unary_stream(
            rpc.path, rpc.request.SerializeToString, rpc.response.FromString
        )
        metadata = (("authorization", f"Bearer {token}"),)
        call = watch(request, timeout=TIMEOUT, metadata=metadata)
        if opens:
            assert next(call).opened.watch_id == request.watch_id
            call.cancel()
        else:
            with pytest.raises(grpc.RpcError) as refused:
                next(call)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
