"""Tokens and TLS, end to end: application default credentials against a protected broker."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
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
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import RefreshError, TransportError

from pullstream import (
    AsyncPublisherClient,
    AsyncSubscriberClient,
    ChannelMessage,
    Message,
    PublisherClient,
    SubscriberClient,
)
from pullstream.feeds import Frame, Records
from pullstream.topics import TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import Unauthenticated
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

TOPIC = "projects/p/topics/orders"
TOKEN = "token-of-the-test"

# The arguments with which a client connects to a broker.
Connection = dict[str, Any]
Stocked = Callable[[Any], Connection]


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
    """Return a self-signed certificate for 127.0.0.1."""
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
    """Issues TOKEN for a signed assertion, as Google's token endpoint does."""

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
    """Accepts only calls with the right token."""

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
    """Return a service account's key, as Google issues it."""
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": pem(key).decode(),
        "client_email": "tester@p.iam.gserviceaccount.com",
        "token_uri": token_server.url,
    }


@pytest.fixture
def connection(broker: Emulator, certificate: bytes) -> Connection:
    """Return the arguments with which a client connects to the broker over TLS."""
    roots = grpc.ssl_channel_credentials(certificate)
    return {"endpoint": broker.endpoint, "channel_credentials": roots}


@pytest.fixture
def default_account(
    account: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make `account` the application default credentials."""
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))


@pytest.mark.usefixtures("default_account")
def test_a_client_sends_the_token_of_default_credentials_over_tls(
    connection: Connection, token_server: TokenServer
) -> None:
    """The token is requested once for all calls."""
    with TopicAdminClient(**connection) as client:
        client.create_topic(name=TOPIC)
        assert client.get_topic(topic=TOPIC).name == TOPIC
    (grant,) = token_server.grants
    assert grant["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


def test_clients_with_anonymous_credentials_send_no_token_over_tls(connection: Connection) -> None:
    """A broker that requires a token refuses them."""
    nobody: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    with (
        TopicAdminClient(**connection, credentials=nobody) as client,
        pytest.raises(Unauthenticated, match="a token is needed"),
    ):
        client.create_topic(name=TOPIC)


@pytest.mark.usefixtures("default_account")
def test_a_call_whose_token_is_refused_raises_unauthenticated_without_a_retry(
    connection: Connection, token_server: TokenServer
) -> None:
    """The error comes at once. gRPC calls it UNAVAILABLE, for which this read would be retried."""
    token_server.refuses = True
    with (
        TopicAdminClient(**connection) as client,
        pytest.raises(Unauthenticated, match="invalid_grant"),
    ):
        client.get_topic(topic=TOPIC)


def test_a_client_can_be_created_from_a_service_account_key_in_a_file_or_a_dict(
    connection: Connection, account: dict[str, str], tmp_path: Path
) -> None:
    """The key is parsed or in a file, under both of the official names."""
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    with TopicAdminClient.from_service_account_info(account, **connection) as client:
        client.create_topic(name=TOPIC)
    with TopicAdminClient.from_service_account_file(file, **connection) as client:
        assert client.get_topic(topic=TOPIC).name == TOPIC
    with TopicAdminClient.from_service_account_json(str(file), **connection) as client:
        assert client.get_topic(topic=TOPIC).name == TOPIC


def test_creating_a_client_without_default_credentials_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how to work without them."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    with pytest.raises(Unauthenticated, match=r"none.json.* set PUBSUB_EMULATOR_HOST=host:port"):
        TopicAdminClient()


# ---- a token that cannot be had -----------------------------------------------------------------


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


# google-auth declares itself typed, but its errors have no annotations.
transport_error: Callable[..., Exception] = TransportError
refresh_error: Callable[..., Exception] = RefreshError

PASSING = {
    "transport": transport_error("the token server cannot be reached"),
    # As google-auth reports a metadata server of Compute Engine or GKE that does not answer.
    "metadata server": caused(refresh_error("no answer"), transport_error("no answer")),
    "retryable": refresh_error("the token server is overloaded", retryable=True),
}
LASTING = {
    "invalid grant": refresh_error("invalid_grant: the account is gone"),
    "wrong scope": refresh_error("invalid_scope: not a scope"),
    "another error": ValueError("the key cannot be parsed"),
}


class OutOfOrder(Credentials):
    """Credentials that give a token after some failed attempts."""

    def __init__(self, error: Exception, failures: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._error = error
        self.failures = failures

    def refresh(self, request: object) -> None:
        if self.failures:
            self.failures -= 1
            raise self._error
        self.token = TOKEN


Work = Callable[[Connection], object]


def publish_one(connection: Connection) -> object:
    with PublisherClient(**connection) as publisher:
        return publisher.publish(TOPIC, b"x").result(TIMEOUT)


def publish_one_async(connection: Connection) -> object:
    async def main() -> object:
        async with AsyncPublisherClient(**connection) as publisher:
            return await publisher.publish(TOPIC, b"x")

    return asyncio.run(main())


def create_one(connection: Connection) -> object:
    with TopicAdminClient(**connection) as client:
        return client.create_topic(name=f"{TOPIC}-2")


def get_one(connection: Connection) -> object:
    with TopicAdminClient(**connection) as client:
        return client.get_topic(topic=TOPIC)


def fetch_one(connection: Connection) -> object:
    with SubscriberClient(**connection) as client:
        return client.fetch(SUBSCRIPTION, timeout=TIMEOUT, no_wait=True)


def fetch_one_async(connection: Connection) -> object:
    async def main() -> object:
        async with AsyncSubscriberClient(**connection) as client:
            return await client.fetch(SUBSCRIPTION, timeout=TIMEOUT, no_wait=True)

    return asyncio.run(main())


def subscribe_to_one(connection: Connection) -> object:
    with SubscriberClient(**connection) as client:
        known: Future[Any] = Future()
        known.set_result(
            client.subscribe(SUBSCRIPTION, lambda message: known.result(TIMEOUT).cancel())
        )
        return known.result().result(TIMEOUT)


def watch_one(connection: Connection) -> object:
    with SubscriberClient(**connection) as client:
        known: Future[Any] = Future()
        known.set_result(client.watch({TOPIC: 0}, lambda frame: known.result(TIMEOUT).cancel()))
        return known.result().result(TIMEOUT)


def follow_one(connection: Connection) -> object:
    with SubscriberClient(**connection) as client:
        known: Future[Any] = Future()
        known.set_result(client.follow(TOPIC, lambda record: known.result(TIMEOUT).cancel()))
        return known.result().result(TIMEOUT)


def listen_to_one(connection: Connection) -> object:
    over = threading.Event()
    failures: list[object] = []

    def failed(*failure: object) -> None:
        failures.append(failure)
        over.set()

    with SubscriberClient(**connection) as client:
        client.listen().subscribe(
            TOPIC,
            None,
            on_message=lambda _: None,
            on_done=lambda _: over.set(),
            on_failure=failed,
        )
        assert over.wait(TIMEOUT)
    if failures:
        raise Unauthenticated(str(failures))
    return None


ALL_WORK = [
    publish_one,
    publish_one_async,
    create_one,
    get_one,
    fetch_one,
    fetch_one_async,
    subscribe_to_one,
    watch_one,
    follow_one,
    listen_to_one,
]


@pytest.fixture
def stocked(connection: Connection) -> Stocked:
    """Return the arguments of a client with such credentials, at a broker with one message."""

    def stocked(credentials: Any) -> Connection:
        return {**connection, "credentials": credentials}

    ready = stocked(OutOfOrder(ValueError(), 0))
    with TopicAdminClient(**ready) as topics, SubscriberClient(**ready) as client:
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        client.feeds.put(TOPIC)
        topics.publish(TOPIC, [{"data": b"x"}])
    return stocked


@pytest.mark.parametrize("work", ALL_WORK)
def test_a_temporary_failure_of_the_token_server_delays_calls_and_raises_no_error(
    stocked: Stocked, work: Work
) -> None:
    """No call was sent without a token, so each may be repeated."""
    credentials = OutOfOrder(PASSING["metadata server"], 1)
    work(stocked(credentials))
    assert credentials.failures == 0


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_transient_errors_of_the_token_server_are_retried(
    stocked: Stocked, error: Exception
) -> None:
    """google-auth says which these are."""
    assert publish_one(stocked(OutOfOrder(error, 1)))


@pytest.mark.parametrize("work", ALL_WORK)
def test_calls_with_credentials_that_cannot_get_a_token_fail_without_a_retry(
    stocked: Stocked, work: Work
) -> None:
    """The error has the reason."""
    credentials = OutOfOrder(LASTING["invalid grant"], 1000)
    with pytest.raises(Unauthenticated, match=r"no access token: RefreshError: invalid_grant"):
        work(stocked(credentials))
    assert credentials.failures > 990


@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_permanent_errors_of_the_users_credentials_are_not_retried(
    stocked: Stocked, error: Exception
) -> None:
    """Such as a revoked grant, a wrong scope, and a broken key."""
    with pytest.raises(Unauthenticated, match=str(error)):
        publish_one(stocked(OutOfOrder(error, 1000)))


# ---- tokens of a broker on this machine, without TLS ---------------------------------------------

SUBSCRIPTION = "projects/p/subscriptions/billing"


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Yield a broker in plain text that requires TOKEN. A proxy is configured, but not used."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Emulator(access=Access({TOKEN: Principal("tester")})) as emulator:
        with TopicAdminClient(endpoint=emulator.endpoint, token=TOKEN) as topics:
            topics.create_topic(name=TOPIC)
        with SubscriberClient(endpoint=emulator.endpoint, token=TOKEN) as client:
            client.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        yield emulator


@pytest.fixture
def publish(guarded: Emulator) -> Iterator[Callable[[], object]]:
    """Yield a function that publishes one message."""
    with TopicAdminClient(endpoint=guarded.endpoint, token=TOKEN) as topics:
        yield lambda: topics.publish(TOPIC, [{"data": b"x"}])


def test_every_kind_of_client_call_sends_the_token_of_the_client_to_the_server(
    guarded: Emulator, publish: Callable[[], object]
) -> None:
    """The kinds include streams, waiting calls, and background calls."""
    events: list[Frame] = []
    heard: list[ChannelMessage] = []
    listening = threading.Event()
    received: list[Message] = []
    with SubscriberClient(endpoint=guarded.endpoint, token=TOKEN) as client:
        client.feeds.put(TOPIC)
        client.watch({TOPIC: 0}, events.append)
        client.listen().subscribe(
            TOPIC, None, on_message=heard.append, on_done=lambda _: listening.set()
        )
        assert listening.wait(TIMEOUT)
        assert client.fetch(SUBSCRIPTION, timeout=3, missing_ok=True) == []
        publish()
        with client.fetch(SUBSCRIPTION) as messages:
            messages[0].nack_with_response().result(TIMEOUT)
        future = client.subscribe(SUBSCRIPTION, received.append)
        eventually(lambda: bool(received and heard))
        eventually(lambda: any(isinstance(event, Records) for event in events))
        received[0].ack_with_response().result(TIMEOUT)
        assert guarded.backlog(SUBSCRIPTION) == 0
        future.cancel()
        future.result(TIMEOUT)


async def test_an_async_client_sends_the_token_of_its_token_argument_to_the_server(
    guarded: Emulator, publish: Callable[[], object]
) -> None:
    """A client that finds the token in the environment works too."""
    publish()
    async with AsyncSubscriberClient(endpoint=guarded.endpoint, token=TOKEN) as client:
        assert len(await client.fetch(SUBSCRIPTION)) == 1


def test_calls_without_the_token_that_the_broker_requires_raise_unauthenticated(
    guarded: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token from the environment is the default."""
    with SubscriberClient(endpoint=guarded.endpoint) as client, pytest.raises(Unauthenticated):
        client.get_subscription(subscription=SUBSCRIPTION)
    monkeypatch.setenv("PULLSTREAM_TOKEN", TOKEN)
    with SubscriberClient(endpoint=guarded.endpoint) as client:
        assert client.get_subscription(subscription=SUBSCRIPTION).topic == TOPIC
