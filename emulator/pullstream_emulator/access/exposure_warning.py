"""Warning for a broker that listens on more than loopback without protection."""

from __future__ import annotations

import ipaddress
import socket

from .access import Access
from .tls import Tls


def warning(host: str, tls: Tls | None, access: Access | None) -> str | None:
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
    except OSError:
        # The name does not resolve, so listening will fail with an error that says so.
        return True
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
