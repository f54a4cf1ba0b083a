"""Where to connect, and how.

`locate` decides, from what the caller said and from the environment, without touching the network;
`security_of` and `open_channel` carry the decision out. google-auth is imported only when a token
is needed: it would cost every program with a local broker a tenth of a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from protocol.errors import Unauthenticated

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

GOOGLE_ENDPOINT = "pubsub.googleapis.com:443"
EMULATOR_VARIABLE = "PUBSUB_EMULATOR_HOST"
SCOPES = (
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/pubsub",
)

_KEEPALIVE_MS = 30_000
_FIRST_RECONNECT_MS = 200
_LAST_RECONNECT_MS = 5_000
WINDOW_BYTES = 4 * 1024 * 1024
_MAX_METADATA_BYTES = 4 * 1024 * 1024
_ENDPOINT = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::(?P<port>\d{1,5}))?/?"
)
# Digits only: 127.example.com is a name in the world.
_LOOPBACK_ADDRESS = re.compile(r"127(\.\d{1,3}){3}|\[::1\]")


class ClientOptions(Protocol):
    """What is read of a `google.api_core.client_options.ClientOptions`."""

    @property
    def api_endpoint(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A server's address, `host:port`, and whether it is spoken to without TLS."""

    address: str
    plaintext: bool

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.address.rpartition(":")[0])


def _is_loopback(host: str) -> bool:
    return host == "localhost" or _LOOPBACK_ADDRESS.fullmatch(host) is not None


def locate(
    *,
    endpoint: str | None = None,
    client_options: ClientOptions | Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    channel_credentials: grpc.ChannelCredentials | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Target:
    """Decide where to connect, and whether to encrypt.

    The address is `endpoint` or the `api_endpoint` of `client_options`, else the environment's
    PUBSUB_EMULATOR_HOST, else Google's. A scheme, `http://` or `https://`, settles whether TLS is
    used. Without one, the connection is in plain text when the address came from
    PUBSUB_EMULATOR_HOST, or, unless `channel_credentials` ask for TLS, when the credentials are
    anonymous or when there are none and the address is this machine's own.

    Raises:
        ValueError: an address is not of the form `host:port`, there are two, or `client_options`
            holds something else than `api_endpoint`.
        TypeError: the address is no str.
    """
    explicit = _explicit_endpoint(endpoint, client_options)
    emulator = environ.get(EMULATOR_VARIABLE, "")
    if explicit is not None:
        if not isinstance(explicit, str):
            raise TypeError(f"endpoint is {explicit!r}; it must be a str of the form host:port")
        # On this machine there are brokers, none of which is at a well-known port.
        scheme, address = _split("endpoint", explicit, needs_port=_is_loopback(explicit))
    elif emulator:
        scheme, address = _split(EMULATOR_VARIABLE, emulator, needs_port=True)
        scheme = scheme or "http"
    else:
        scheme, address = "https", GOOGLE_ENDPOINT

    if scheme:
        return Target(address, plaintext=scheme == "http")
    local = Target(address, plaintext=True)
    if channel_credentials is None and (
        is_anonymous(credentials) or (credentials is None and local.is_loopback)
    ):
        return local
    return Target(address, plaintext=False)


def channel_options(target: Target, window_bytes: int = WINDOW_BYTES) -> list[tuple[str, int]]:
    """gRPC's settings for a connection to `target`; see `open_channel`."""
    options = [
        # The server's limits hold; a second set of ours would only refuse what it allows.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        # Failed exactly-once acknowledgements are listed in trailers, one entry for each id.
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        # Clients of one process would share a connection, and with it its flow control window.
        ("grpc.use_local_subchannel_pool", 1),
        # A fixed window: what gRPC may hold of a stream before we read it. It would else be
        # measured by a ping for nearly every response.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", window_bytes),
        # gRPC's own pauses grow to two minutes: long after an outage is over nothing would know it.
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _LAST_RECONNECT_MS),
    ]
    if not target.is_loopback:
        # Routers forget silent connections; a broker on this machine has none in between.
        options.append(("grpc.keepalive_time_ms", _KEEPALIVE_MS))
        # Pings are for calls that are open. A connection without one is not kept: the next
        # acknowledgement would find out, in a minute or so, that a router has forgotten it.
        options.append(("grpc.client_idle_timeout_ms", _KEEPALIVE_MS))
    return options


def security_of(
    target: Target,
    *,
    credentials: Credentials | None = None,
    channel_credentials: grpc.ChannelCredentials | None = None,
) -> grpc.ChannelCredentials | None:
    """What connections to `target` are secured by: all of them, so that credentials are looked for
    once. None: by nothing, it is spoken to in plain text.

    With TLS, `credentials` default to the application default credentials, and
    `channel_credentials` to the system's root certificates. Anonymous credentials send no token.

    Raises:
        Unauthenticated: a token is needed and there are no application default credentials.
    """
    if target.plaintext:
        return None
    security = channel_credentials or grpc.ssl_channel_credentials()
    if is_anonymous(credentials):
        return security
    return grpc.composite_channel_credentials(security, _call_credentials(credentials))


def open_channel(
    target: Target, security: grpc.ChannelCredentials | None, window_bytes: int = WINDOW_BYTES
) -> grpc.Channel:
    """A channel to `target`; it connects when the first call is made.

    Args:
        security: what `security_of` says.
        window_bytes: about how much gRPC takes in of a stream before we read it.
    """
    options = channel_options(target, window_bytes)
    if security is None:
        return grpc.insecure_channel(target.address, options)
    return grpc.secure_channel(target.address, security, options)


def is_anonymous(credentials: Credentials | None) -> bool:
    """Whether `credentials` are google-auth's AnonymousCredentials. None is not: it means ADC."""
    if credentials is None:
        return False
    from google.auth.credentials import AnonymousCredentials

    return isinstance(credentials, AnonymousCredentials)


def _explicit_endpoint(
    endpoint: str | None, client_options: ClientOptions | Mapping[str, Any] | None
) -> str | None:
    if client_options is None:
        return endpoint
    given = client_options if isinstance(client_options, Mapping) else vars(client_options)
    unknown = sorted(k for k, v in given.items() if v is not None and k != "api_endpoint")
    if unknown:
        raise ValueError(
            f"client_options: only api_endpoint is supported, not {', '.join(unknown)}; "
            "pass credentials= or channel_credentials= to the client"
        )
    option: str | None = given.get("api_endpoint")
    if option is not None and endpoint is not None:
        raise ValueError("endpoint and client_options.api_endpoint are the same thing: pass one")
    return endpoint if option is None else option


def _split(source: str, text: str, *, needs_port: bool = False) -> tuple[str | None, str]:
    """The scheme, if any, and `host:port` of an address named `source` in errors."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or (needs_port and match["port"] is None):
        raise ValueError(f"{source} must have the form host:port, got {text!r}")
    port = match["port"] or ("80" if match["scheme"] == "http" else "443")
    return match["scheme"], f"{match['host']}:{port}"


def _call_credentials(credentials: Credentials | None) -> grpc.CallCredentials:
    """What puts a fresh token on every call."""
    import google.auth
    from google.auth.credentials import with_scopes_if_required
    from google.auth.exceptions import DefaultCredentialsError
    from google.auth.transport.grpc import AuthMetadataPlugin
    from google.auth.transport.requests import Request

    if credentials is None:
        try:
            credentials, _ = google.auth.default(scopes=SCOPES)
        except DefaultCredentialsError as error:
            raise Unauthenticated(
                f"{error} To use a broker without credentials, set {EMULATOR_VARIABLE}=host:port."
            ) from error
    # google-auth says that it is typed, but these two are not.
    scoped = with_scopes_if_required(credentials, SCOPES)  # type: ignore[no-untyped-call]
    plugin = AuthMetadataPlugin(scoped, Request())  # type: ignore[no-untyped-call]
    return grpc.metadata_call_credentials(plugin)
