"""Tokens and TLS, end to end: application default credentials against a broker that wants them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from google.auth.credentials import AnonymousCredentials

from emulator import Emulator
from protocol.clock import SYSTEM_CLOCK
from protocol.errors import Unauthenticated
from subscriber.topics import TopicAdminClient

TOPIC = "projects/p/topics/orders"
TOKEN = "token-of-the-test"


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def certificate(key: rsa.RSAPrivateKey) -> bytes:
    """A certificate for 127.0.0.1 that nobody signed but itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.now(), datetime.timezone.utc)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


@dataclass
class TokenServer:
    """Gives out TOKEN for a signed assertion, as Google's token endpoint does."""

    url: str
    refuses: bool = False
    grants: list[dict[str, list[str]]] = field(default_factory=list)


@pytest.fixture
def token_server() -> Iterator[TokenServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.grants.append(parse_qs(body.decode()))
            answer = (
                {"error": "invalid_grant", "error_description": "account is gone"}
                if state.refuses
                else {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
            )
            self.send_response(400 if state.refuses else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        state = TokenServer(f"http://127.0.0.1:{server.server_port}/token")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield state
        server.shutdown()
        thread.join()


class WantsToken(grpc.aio.ServerInterceptor):
    """Lets through only calls with the right token."""

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        sent = dict(handler_call_details.invocation_metadata)
        if sent.get("authorization") == f"Bearer {TOKEN}":
            return await continuation(handler_call_details)

        async def refuse(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is needed")

        return grpc.unary_unary_rpc_method_handler(refuse)


@pytest.fixture
def broker(key: rsa.RSAPrivateKey, certificate: bytes) -> Iterator[Emulator]:
    server = grpc.ssl_server_credentials([(pem(key), certificate)])
    with Emulator(server_credentials=server, interceptors=[WantsToken()]) as emulator:
        yield emulator


@pytest.fixture
def account(key: rsa.RSAPrivateKey, token_server: TokenServer) -> dict[str, str]:
    """A service account's key, as Google gives it out."""
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": pem(key).decode(),
        "client_email": "tester@p.iam.gserviceaccount.com",
        "token_uri": token_server.url,
    }


@pytest.fixture
def roots(certificate: bytes) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(certificate)


@pytest.fixture
def default_account(
    account: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Makes `account` the application default credentials."""
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))


@pytest.mark.usefixtures("default_account")
def test_default_credentials_are_sent_over_tls(
    broker: Emulator, roots: grpc.ChannelCredentials, token_server: TokenServer
) -> None:
    """The token is got once, for all calls."""
    with TopicAdminClient(endpoint=broker.endpoint, channel_credentials=roots) as client:
        client.create_topic(name=TOPIC)
        assert client.get_topic(topic=TOPIC).name == TOPIC
    (grant,) = token_server.grants
    assert grant["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


def test_anonymous_calls_over_tls_send_no_token(
    broker: Emulator, roots: grpc.ChannelCredentials
) -> None:
    """A broker that wants one refuses them."""
    nobody: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    with (
        TopicAdminClient(
            endpoint=broker.endpoint, channel_credentials=roots, credentials=nobody
        ) as client,
        pytest.raises(Unauthenticated, match="a token is needed"),
    ):
        client.create_topic(name=TOPIC)


@pytest.mark.usefixtures("default_account")
def test_a_token_that_is_refused_ends_the_call_as_unauthenticated(
    broker: Emulator, roots: grpc.ChannelCredentials, token_server: TokenServer
) -> None:
    """At once, although gRPC calls it UNAVAILABLE, and this is a read, which is tried again."""
    token_server.refuses = True
    with (
        TopicAdminClient(endpoint=broker.endpoint, channel_credentials=roots) as client,
        pytest.raises(Unauthenticated, match="invalid_grant"),
    ):
        client.get_topic(topic=TOPIC)


def test_a_client_is_made_from_a_service_account(
    broker: Emulator, roots: grpc.ChannelCredentials, account: dict[str, str], tmp_path: Path
) -> None:
    """From the parsed key or from its file, under both of the official names."""
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    options = {"endpoint": broker.endpoint, "channel_credentials": roots}
    with TopicAdminClient.from_service_account_info(account, **options) as client:
        client.create_topic(name=TOPIC)
    with TopicAdminClient.from_service_account_file(file, **options) as client:
        assert client.get_topic(topic=TOPIC).name == TOPIC
    with TopicAdminClient.from_service_account_json(str(file), **options) as client:
        assert client.get_topic(topic=TOPIC).name == TOPIC


def test_missing_default_credentials_are_said_when_the_client_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message tells how to do without."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    with pytest.raises(Unauthenticated, match=r"none.json.* set PUBSUB_EMULATOR_HOST=host:port"):
        TopicAdminClient()
