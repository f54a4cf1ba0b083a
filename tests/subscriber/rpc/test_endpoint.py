"""The client's endpoint: its address, plain text or TLS, and the token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.oauth2.credentials import Credentials

from pullstream import (
    AsyncPublisherClient,
    AsyncSubscriberClient,
    PublisherClient,
    SchemaServiceClient,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream.rpc.endpoint import (
    WINDOW_BYTES,
    Endpoint,
    ServerAccess,
    access_of,
    channel_options,
    locate,
)
from pullstream.spark.sink.options import SinkOptions

GOOGLE = Endpoint("pubsub.googleapis.com:443", plaintext=False)
# google-auth's constructors have no annotations.
ANONYMOUS: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
TOKEN: Any = Credentials("token")  # type: ignore[no-untyped-call]
TLS = grpc.ssl_channel_credentials()


def plain(address: str) -> Endpoint:
    return Endpoint(address, plaintext=True)


def secure(address: str) -> Endpoint:
    return Endpoint(address, plaintext=False)


@pytest.mark.parametrize(
    ("given", "environment", "target"),
    [
        # The address: the argument, then the environment, then Google's.
        ({}, "", GOOGLE),
        ({}, "localhost:8085", plain("localhost:8085")),
        ({"endpoint": "far:1"}, "localhost:8085", secure("far:1")),
        ({"client_options": {"api_endpoint": "far:1"}}, "localhost:1", secure("far:1")),
        ({"client_options": ClientOptions(api_endpoint="far")}, "", secure("far:443")),
        ({"client_options": {}}, "host:1", plain("host:1")),
        # A scheme decides.
        ({"endpoint": "http://far:1"}, "", plain("far:1")),
        ({"endpoint": "http://far"}, "", plain("far:80")),
        ({"endpoint": "http://far:1", "credentials": TOKEN}, "", plain("far:1")),
        ({"endpoint": "https://localhost:1/"}, "", secure("localhost:1")),
        ({"endpoint": "https://far:1", "credentials": ANONYMOUS}, "", secure("far:1")),
        ({}, "http://host:1", plain("host:1")),
        ({}, "https://host:1", secure("host:1")),
        # The environment means a broker in plain text, whatever credentials the code passes.
        ({"credentials": TOKEN, "channel_credentials": TLS}, "host:1", plain("host:1")),
        # Plain text for anonymous credentials, or for this machine by default.
        ({"endpoint": "far:1", "credentials": ANONYMOUS}, "", plain("far:1")),
        ({"endpoint": "localhost:1"}, "", plain("localhost:1")),
        ({"endpoint": "127.0.1.1:1"}, "", plain("127.0.1.1:1")),
        ({"endpoint": "[::1]:1"}, "", plain("[::1]:1")),
        ({"endpoint": "localhost:1", "credentials": TOKEN}, "", secure("localhost:1")),
        ({"endpoint": "localhost.evil.com:1"}, "", secure("localhost.evil.com:1")),
        ({"endpoint": "127.evil.com:1"}, "", secure("127.evil.com:1")),
        # TLS on request.
        ({"endpoint": "localhost:1", "channel_credentials": TLS}, "", secure("localhost:1")),
        (
            {"endpoint": "far:1", "channel_credentials": TLS, "credentials": ANONYMOUS},
            "",
            secure("far:1"),
        ),
        ({"credentials": TOKEN}, "", GOOGLE),
    ],
)
def test_the_endpoint_argument_determines_the_server_address_and_the_use_of_tls(
    given: dict[str, Any], environment: str, target: Endpoint
) -> None:
    """The rules are those in the docstring of `locate`."""
    assert locate(**given, environ={"PUBSUB_EMULATOR_HOST": environment}) == target


@pytest.mark.parametrize(
    ("given", "environment", "text"),
    [
        ({"endpoint": "a:b:c"}, "", "endpoint must have the form host:port, got 'a:b:c'"),
        ({"endpoint": "ftp://a:1"}, "", "endpoint must have the form host:port"),
        ({"endpoint": "http://a:1/path"}, "", "endpoint must have the form host:port"),
        ({"endpoint": "localhost"}, "", "endpoint must have the form host:port, got 'localhost'"),
        ({"endpoint": "127.0.0.1"}, "", "endpoint must have the form host:port"),
        ({"endpoint": ""}, "", "endpoint must have the form host:port, got ''"),
        ({}, "localhost", "PUBSUB_EMULATOR_HOST must have the form host:port, got 'localhost'"),
        ({"endpoint": "a:1", "client_options": {"api_endpoint": "a:1"}}, "", "exclude each other"),
        ({"client_options": {"quota_project_id": "p"}}, "", "only api_endpoint .* not quota_proj"),
    ],
)
def test_the_error_for_an_invalid_endpoint_names_the_argument_or_variable_it_came_from(
    given: dict[str, Any], environment: str, text: str
) -> None:
    """The error names the source of the address."""
    with pytest.raises(ValueError, match=text):
        locate(**given, environ={"PUBSUB_EMULATOR_HOST": environment})


def test_a_client_refuses_an_endpoint_given_as_a_port_number() -> None:
    """The error names the argument, where a regular expression would have raised its own."""
    port: Any = 8085
    with pytest.raises(TypeError, match="endpoint is 8085; it must be a str"):
        locate(endpoint=port, environ={})


# ---- tokens and certificates ---------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    path.write_bytes(PEM)
    return str(path)


PEM = b"-----BEGIN CERTIFICATE-----\n"


def access(environ: dict[str, str] | None = None, **given: Any) -> ServerAccess:
    return access_of(**given, environ=environ or {})


def test_a_ca_certificate_argument_turns_on_tls_for_every_server_address(certificate: str) -> None:
    """TLS is used for every address, even on this machine."""
    expected = ServerAccess(secure("localhost:1"), ca=PEM)
    assert access(endpoint="localhost:1", ca=certificate) == expected
    assert access({"PUBSUB_EMULATOR_HOST": "localhost:1"}, ca=certificate) == expected
    environ = {"PUBSUB_EMULATOR_HOST": "localhost:1", "PULLSTREAM_CA": certificate}
    assert access(environ) == expected
    both = access(endpoint="localhost:1", cert=certificate, key=certificate)
    assert both == ServerAccess(secure("localhost:1"), cert=PEM, key=PEM)


def test_a_client_takes_its_token_from_the_argument_or_an_environment_variable() -> None:
    """An empty variable does not count, and the broker's own variable is never read."""
    environ = {"PULLSTREAM_TOKEN": "theirs", "PULLSTREAM_AUTH_TOKEN": "the broker's"}
    assert access(environ, endpoint="https://far:1").token == "theirs"
    assert access(environ, endpoint="https://far:1", token="mine").token == "mine"
    assert access(environ, endpoint="https://far:1", credentials=TOKEN).token is None
    environ["PULLSTREAM_TOKEN"] = ""
    assert access(environ, endpoint="https://far:1").token is None


def test_a_token_from_an_environment_variable_is_not_sent_to_google(certificate: str) -> None:
    """Google gets a token only from an argument, never from the environment.

    Such a token is the text of `gcloud auth print-access-token`.
    """
    environ = {"PULLSTREAM_TOKEN": "secret", "PULLSTREAM_CA": certificate}
    for given in ({}, {"endpoint": "europe-west1-pubsub.googleapis.com"}):
        assert access(environ, **given).token is None
        assert access(environ, **given).ca is None
        assert access(environ, **given, token="mine").token == "mine"


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, {"endpoint": "http://far:1", "token": "s3cret"}),
        ({"PUBSUB_EMULATOR_HOST": "far:1"}, {"token": "s3cret"}),
        ({"PUBSUB_EMULATOR_HOST": "far:1", "PULLSTREAM_TOKEN": "s3cret"}, {}),
        ({"PUBSUB_EMULATOR_HOST": "far:1", "PULLSTREAM_TOKEN": "s3cret"}, {"endpoint": None}),
    ],
)
def test_a_client_refuses_a_token_without_tls_for_a_server_on_another_machine(
    environ: dict[str, str], given: dict[str, Any]
) -> None:
    """The error has the remedies but not the token."""
    with pytest.raises(ValueError, match="would be sent in plain text to far:1") as refused:
        access(environ, **given)
    assert "https://far:1" in str(refused.value)
    assert "ca, --ca, PULLSTREAM_CA" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("endpoint", ["localhost:1", "http://127.0.0.1:1", "[::1]:1"])
def test_a_client_accepts_a_token_without_tls_for_a_server_on_this_machine(endpoint: str) -> None:
    """No other machine can read it there."""
    assert access(endpoint=endpoint, token="t") == ServerAccess(
        plain(endpoint.removeprefix("http://")), token="t"
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"token": "t", "credentials": TOKEN}, "token and credentials exclude each other"),
        ({"ca": "x", "channel_credentials": TLS}, "channel_credentials exclude ca, cert and key"),
        ({"cert": "x"}, "cert requires key"),
        ({"key": "x"}, "key requires cert"),
        ({"endpoint": "http://far:1", "ca": "CA"}, "write https://far:1"),
        ({"token": "s3cret s3cret"}, "token must consist of visible ASCII"),
        ({"token": "s3cret\n"}, "token must consist of visible ASCII"),
        ({"token": ""}, "token must consist of visible ASCII"),
        ({"token": b"s3cret"}, "token must consist of visible ASCII"),
        ({"ca": os.devnull}, "ca is '.*', which is not a PEM file"),
    ],
)
def test_the_error_for_contradictory_connection_arguments_does_not_show_the_token(
    given: dict[str, Any], problem: str, certificate: str
) -> None:
    """The error names the argument and shows no token."""
    if given.get("ca") == "CA":
        given = {**given, "ca": certificate}
    with pytest.raises(ValueError, match=problem) as refused:
        access(**given)
    assert "s3cret" not in str(refused.value)


def test_the_error_for_a_missing_certificate_or_token_file_names_the_file(tmp_path: Path) -> None:
    """The system's error names the file."""
    with pytest.raises(FileNotFoundError, match=r"none\.pem"):
        access(ca=tmp_path / "none.pem")


def test_the_repr_of_connection_settings_shows_no_token_and_no_key(certificate: str) -> None:
    """The contents of the files are not shown either."""
    shown = repr(access(endpoint="localhost:1", token="s3cret", cert=certificate, key=certificate))
    assert "s3cret" not in shown
    assert "BEGIN" not in shown


# ---- channels ------------------------------------------------------------------------------------


def test_only_connections_to_servers_on_other_machines_use_keepalive_pings() -> None:
    """All other settings are the same for both."""
    remote = dict(channel_options(GOOGLE))
    local = dict(channel_options(plain("localhost:1")))
    # A proxy is used only for servers on other machines.
    assert local.pop("grpc.enable_http_proxy") == 0
    assert remote.pop("grpc.keepalive_time_ms") == 30_000
    # An idle connection is closed, because pings need a call and a router may forget the
    # connection.
    assert remote.pop("grpc.client_idle_timeout_ms") == 30_000
    assert local == remote
    assert local == {
        "grpc.max_send_message_length": -1,
        "grpc.max_receive_message_length": -1,
        "grpc.max_metadata_size": 4 * 1024 * 1024,
        "grpc.use_local_subchannel_pool": 1,
        "grpc.http2.bdp_probe": 0,
        "grpc.http2.lookahead_bytes": 4 * 1024 * 1024,
        "grpc.initial_reconnect_backoff_ms": 200,
        "grpc.max_reconnect_backoff_ms": 5_000,
    }


def test_the_http2_window_of_a_connection_limits_the_unread_bytes_of_a_stream() -> None:
    """A stopped reader keeps at most that much in memory, so watches have a small window."""
    target = plain("localhost:1")
    assert dict(channel_options(target))["grpc.http2.lookahead_bytes"] == WINDOW_BYTES
    options = dict(channel_options(target, 65_536))
    assert options["grpc.http2.lookahead_bytes"] == 65_536
    assert options["grpc.http2.bdp_probe"] == 0


# ---- Google's address and the variable for emulators ---------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint": "pubsub.googleapis.com"},
        {"endpoint": "https://europe-west1-pubsub.googleapis.com:443"},
        {"endpoint": "PUBSUB.GOOGLEAPIS.COM:443"},
        {"client_options": {"api_endpoint": "us-east1-pubsub.googleapis.com:443"}},
    ],
)
def test_pubsub_emulator_host_overrides_an_endpoint_of_google_with_a_warning(
    given: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A test must not reach production. One warning names both addresses."""
    # Another port for each case, because the warning comes once for each pair in a process.
    emulator = f"localhost:{1000 + len(str(given))}"
    for _ in range(2):
        found = access({"PUBSUB_EMULATOR_HOST": emulator, "PULLSTREAM_TOKEN": "theirs"}, **given)
        assert found == ServerAccess(plain(emulator), token="theirs")
    (record,) = caplog.records
    (address,) = given.get("client_options", given).values()
    assert f"PUBSUB_EMULATOR_HOST={emulator} takes precedence" in record.message
    assert repr(address) in record.message


@pytest.mark.parametrize(
    "address", ["localhost:1", "broker.example.com:443", "googleapis.com.example.com:443"]
)
def test_pubsub_emulator_host_does_not_override_an_endpoint_that_is_not_googles(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such an address is that of an emulator or a broker, which somebody chose."""
    environ = {"PUBSUB_EMULATOR_HOST": "localhost:2"}
    assert access(environ, endpoint=address).target.address == address
    assert access(environ, client_options={"api_endpoint": address}).target.address == address
    assert caplog.records == []


CLIENTS = (
    PublisherClient,
    AsyncPublisherClient,
    SubscriberClient,
    AsyncSubscriberClient,
    TopicAdminClient,
    SchemaServiceClient,
)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_class_connects_to_the_emulator_named_by_pubsub_emulator_host(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials for Google are not needed there, and not used."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:3")
    made = client(endpoint="pubsub.googleapis.com:443", credentials=TOKEN)
    assert (getattr(made, "target", None) or made.admin.target) == "localhost:3"


def test_a_spark_sink_connects_to_the_emulator_named_by_pubsub_emulator_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:3")
    given = {"topic": "projects/p/topics/orders", "endpoint": "pubsub.googleapis.com:443"}
    assert SinkOptions.parse(given).access.target == plain("localhost:3")
