"""Address and credentials of a server, and the channel options of gRPC.

`locate` chooses the address, and `access_of` the token and the certificates, from the arguments and
the environment, without network access. `security_of` and `open_channel` apply the choice.
google-auth is imported only if Google's credentials are needed, because the import would cost every
program with a local broker a tenth of a second.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import grpc

from pullstream_protocol.errors import Unauthenticated

from .local_errors import NO_TOKEN, NO_TOKEN_NOW

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

_log = logging.getLogger("pullstream.connection")

GOOGLE_ENDPOINT = "pubsub.googleapis.com:443"
EMULATOR_VARIABLE = "PUBSUB_EMULATOR_HOST"
TOKEN_VARIABLE = "PULLSTREAM_TOKEN"
CA_VARIABLE = "PULLSTREAM_CA"
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
# Digits only: 127.example.com is a public name.
_LOOPBACK_ADDRESS = re.compile(r"127(\.\d{1,3}){3}|\[::1\]")
# Visible ASCII without spaces, as HTTP headers allow.
_TOKEN = re.compile(r"[!-~]+")


class ClientOptions(Protocol):
    """The part of `google.api_core.client_options.ClientOptions` that the SDK reads."""

    @property
    def api_endpoint(self) -> str | None:
        """The address of the server; None for the default."""


class BrokerArguments(TypedDict, total=False):
    """The arguments with a broker's address and the credentials for it; see `ConnectingClient`."""

    endpoint: str | None
    token: str | None
    ca: str | os.PathLike[str] | None
    cert: str | os.PathLike[str] | None
    key: str | os.PathLike[str] | None


class ConnectionArguments(BrokerArguments, total=False):
    """The arguments of every client's constructor, except `channel`; see `ConnectingClient`."""

    credentials: Credentials | None
    client_options: ClientOptions | Mapping[str, Any] | None
    channel_credentials: grpc.ChannelCredentials | None


class ClientArguments(ConnectionArguments, total=False):
    """All arguments of `ConnectingClient`, for clients that have others besides them."""

    channel: grpc.Channel | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server.

    Attributes:
        address: `host:port`.
        plaintext: Whether connections use no TLS.
    """

    address: str
    plaintext: bool

    @property
    def is_loopback(self) -> bool:
        """Whether the server runs on this machine."""
        return _is_loopback(self.address.rpartition(":")[0])


def _is_loopback(host: str) -> bool:
    return host == "localhost" or _LOOPBACK_ADDRESS.fullmatch(host) is not None


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The address of a server and the credentials for it. Spark pickles it for its executors.

    Attributes:
        target: The address.
        token: Bearer token for every call. None: Google's credentials, if there are any.
        ca: Trusted certificates as PEM. None: the system's.
        cert: Client certificate as PEM, or None.
        key: Key of the client certificate as PEM, or None.
    """

    target: Endpoint
    token: str | None = field(default=None, repr=False)
    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


def access_of(
    *,
    endpoint: str | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    client_options: ClientOptions | Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    channel_credentials: grpc.ChannelCredentials | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ServerAccess:
    """Choose the address and the credentials, and read the PEM files.

    `locate` describes the choice of the address. `ca` and `cert` enable TLS. PULLSTREAM_TOKEN and
    PULLSTREAM_CA are ignored for Google's own servers, which must not receive a broker's token.

    Args:
        endpoint: Address; see `locate`.
        token: Bearer token. Default: the environment variable PULLSTREAM_TOKEN.
        ca: Path of a PEM file with the trusted certificates. Default: the environment variable
            PULLSTREAM_CA.
        cert: Path of a PEM file with the client certificate. Requires `key`.
        key: Path of a PEM file with the key of `cert`.
        client_options: Options with an address; see `locate`.
        credentials: Credentials of google-auth.
        channel_credentials: TLS settings of gRPC, instead of `ca`, `cert` and `key`.
        environ: The environment variables.

    Raises:
        ValueError, TypeError: As for `locate`. Also, a token is malformed or would be sent in plain
            text to another machine, arguments exclude each other, or a file holds no PEM.
        OSError: A file cannot be read.
    """
    if token is not None and credentials is not None:
        raise ValueError("token and credentials exclude each other: pass one of them")
    if channel_credentials is not None and (ca, cert, key) != (None, None, None):
        raise ValueError("channel_credentials exclude ca, cert and key: pass one or the other")
    if (cert is None) != (key is None):
        given, missing = ("key", "cert") if cert is None else ("cert", "key")
        raise ValueError(f"{given} requires {missing}: a client certificate needs both files")
    scheme, address, _ = _address(endpoint, client_options, environ)
    source = "token"
    if not is_google(address):
        if token is None and credentials is None:
            token, source = environ.get(TOKEN_VARIABLE) or None, TOKEN_VARIABLE
        if ca is None and channel_credentials is None and scheme != "http":
            ca = environ.get(CA_VARIABLE) or None
    target = locate(
        endpoint=endpoint,
        client_options=client_options,
        credentials=credentials,
        channel_credentials=channel_credentials,
        tls=ca is not None or cert is not None,
        environ=environ,
    )
    if token is not None:
        if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
            # The text must not contain the value, which is a secret.
            raise ValueError(f"{source} must consist of visible ASCII characters, without spaces")
        if target.plaintext and not target.is_loopback:
            raise ValueError(
                f"{source} would be sent in plain text to {target.address}, where others on the "
                f"network can read it. Give the broker's certificate (ca, --ca, {CA_VARIABLE}), or "
                f"write the address as https://{target.address} if this system trusts its issuer"
            )
    return ServerAccess(
        target,
        token,
        ca=_pem("ca", ca),
        cert=_pem("cert", cert),
        key=_pem("key", key),
    )


def read_token(path: str | os.PathLike[str]) -> str:
    """Return the token in a file that contains only the token.

    Raises:
        ValueError: The file contains no token.
        OSError: The file cannot be read.
    """
    token = Path(path).read_text(encoding="ascii", errors="replace").strip()
    if _TOKEN.fullmatch(token) is None:
        raise ValueError(f"{os.fspath(path)!r} contains no token of visible ASCII characters")
    return token


def _pem(argument: str, path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    content = Path(path).read_bytes()
    if b"-----BEGIN " not in content:
        raise ValueError(f"{argument} is {os.fspath(path)!r}, which is not a PEM file")
    return content


def locate(
    *,
    endpoint: str | None = None,
    client_options: ClientOptions | Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    channel_credentials: grpc.ChannelCredentials | None = None,
    tls: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Choose the server's address, and whether to use TLS.

    The address is `endpoint` or the `api_endpoint` of `client_options`, else the environment
    variable PUBSUB_EMULATOR_HOST, else Google's address. The variable also takes precedence over an
    address of Google in the program, with a warning, so that a test does not reach Google Cloud.
    The scheme `http://` or `https://` decides about TLS. Without a scheme, the connection is in
    plain text in each of these cases:

    - The address comes from PUBSUB_EMULATOR_HOST.
    - The credentials are anonymous, and there are no `channel_credentials`.
    - There are no credentials of either kind, and the address is on this machine.

    Args:
        endpoint: `host:port`, with or without a scheme.
        client_options: Options with an `api_endpoint`.
        credentials: Credentials of google-auth.
        channel_credentials: TLS settings of gRPC.
        tls: Use TLS for every address.
        environ: The environment variables.

    Raises:
        ValueError: An address is not of the form `host:port`, there are two addresses,
            `client_options` contains something other than `api_endpoint`, or `tls` is combined with
            `http://`.
        TypeError: The address is not a str.
    """
    scheme, address, is_emulator = _address(endpoint, client_options, environ)
    if tls and scheme == "http":
        raise ValueError(
            f"ca and cert require TLS, but the address http://{address} means plain text: "
            f"write https://{address}"
        )
    if tls or scheme:
        return Endpoint(address, plaintext=scheme == "http")
    local = Endpoint(address, plaintext=True)
    if is_emulator or (
        channel_credentials is None
        and (is_anonymous(credentials) or (credentials is None and local.is_loopback))
    ):
        return local
    return Endpoint(address, plaintext=False)


def _address(
    endpoint: str | None,
    client_options: ClientOptions | Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> tuple[str | None, str, bool]:
    """Return the scheme or None, `host:port`, and whether both come from PUBSUB_EMULATOR_HOST."""
    explicit = _explicit_endpoint(endpoint, client_options)
    emulator = environ.get(EMULATOR_VARIABLE, "")
    if explicit is not None:
        if not isinstance(explicit, str):
            raise TypeError(f"endpoint is {explicit!r}; it must be a str of the form host:port")
        # On this machine servers are brokers, which have no well-known port.
        scheme, address = _split("endpoint", explicit, needs_port=_is_loopback(explicit))
        if not (emulator and is_google(address)):
            return scheme, address, False
        _warn_of_override(explicit, emulator)
    if emulator:
        return *_split(EMULATOR_VARIABLE, emulator, needs_port=True), True
    return "https", GOOGLE_ENDPOINT, False


def is_google(address: str) -> bool:
    """Return whether `host:port` is a server of Google Cloud."""
    return address.rpartition(":")[0].lower().endswith(".googleapis.com")


# Once for each pair in a process: a program has many clients.
@cache
def _warn_of_override(endpoint: str, emulator: str) -> None:
    _log.warning(
        "%s=%s takes precedence over the endpoint %r in the program, so that a test does not reach "
        "Google Cloud; unset the variable to use the endpoint",
        EMULATOR_VARIABLE,
        emulator,
        endpoint,
    )


def channel_options(target: Endpoint, window_bytes: int = WINDOW_BYTES) -> list[tuple[str, int]]:
    """Return gRPC's options for a connection to `target`; see `open_channel`."""
    options = [
        # The server enforces its limits. A limit on this side would only refuse messages that the
        # server allows.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        # The trailers list failed exactly-once acknowledgements, with one entry for each ack ID.
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        # Otherwise the clients of a process would share a connection and its flow control window.
        ("grpc.use_local_subchannel_pool", 1),
        # A fixed size of the window, which limits how much of a stream gRPC buffers before the SDK
        # reads it. Otherwise gRPC would measure it with a ping for nearly every response.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", window_bytes),
        # By default, gRPC's pauses grow to two minutes, so a client would not notice the end of an
        # outage for that time.
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _LAST_RECONNECT_MS),
    ]
    if target.is_loopback:
        # gRPC would connect through a configured proxy, which could read the token.
        options.append(("grpc.enable_http_proxy", 0))
    else:
        # Routers drop silent connections. A broker on this machine is not behind a router.
        options.append(("grpc.keepalive_time_ms", _KEEPALIVE_MS))
        # gRPC sends pings only while a call is open. So a connection without calls is closed: if a
        # router had dropped it, the next acknowledgement would notice that only after about a
        # minute.
        options.append(("grpc.client_idle_timeout_ms", _KEEPALIVE_MS))
    return options


def security_of(
    access: ServerAccess,
    *,
    credentials: Credentials | None = None,
    channel_credentials: grpc.ChannelCredentials | None = None,
) -> grpc.ChannelCredentials | None:
    """Return the channel credentials for all connections to a server.

    Google's application default credentials are used only if there is neither a token nor a
    certificate, because both belong to brokers.

    Args:
        access: The address and the credentials, from `access_of`.
        credentials: Credentials of google-auth.
        channel_credentials: TLS settings of gRPC.

    Returns:
        The credentials. None: the connections are in plain text.

    Raises:
        Unauthenticated: The server needs credentials, none were given, and none are found.
    """
    if access.target.plaintext:
        return None
    tls = channel_credentials or grpc.ssl_channel_credentials(access.ca, access.key, access.cert)
    if access.token is not None:
        return grpc.composite_channel_credentials(
            tls, grpc.access_token_call_credentials(access.token)
        )
    is_broker = credentials is None and (access.ca or access.cert)
    if is_broker or is_anonymous(credentials):
        return tls
    return grpc.composite_channel_credentials(tls, _call_credentials(credentials))


def open_channel(
    access: ServerAccess,
    security: grpc.ChannelCredentials | None,
    window_bytes: int = WINDOW_BYTES,
) -> grpc.Channel:
    """Return a channel to a server. It connects when the first call is made.

    Args:
        access: The address and the credentials, from `access_of`.
        security: The result of `security_of`.
        window_bytes: Approximate number of bytes of a stream that gRPC buffers before the SDK reads
            them. Default: 4 MiB.
    """
    target = access.target
    options = channel_options(target, window_bytes)
    if security is not None:
        return grpc.secure_channel(target.address, security, options)
    channel = grpc.insecure_channel(target.address, options)
    if access.token is None:
        return channel
    # gRPC does not send call credentials in plain text, not even on the same machine.
    return grpc.intercept_channel(channel, _BearerToken(access.token))


class _BearerToken(
    grpc.UnaryUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
):
    """Adds the token to the metadata of every call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _intercept(self, continuation: Any, details: grpc.ClientCallDetails, request: Any) -> Any:
        return continuation(_WithHeader(details, self._header), request)

    intercept_unary_unary: Any = _intercept
    intercept_unary_stream: Any = _intercept
    intercept_stream_stream: Any = _intercept


class _WithHeader(grpc.ClientCallDetails):
    """The details of a call, with an additional header."""

    def __init__(self, details: grpc.ClientCallDetails, header: tuple[str, str]) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = (*(details.metadata or ()), header)
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


def is_anonymous(credentials: Credentials | None) -> bool:
    """Return whether `credentials` are google-auth's AnonymousCredentials.

    None is not anonymous: it stands for the application default credentials.
    """
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
        raise ValueError("endpoint and client_options.api_endpoint exclude each other: pass one")
    return endpoint if option is None else option


def _split(source: str, text: str, *, needs_port: bool = False) -> tuple[str | None, str]:
    """Return the scheme or None, and `host:port`. Errors name the address `source`."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or (needs_port and match["port"] is None):
        raise ValueError(f"{source} must have the form host:port, got {text!r}")
    port = match["port"] or ("80" if match["scheme"] == "http" else "443")
    return match["scheme"], f"{match['host']}:{port}"


def _call_credentials(credentials: Credentials | None) -> grpc.CallCredentials:
    """Return gRPC credentials that add a valid token to every call."""
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
                f"{error} To use a broker without TLS, set {EMULATOR_VARIABLE}=host:port; to use "
                f"one with TLS, give its certificate (ca, --ca or {CA_VARIABLE}) or its token "
                f"(token, --token or {TOKEN_VARIABLE})."
            ) from error
    # google-auth declares itself typed, but these two have no annotations.
    scoped = with_scopes_if_required(credentials, SCOPES)  # type: ignore[no-untyped-call]
    plugin = AuthMetadataPlugin(scoped, Request())  # type: ignore[no-untyped-call]
    return grpc.metadata_call_credentials(AccessTokens(plugin))


class AccessTokens(grpc.AuthMetadataPlugin):
    """Adds an access token to every call, as google-auth's plugin does.

    gRPC calls it for each call, on another thread than the caller.

    Args:
        plugin: google-auth's plugin.
    """

    def __init__(self, plugin: grpc.AuthMetadataPlugin) -> None:
        self._plugin = plugin

    def __call__(
        self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        """Pass the headers of a call to `callback`, or an error whose text has the reason."""
        try:
            self._plugin(context, callback)
        except Exception as error:
            reason = NO_TOKEN_NOW if may_pass(error) else NO_TOKEN
            callback((), Exception(f"{reason}{type(error).__name__}: {error}"))


def may_pass(error: BaseException) -> bool:
    """Return whether a later attempt to get a token may succeed.

    google-auth marks some errors as retryable. It raises TransportError if the token server cannot
    be reached, and for credentials of Compute Engine and GKE a RefreshError with that as the cause.
    """
    from google.auth.exceptions import TransportError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TransportError) or getattr(cause, "retryable", False):
            return True
        cause = cause.__cause__
    return False
