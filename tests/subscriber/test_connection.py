"""Where the client connects, in plain text or with TLS, and which token it sends."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.oauth2.credentials import Credentials

from subscriber.connection import WINDOW_BYTES, Target, channel_options, locate

GOOGLE = Target("pubsub.googleapis.com:443", plaintext=False)
# google-auth's constructors ship without annotations.
ANONYMOUS: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
TOKEN: Any = Credentials("token")  # type: ignore[no-untyped-call]
TLS = grpc.ssl_channel_credentials()


def plain(address: str) -> Target:
    return Target(address, plaintext=True)


def secure(address: str) -> Target:
    return Target(address, plaintext=False)


@pytest.mark.parametrize(
    ("given", "environment", "target"),
    [
        # The address: explicit before the environment before Google's.
        ({}, "", GOOGLE),
        ({}, "localhost:8085", plain("localhost:8085")),
        ({"endpoint": "far:1"}, "localhost:8085", secure("far:1")),
        ({"client_options": {"api_endpoint": "far:1"}}, "localhost:1", secure("far:1")),
        ({"client_options": ClientOptions(api_endpoint="far")}, "", secure("far:443")),
        ({"client_options": {}}, "host:1", plain("host:1")),
        # A scheme settles it.
        ({"endpoint": "http://far:1"}, "", plain("far:1")),
        ({"endpoint": "http://far"}, "", plain("far:80")),
        ({"endpoint": "http://far:1", "credentials": TOKEN}, "", plain("far:1")),
        ({"endpoint": "https://localhost:1/"}, "", secure("localhost:1")),
        ({"endpoint": "https://far:1", "credentials": ANONYMOUS}, "", secure("far:1")),
        ({}, "http://host:1", plain("host:1")),
        ({}, "https://host:1", secure("host:1")),
        # The environment means a broker in plain text, whatever production code passes.
        ({"credentials": TOKEN, "channel_credentials": TLS}, "host:1", plain("host:1")),
        # Anonymous, or nothing said about this machine.
        ({"endpoint": "far:1", "credentials": ANONYMOUS}, "", plain("far:1")),
        ({"endpoint": "localhost:1"}, "", plain("localhost:1")),
        ({"endpoint": "127.0.1.1:1"}, "", plain("127.0.1.1:1")),
        ({"endpoint": "[::1]:1"}, "", plain("[::1]:1")),
        ({"endpoint": "localhost:1", "credentials": TOKEN}, "", secure("localhost:1")),
        ({"endpoint": "localhost.evil.com:1"}, "", secure("localhost.evil.com:1")),
        ({"endpoint": "127.evil.com:1"}, "", secure("127.evil.com:1")),
        # TLS when asked for.
        ({"endpoint": "localhost:1", "channel_credentials": TLS}, "", secure("localhost:1")),
        (
            {"endpoint": "far:1", "channel_credentials": TLS, "credentials": ANONYMOUS},
            "",
            secure("far:1"),
        ),
        ({"credentials": TOKEN}, "", GOOGLE),
    ],
)
def test_address_and_encryption_are_decided(
    given: dict[str, Any], environment: str, target: Target
) -> None:
    """By the rules that `locate` states."""
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
        ({"endpoint": "a:1", "client_options": {"api_endpoint": "a:1"}}, "", "the same thing"),
        ({"client_options": {"quota_project_id": "p"}}, "", "only api_endpoint .* not quota_proj"),
    ],
)
def test_what_cannot_be_an_address_is_refused(
    given: dict[str, Any], environment: str, text: str
) -> None:
    """The error names where the address came from."""
    with pytest.raises(ValueError, match=text):
        locate(**given, environ={"PUBSUB_EMULATOR_HOST": environment})


def test_a_port_alone_is_no_address() -> None:
    """Named, rather than an error of a regular expression."""
    port: Any = 8085
    with pytest.raises(TypeError, match="endpoint is 8085; it must be a str"):
        locate(endpoint=port, environ={})


def test_only_remote_connections_are_kept_alive_by_pings() -> None:
    """The rest of the settings is the same everywhere."""
    remote = dict(channel_options(GOOGLE))
    local = dict(channel_options(plain("localhost:1")))
    assert remote.pop("grpc.keepalive_time_ms") == 30_000
    # Nor is one without a call kept, which pings are not for: a router may have forgotten it.
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


def test_a_window_is_as_large_as_its_streams_may_be_behind() -> None:
    """A reader that stands still has no more than that in memory, so watches have a small one."""
    target = plain("localhost:1")
    assert dict(channel_options(target))["grpc.http2.lookahead_bytes"] == WINDOW_BYTES
    options = dict(channel_options(target, 65_536))
    assert options["grpc.http2.lookahead_bytes"] == 65_536
    assert options["grpc.http2.bdp_probe"] == 0
