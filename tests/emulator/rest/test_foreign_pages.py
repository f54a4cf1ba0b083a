"""Refusal of requests that a foreign web page can cause: by Host, Origin and Sec-Fetch-Site."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator import Emulator
from pullstream_emulator.access import Tls
from pullstream_emulator.rest import foreign_pages
from pullstream_emulator.rest.foreign_pages import Known, checked_host, checked_origin, refusal
from pullstream_emulator.rest.server import Rest
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import TOPIC
from tests.emulator.certificates import new_identity
from tests.emulator.program import refusal as refused_start
from tests.emulator.program import running
from tests.emulator.rest_client import V1_TOPIC, RestClient

KNOWN = Known(
    hosts={"broker.example.com", "*.example.org", ".svc.corp.example", "build-7.corp.example"},
    origins={
        checked_origin("https://app.example.com"),
        checked_origin("http://localhost:3000"),
        checked_origin("vscode-webview://panel"),
    },
)


def host_is_refused(host: str, known: Known = KNOWN) -> bool:
    return refusal("http", {"Host": [host]}, known) is not None


# ---- Host ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8085",
        "192.168.1.17:80",
        "[::1]",
        "[::1]:8085",
        "[2001:db8::17]:8085",
        "[fe80::1%25eth0]:8085",
        "[::ffff:127.0.0.1]",
        "localhost",
        "localhost:8085",
        "LocalHost.:8085",
        "localhost:",
        # A service of Compose, and the short name of a pod.
        "pubsub",
        "pubsub_1:8085",
        "my-pubsub:8085",
        "app.localhost:8085",
        "printer.local",
        "host.docker.internal:8085",
        "broker.project.internal",
        "pubsub.testing.svc:8085",
        "pubsub.testing.svc.cluster.local.:8085",
        "pubsub-0.pubsub.testing.svc.cluster.local",
        # In the list of known names.
        "broker.example.com:443",
        "BROKER.example.com.",
        "a.example.org",
        "build-7.corp.example",
        "pubsub.testing.svc.corp.example:8085",
    ],
)
def test_ip_addresses_and_local_host_names_are_accepted_as_host_header(host: str) -> None:
    assert not host_is_refused(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8085",
        "EVIL.EXAMPLE.",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "local.evil.example",
        "x.internal.evil.example",
        # The owner of any domain can create such a name.
        "pubsub.testing.svc.evil.example",
        "pubsub.testing.svc.cluster.local.evil.example",
        "notlocalhost.example",
        "x.notlocal",
        "x.local.x",
        "sub.broker.example.com",
        "example.com",
        "example.org",
        "a.b.example.org",
        "notsvc.corp.example",
        "corp.example",
        "127.0.0.1.nip.io",
        # Invalid names.
        "",
        ".",
        "..",
        "a..b.local",
        "localhost..",
        ".local",
        "-x.local",
        "user@localhost",
        "localhost/",
        "localhost:80:80",
        "localhost:port",
        "local host",
        "[localhost]",
        "[::1",
        "::1",
        "[]",
        "löcal.localhost",
        "localhost,evil.example",
        "evil.example#.local",
        "evil.example\\.local",
    ],
)
def test_a_request_with_a_public_host_name_as_host_header_is_refused(host: str) -> None:
    assert host_is_refused(host)


def test_a_request_without_a_host_header_is_accepted() -> None:
    """HTTP/1.0 has none. A browser always sends one."""
    assert refusal("http", {}, KNOWN) is None


def test_the_broker_refuses_a_request_with_two_host_headers() -> None:
    assert refusal("http", {"Host": ["localhost", "pubsub"]}, KNOWN)


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
PORT = st.one_of(st.just(""), st.integers(0, 65535).map(":{}".format))


@given(st.lists(LABEL, min_size=2), PORT, st.sampled_from(["", "."]))
def test_a_host_header_with_any_subdomain_of_a_public_host_name_is_refused(
    labels: list[str], port: str, dot: str
) -> None:
    name = ".".join([*labels, "evil", "example"])
    assert host_is_refused(f"{name}{dot}{port}")
    assert host_is_refused(f"{name.upper()}{dot}{port}")


@given(st.ip_addresses(), PORT)
def test_every_ip_address_is_accepted_as_host_header(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: str
) -> None:
    text = f"[{address}]" if address.version == 6 else str(address)
    assert not host_is_refused(text + port, Known())


@given(LABEL, PORT, st.sampled_from(["", ".localhost", ".local", ".internal", ".svc"]))
def test_every_local_name_is_accepted_as_host_header(label: str, port: str, domain: str) -> None:
    assert not host_is_refused(f"{label}{domain}{port}", Known())


@given(st.text(), st.text(), st.text())
def test_any_host_and_origin_header_values_are_accepted_or_refused_without_an_exception(
    host: str, origin: str, site: str
) -> None:
    """No value causes another error."""
    headers = {"Host": [host], "Origin": [origin], "Sec-Fetch-Site": [site]}
    problem = refusal("http", headers, KNOWN)
    assert problem is None or len(problem) < 3000


# ---- Origin --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("http", "localhost:8085", "http://localhost:8085"),
        ("http", "LOCALHOST.:8085", "http://localhost:8085"),
        ("http", "localhost", "http://localhost"),
        ("http", "localhost:80", "http://localhost"),
        ("http", "localhost", "http://localhost:80"),
        ("https", "localhost:443", "https://localhost"),
        ("http", "[::1]:8085", "http://[0:0::1]:8085"),
        ("http", "127.0.0.1:8085", "http://127.0.0.1:8085"),
        # Listed.
        ("http", "localhost:8085", "https://app.example.com"),
        ("http", "localhost:8085", "https://app.example.com:443"),
        ("http", "localhost:8085", "http://localhost:3000"),
        ("http", "localhost:8085", "vscode-webview://panel"),
    ],
)
def test_requests_of_a_web_page_of_the_broker_s_own_or_an_allowed_origin_are_accepted(
    scheme: str, host: str, origin: str
) -> None:
    assert refusal(scheme, {"Host": [host], "Origin": [origin]}, KNOWN) is None


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("http", "localhost:8085", "null"),
        ("http", "localhost:8085", ""),
        ("http", "localhost:8085", "http://evil.example"),
        ("http", "localhost:8085", "http://localhost"),
        ("http", "localhost:8085", "http://localhost:8086"),
        ("http", "localhost:8085", "https://localhost:8085"),
        ("https", "localhost", "http://localhost"),
        ("http", "localhost:8085", "http://127.0.0.1:8085"),
        ("http", "localhost:8085", "http://localhost:8085.evil.example"),
        ("http", "localhost:8085", "http://app.example.com"),
        ("http", "localhost:8085", "http://app.example.com:443"),
        ("http", "localhost:8085", "file://"),
        ("http", "localhost:8085", "localhost:8085"),
        ("http", "localhost:8085", "http://user@localhost:8085"),
        ("http", "localhost:8085", "http://localhost:8085/"),
        ("http", "localhost:8085", "http://localhost:8085 http://evil.example"),
    ],
)
def test_a_request_of_a_web_page_of_a_foreign_origin_is_refused(
    scheme: str, host: str, origin: str
) -> None:
    assert refusal(scheme, {"Host": [host], "Origin": [origin]}, KNOWN)


def test_a_request_with_two_origin_headers_one_of_which_is_foreign_is_refused() -> None:
    own, foreign = "http://localhost", "http://evil.example"
    for origins in ([own, foreign], [foreign, own]):
        assert refusal("http", {"Host": ["localhost"], "Origin": origins}, KNOWN)


def test_without_a_host_header_only_requests_with_an_allowed_origin_are_accepted() -> None:
    """Without a host there is nothing to compare the origin with."""
    assert refusal("http", {"Origin": ["http://localhost"]}, KNOWN)
    assert refusal("http", {"Origin": ["http://localhost:3000"]}, KNOWN) is None


@pytest.mark.parametrize(
    ("site", "origin", "passes"),
    [
        ("cross-site", None, False),
        ("same-site", None, False),
        ("same-origin", None, True),
        ("none", None, True),
        # A page of another port of this machine, which is listed.
        ("same-site", "http://localhost:3000", True),
        ("cross-site", "https://app.example.com", True),
        ("cross-site", "http://localhost:8085", False),
    ],
)
def test_a_foreign_sec_fetch_site_header_is_overruled_only_by_an_allowed_origin_header(
    site: str, origin: str | None, passes: bool
) -> None:
    headers = {"Host": ["localhost:8085"], "Sec-Fetch-Site": [site]}
    if origin is not None:
        headers["Origin"] = [origin]
    assert (refusal("http", headers, KNOWN) is None) == passes


# ---- error texts and option values ---------------------------------------------------------------


def test_the_error_for_a_foreign_web_page_names_the_option_that_allows_the_refused_value() -> None:
    text = refusal("http", {"Host": ["Broker.Example:8085"]}, Known())
    assert text
    assert "'Broker.Example:8085'" in text
    assert text.endswith("--allow-host broker.example")
    text = refusal("http", {"Host": ["localhost"], "Origin": ["http://a.example:1"]}, Known())
    assert text
    assert "'http://a.example:1'" in text
    assert text.endswith("--allow-origin http://a.example:1")
    text = refusal("http", {"Host": ["localhost"], "Origin": ["null"]}, Known())
    assert text
    assert "'null'" in text
    assert "--allow-origin" in text


@given(LABEL, LABEL, PORT)
def test_a_request_refused_for_its_host_is_accepted_with_the_option_named_in_the_error(
    label: str, domain: str, port: str
) -> None:
    """The suggested --allow-host option lets the same request through."""
    headers = {"Host": [f"{label}.{domain}.example{port}"]}
    text = refusal("http", headers, Known())
    assert text is not None
    advised = checked_host(text.rpartition(" ")[2])
    assert refusal("http", headers, Known({advised})) is None


@pytest.mark.parametrize(
    "text", ["", "http://broker.example", "broker.example:8085", "[::1]", "127.0.0.1", "*", "a..b"]
)
def test_the_broker_refuses_an_allow_host_value_that_can_match_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="must be one without scheme and port"):
        checked_host(text)


@pytest.mark.parametrize("text", ["", "null", "localhost:3000", "*", "http://", "http://a.b/path"])
def test_the_broker_refuses_an_allow_origin_value_that_can_match_no_origin(
    text: str,
) -> None:
    with pytest.raises(ValueError, match="must be a scheme and a host"):
        checked_origin(text)


def test_the_machine_names_accepted_as_host_are_host_name_full_name_and_cluster_domain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The domain of the cluster is read from the resolver configuration."""
    configuration = tmp_path / "resolv.conf"
    monkeypatch.setattr(foreign_pages, "_RESOLVER_CONFIGURATION", configuration)
    monkeypatch.setattr(socket, "gethostname", lambda: "Build-7")
    monkeypatch.setattr(socket, "getfqdn", lambda: "Build-7.corp.example.")
    assert foreign_pages.machine_names() == {"build-7", "build-7.corp.example"}
    configuration.write_text(
        "# a pod\nnameserver 10.0.0.2\n\nsearch ns.svc.corp.example svc.corp.example corp.example\n"
    )
    names = foreign_pages.machine_names()
    assert names == {"build-7", "build-7.corp.example", ".svc.corp.example"}
    assert not host_is_refused("pubsub.ns.svc.corp.example:8085", Known(names))
    assert host_is_refused("www.corp.example", Known(names))


# ---- every route ---------------------------------------------------------------------------------

ROUTES = [
    ("GET", "/"),
    ("GET", "/healthz"),
    ("POST", "/reset"),
    ("POST", "/shutdown"),
    ("GET", V1_TOPIC),
    ("DELETE", V1_TOPIC),
    ("POST", f"{V1_TOPIC}:publish"),
    ("OPTIONS", f"{V1_TOPIC}:publish"),
    ("GET", "/v1/nothing"),
    ("GET", "/nothing"),
    ("GET", "/v0/topics"),
    ("POST", "/v0/watch"),
    ("GET", "/v0/watch/wid_x"),
    ("GET", "/v0/nothing"),
    ("GET", "/v0/admin/faults"),
    ("POST", "/v0/admin/clock:advance"),
    ("GET", "/v0/admin/nothing"),
]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        yield emulator


@pytest.mark.parametrize(("verb", "path"), ROUTES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:8085"},
        {"Host": "evil.example:8085", "Origin": "http://evil.example:8085"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_every_http_route_refuses_a_request_of_a_foreign_web_page(
    rest: RestClient, verb: str, path: str, headers: dict[str, str]
) -> None:
    """The request is refused before it has any effect. The answer has the form of the API."""
    status, kind, text = rest.raw(verb, path, None, **headers)
    assert (status, kind) == (403, "application/json; charset=UTF-8")
    assert "--allow-host" in text or "--allow-origin" in text
    assert rest.call("GET", V1_TOPIC).status == 200


@pytest.mark.parametrize("host", [None, "pubsub:8085", "pubsub.testing.svc.cluster.local"])
def test_host_header_names_used_by_compose_and_kubernetes_clients_are_accepted(
    rest: RestClient, host: str | None
) -> None:
    headers = {} if host is None else {"Host": host}
    assert rest.call("GET", V1_TOPIC, **headers).status == 200


def test_the_full_name_of_the_machine_is_accepted_as_host_header(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker looks the name up when a request has such a name."""
    names = frozenset({"build-7.corp.example"})
    monkeypatch.setattr(foreign_pages, "machine_names", lambda: names)
    rest = RestClient(emulator.endpoint)
    assert rest.call("GET", V1_TOPIC, Host="build-7.corp.example:8085").status == 200
    assert rest.call("GET", V1_TOPIC, Host="other.corp.example:8085").status == 403


def test_a_broker_accepts_hosts_and_origins_given_as_arguments_and_refuses_others() -> None:
    """Other hosts and origins are refused."""
    hosts, origins = ["broker.example.com"], ["http://localhost:3000"]
    with Emulator(rest=True, allow_hosts=hosts, allow_origins=origins) as emulator:
        rest = RestClient(emulator.endpoint)
        path = "/v0/topics"
        assert rest.raw("GET", path, Host="broker.example.com")[0] == 200
        assert rest.raw("GET", path, Host="other.example.com")[0] == 403
        assert rest.raw("GET", path, Origin="http://localhost:3000")[0] == 200
        assert rest.raw("GET", path, Origin="http://localhost:3001")[0] == 403


def test_cors_headers_are_sent_only_to_pages_of_allowed_origins() -> None:
    """The CORS headers of the answer say so."""
    permission = "Access-Control-Allow-Origin"
    listed = "http://localhost:3000"
    with Emulator(rest=True, allow_origins=[listed]) as emulator:
        rest = RestClient(emulator.endpoint)
        for verb, path in [("GET", "/"), ("GET", "/nothing"), ("GET", "/v0/topics")]:
            assert headers_of(rest, verb, path, Origin=listed)[permission] == listed
            for other in ("http://evil.example", f"http://{emulator.endpoint}"):
                assert permission not in headers_of(rest, verb, path, Origin=other)
            assert permission not in headers_of(rest, verb, path)
        preflight = {"Access-Control-Request-Method": "DELETE"}
        headers = headers_of(rest, "OPTIONS", V1_TOPIC, Origin=listed, **preflight)
        assert headers["Access-Control-Allow-Methods"] == "DELETE"
        own = f"http://{emulator.endpoint}"
        headers = headers_of(rest, "OPTIONS", V1_TOPIC, Origin=own, **preflight)
        assert not [name for name in headers if name.startswith("Access-Control")]


def headers_of(rest: RestClient, verb: str, path: str, **headers: str) -> dict[str, str]:
    with closing(rest.connect()) as connection:
        connection.request(verb, path, None, headers)
        return dict(connection.getresponse().headers)


def test_constructing_an_emulator_with_an_invalid_allowed_host_or_origin_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'http://x\.example' is not a host name"):
        Emulator(rest=True, allow_hosts=["http://x.example"])
    with pytest.raises(ValueError, match="'localhost:3000' is not the origin of a page"):
        Rest(allow_origins=["localhost:3000"])


def test_allowed_hosts_and_origins_can_be_set_on_the_command_line() -> None:
    """The values may also be in the environment."""
    arguments = ["--allow-host=a.example", "--allow-host", "*.b.example"]
    with running(*arguments, PULLSTREAM_ALLOW_ORIGIN="http://c.example") as (_, address):
        rest = RestClient(address)
        assert rest.raw("GET", "/", Host="a.example")[0] == 200
        assert rest.raw("GET", "/", Host="x.b.example")[0] == 200
        assert rest.raw("GET", "/", Origin="http://c.example")[0] == 200
        assert rest.raw("POST", "/shutdown", Host="x.a.example")[0] == 403
        assert rest.raw("GET", "/")[0] == 200


@pytest.mark.parametrize(
    "argument", ["--allow-host=http://a.example", "--allow-origin=a.example:80"]
)
def test_the_command_line_refuses_allowed_hosts_and_origins_that_cannot_match(
    argument: str,
) -> None:
    code, text = refused_start(argument)
    assert code == 2
    assert "is not" in text
    assert "must be" in text


def test_a_host_name_of_the_tls_certificate_is_accepted_as_host_header(tmp_path: Path) -> None:
    """Over TLS a browser has already checked the certificate for this name."""
    identity = new_identity("broker", "broker.example.com", "*.example.org", "127.0.0.1")
    certificate, key = identity.write(tmp_path)
    assert Tls(certificate, key).names() == {"broker.example.com", "*.example.org", "127.0.0.1"}
    trusting = ssl.create_default_context(cadata=identity.certificate.decode())
    with running(f"--tls-cert={certificate}", f"--tls-key={key}") as (_, address):
        rest = RestClient(address, trusting)
        for host, status in [
            ("broker.example.com", 200),
            ("a.example.org:8085", 200),
            ("a.b.example.org", 403),
            ("evil.example", 403),
        ]:
            assert rest.raw("GET", "/", Host=host)[0] == status
        own = {"Host": "broker.example.com", "Origin": "https://broker.example.com"}
        assert rest.raw("GET", "/", None, **own)[0] == 200
        own["Origin"] = "http://broker.example.com"
        assert rest.raw("GET", "/", None, **own)[0] == 403
