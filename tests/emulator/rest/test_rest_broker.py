"""HTTP requests about the whole broker, access to them, and HTTP options of the command line."""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.rest.server import MISSING, NOT_SHARED, Rest, obstacle
from tests.completed import run_command
from tests.emulator.broker import PROJECT, TOPIC
from tests.emulator.program import ends_well, error_of, running, started
from tests.emulator.rest_client import V1_PROJECT, V1_SUBSCRIPTION, V1_TOPIC, RestClient
from tests.emulator.wire import TIMEOUT

TEXT = "text/plain; charset=utf-8"


@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_the_broker_answers_ok_to_an_http_request_for_the_root_path(
    rest: RestClient, path: str
) -> None:
    """The answer has the text that tools expect since Google's emulator sends it."""
    assert rest.raw("GET", path) == (200, TEXT, "Ok\n")
    assert rest.raw("HEAD", path) == (200, TEXT, "")


def test_a_reset_over_http_removes_all_resources(rest: RestClient) -> None:
    """Topics, subscriptions, schemas and policies are removed."""
    rest.create()
    rest.ok("POST", f"{V1_TOPIC}:setIamPolicy", {"policy": {"version": 1}})
    avro = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
    schema = {"type": "AVRO", "definition": avro}
    rest.ok("POST", f"{V1_PROJECT}/schemas?schemaId=order", schema)
    assert rest.raw("POST", "/reset") == (200, TEXT, "Resetting...\n")
    for collection in ("topics", "subscriptions", "snapshots", "schemas"):
        assert rest.ok("GET", f"{V1_PROJECT}/{collection}") == {}
    rest.create()
    assert "version" not in rest.ok("GET", f"{V1_TOPIC}:getIamPolicy")


def test_the_http_reset_and_v1_calls_refuse_requests_of_web_pages_of_other_sites(
    rest: RestClient,
) -> None:
    """Browsers send such requests without asking, but with the origin of the page."""
    rest.create()
    foreign = {"Sec-Fetch-Site": "cross-site"}
    for path in ("/reset", f"{V1_TOPIC}:publish"):
        reply = rest.call("POST", path, {}, **foreign)
        assert reply.error[:2] == (403, "PERMISSION_DENIED")
    status, content = rest.call("POST", "/v0/admin/faults", {}, **foreign)
    assert (status, content["error"]["code"]) == (403, "forbidden")
    assert rest.ok("GET", V1_TOPIC) == {"name": TOPIC}
    assert rest.raw("GET", "/", None, **{"Sec-Fetch-Site": "cross-site"})[0] == 200
    assert rest.call("GET", V1_TOPIC, **{"Sec-Fetch-Site": "none"}).status == 200


def test_an_http_shutdown_request_is_refused_by_an_emulator_inside_a_python_program(
    rest: RestClient,
) -> None:
    """An emulator of a program ends with its `with` block."""
    assert rest.call("POST", "/shutdown").error == (
        501,
        "UNIMPLEMENTED",
        "This broker is part of another program, and ends with it.",
    )
    assert rest.raw("GET", "/")[0] == 200


def test_the_broker_serves_the_admin_api_on_the_port_of_the_rest_api(
    rest: RestClient, emulator: Emulator
) -> None:
    """The API sets faults of this broker."""
    fault = b'{"fault": "error:GetTopic:UNAVAILABLE"}'
    status, _, _ = rest.raw("POST", "/v0/admin/faults", fault)
    assert status == 200
    assert rest.call("GET", V1_TOPIC).error[:2] == (503, "UNAVAILABLE")
    emulator.faults.clear()


def test_an_emulator_without_the_rest_argument_serves_only_grpc() -> None:
    """HTTP is cheap, but tests do not need it."""
    with Emulator() as other, pytest.raises(HTTPException):
        RestClient(other.endpoint).raw("GET", "/")


# ---- access ------------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[RestClient]:
    """Yield a broker with two tokens: one for everything, one for the project of all tests."""
    project = PROJECT.partition("/")[2]
    access = Access({"all": Principal("root"), "one": Principal("guest", frozenset({project}))})
    with Emulator(rest=True, access=access) as emulator:
        yield RestClient(emulator.endpoint)


def test_rest_calls_without_a_valid_token_are_refused(guarded: RestClient) -> None:
    """Only paths without information are open."""
    for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic all"}):
        for verb, path in (("GET", V1_TOPIC), ("GET", "/v1/nothing"), ("POST", "/reset")):
            assert guarded.call(verb, path, **headers).error[:2] == (401, "UNAUTHENTICATED")
    assert guarded.raw("GET", "/")[0] == 200


def test_a_token_gives_rest_access_to_the_projects_of_its_principal(guarded: RestClient) -> None:
    """The token is in a header or, as in Google's APIs, in the query.

    Names in the body are checked, too.
    """
    one = {"Authorization": "Bearer one"}
    assert guarded.call("PUT", V1_TOPIC, **one) == (200, {"name": TOPIC})
    assert guarded.call("GET", f"{V1_TOPIC}?access_token=one") == (200, {"name": TOPIC})
    refused = (403, "PERMISSION_DENIED", "User not authorized to perform this action.")
    assert guarded.call("GET", "/v1/projects/other/topics", **one).error == refused
    foreign = {"topic": "projects/other/topics/orders"}
    assert guarded.call("PUT", V1_SUBSCRIPTION, foreign, **one).error == refused


@pytest.mark.parametrize(
    ("verb", "path"), [("POST", "/reset"), ("POST", "/shutdown"), ("GET", "/v0/admin/faults")]
)
def test_rest_calls_for_the_whole_broker_need_a_token_for_all_projects(
    guarded: RestClient, verb: str, path: str
) -> None:
    """A token of one project is not sufficient."""
    assert guarded.call(verb, path, Authorization="Bearer one").status == 403
    status, _, _ = guarded.raw(verb, path, Authorization="Bearer all")
    assert status == (501 if path == "/shutdown" else 200)


# ---- the command line --------------------------------------------------------------------------


def test_the_emulator_program_serves_grpc_and_http_on_one_port() -> None:
    """The program ends with success when a client requests it."""
    with running() as (process, endpoint):
        rest = RestClient(endpoint)
        rest.create()
        assert rest.raw("POST", "/shutdown") == (200, TEXT, "Shutting down...\n")
        output, errors = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, output, errors) == (0, "", "")


def test_with_the_rest_port_option_the_emulator_program_serves_http_on_a_separate_port() -> None:
    """A second line prints that port. The gRPC port does not serve HTTP then."""
    with running("--rest-port", "0") as (process, endpoint):
        assert process.stdout is not None
        start, _, http_port = process.stdout.readline().rpartition(" ")
        assert start == "HTTP/JSON, listening on"
        assert RestClient(f"127.0.0.1:{int(http_port)}").raw("GET", "/")[0] == 200
        with pytest.raises(HTTPException):
            RestClient(endpoint).raw("GET", "/")


def test_with_the_no_rest_option_the_emulator_program_serves_only_grpc() -> None:
    """Then gRPC alone is served."""
    with running("--no-rest") as (process, endpoint):
        with pytest.raises(HTTPException):
            RestClient(endpoint).raw("GET", "/")
        ends_well(process)


def test_without_aiohttp_the_emulator_program_serves_grpc_and_logs_that_http_is_missing() -> None:
    """One line says so. An explicit HTTP option is an error."""
    hidden = (
        "import sys; sys.modules['aiohttp'] = None; "
        "from pullstream_emulator.cli import command; command()"
    )
    program = [sys.executable, "-c", hidden, "--host", "127.0.0.1", "--port", "0"]
    with started(program, {}) as (process, _):
        process.terminate()
        assert process.communicate(timeout=TIMEOUT) == ("", f"WARNING gRPC only: {MISSING}\n")
    ran = run_command([*program, "--rest-port", "0"])
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"Error: {MISSING}\n")


def test_the_emulator_program_reports_a_rest_port_that_is_in_use_in_one_line() -> None:
    """The error is the same as for gRPC's port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = str(taken.getsockname()[1])
        error = error_of("--rest-port", busy)
    assert error.startswith(f"Error: cannot listen on 127.0.0.1:{busy}: ")


def test_an_emulator_with_rest_cannot_start_without_the_requirements_of_the_rest_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either aiohttp is missing, or the system cannot pass on connections."""
    assert obstacle(Rest()) is None
    with monkeypatch.context() as patch:
        patch.delattr(socket, "AF_UNIX")
        assert obstacle(Rest()) == NOT_SHARED
        assert obstacle(Rest(port=0)) is None
        with pytest.raises(ValueError, match=NOT_SHARED), Emulator(rest=True):
            pass
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert obstacle(Rest(port=0)) == MISSING


def test_aiohttp_is_not_imported_before_the_first_http_request(tmp_path: Path) -> None:
    """The import takes longer than the start of the broker."""
    program = tmp_path / "start.py"
    program.write_text(
        "import sys\n"
        "from pullstream_emulator import Emulator\n"
        "with Emulator(rest=True) as emulator:\n"
        "    print('aiohttp' in sys.modules)\n"
    )
    ran: Any = run_command(
        [sys.executable, str(program)],
        cwd=Path(__file__).parents[3],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert ran.stdout == "False\n"
