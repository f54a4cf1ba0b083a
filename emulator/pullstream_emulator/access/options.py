"""Access and TLS from the options with which a broker is started, and a warning without them."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import auth_file
from .access import Access, AccessError, Principal
from .tls import Tls

# Environment variable with tokens for the command line of a broker, separated by spaces.
TOKEN_VARIABLE = "PULLSTREAM_AUTH_TOKEN"


def check_token_variable(environment: Mapping[str, str]) -> None:
    """Raise AccessError if the variable for tokens is set and empty.

    click ignores an empty variable, and the broker would be open to all. But an empty variable is a
    secret that was not filled in, and its owner expects a protected broker.
    """
    if not environment.get(TOKEN_VARIABLE, "unset").strip():
        raise AccessError(
            f"{TOKEN_VARIABLE} is empty: set it to a token, or unset it for a broker without tokens"
        )


def access_from(tokens: Sequence[str], file: Path | None) -> Access | None:
    """Return access for `tokens`, which allow everything, and for the tokens in `file`.

    Returns:
        None if neither is given.

    Raises:
        AccessError: A token is empty, or is also in the file; see also `auth_file.read`.
    """
    if any(not token.strip() for token in tokens):
        raise AccessError(
            "a token must not be empty: give --auth-token a value, or leave it out for a broker "
            "without tokens"
        )
    principals = auth_file.read(file) if file is not None else {}
    if not principals.keys().isdisjoint(tokens):
        raise AccessError(
            f"{file}: one of its tokens is also given by --auth-token or {TOKEN_VARIABLE}, which "
            "allows it everything: use different tokens"
        )
    if not tokens and not principals:
        return None
    return Access({**principals, **dict.fromkeys(tokens, Principal("token"))})


def tls_from(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """Return the TLS files; None if none is given.

    Args:
        certificate: PEM file with the certificate and its chain.
        key: PEM file with its key, not encrypted.
        client_ca: PEM file with the CA of the clients; None accepts clients without certificate.

    Raises:
        AccessError: The certificate or the key is missing, or a file cannot be used.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise AccessError("TLS needs both a certificate and its key: give --tls-cert and --tls-key")
    return Tls(certificate, key, client_ca)


def exposure_warning(host: str, tls: Tls | None, access: Access | None) -> str | None:
    """Return the warning for a broker that listens on `host`; None if it is protected."""
    encrypted = tls is not None
    # A client certificate authenticates as well as a token.
    authenticated = access is not None or (tls is not None and tls.client_ca is not None)
    if (encrypted and authenticated) or _is_loopback(host):
        return None
    lacks = [
        text
        for text, given in (
            ("without TLS anybody on the network can read and change the traffic", encrypted),
            (
                "without tokens anybody who can connect to the port can do everything",
                authenticated,
            ),
        )
        if not given
    ]
    return f"listening on {host or 'every address'}, not only on this machine: {'; '.join(lacks)}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        # The name is unknown or invalid, so listening will fail with an error that says so.
        return True
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
