"""A broker that listens to more than its own machine."""

from __future__ import annotations

import ipaddress
import socket

from .access import Access
from .tls import Tls


def warning(host: str, tls: Tls | None, access: Access | None) -> str | None:
    """What to tell whoever starts a broker on `host`; None if there is nothing to tell."""
    encrypted = tls is not None
    # A certificate of one's own is as good as a token.
    authenticated = access is not None or (tls is not None and tls.client_ca is not None)
    if (encrypted and authenticated) or _is_loopback(host):
        return None
    lacks = [
        text
        for text, given in (
            ("without TLS anybody on the way can read and change what passes", encrypted),
            (
                "without tokens anybody who gets through to the port can do everything",
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
        # Nobody will come in by it: listening will fail, and say why.
        return True
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
