"""Refuses HTTP requests that a foreign web page can cause.

A browser sends the requests of any page to any address, including a broker on the user's machine.
Three headers that no page can set identify such requests:

- `Host` is the name that the browser has resolved. In DNS rebinding, a page's own name resolves to
  the broker's address, so the browser treats page and broker as one site.
- `Origin` is the site of the page. A browser sends it with every request except a plain GET to the
  page's own site.
- `Sec-Fetch-Site` says whether page and broker belong to one site. Browsers send it to `https` and
  to loopback addresses.

Clients that are not browsers send the `Host` that they were configured with, and neither of the
other headers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pullstream_protocol.errors import PermissionDenied

if TYPE_CHECKING:
    from aiohttp import web

# Nobody can register a name without a dot, or a name in one of these domains.
_LOCAL_DOMAINS = (".localhost", ".local", ".internal", ".svc")

_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
_DEFAULT_PORTS = {"http": 80, "https": 443}

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]@/]+\]|[^\[\]@/:]+)(?::(?P<port>[0-9]{0,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>.+)")

# Longest part of a header's value that an error quotes, in characters.
_MAX_QUOTED = 300

_RESOLVER_CONFIGURATION = Path("/etc/resolv.conf")


class Authority(NamedTuple):
    """A host and a port, as in a Host header.

    Attributes:
        host: In lower case, without a trailing dot; an IP address in its canonical form.
        port: The port; None if the header has none.
    """

    host: str
    port: int | None


class Origin(NamedTuple):
    """The site of a page, as in an Origin header.

    Attributes:
        scheme: The scheme, such as "https".
        host: The host, in the form of `Authority.host`.
        port: The port, or the scheme's default port.
    """

    scheme: str
    host: str
    port: int | None


@dataclass(frozen=True)
class Known:
    """Additional names and sites that are allowed.

    Attributes:
        hosts: Names of the broker. `*.domain` matches names with one label more than `domain`;
            `.domain` matches every name below it.
        origins: Sites whose pages may use the broker.
    """

    hosts: Collection[str] = frozenset()
    origins: Collection[Origin] = frozenset()


# ---- the rule ------------------------------------------------------------------------------------


def refusal(scheme: str, headers: Mapping[str, Sequence[str]], known: Known) -> str | None:
    """Return why a request is refused; None if it is accepted.

    Args:
        scheme: "http" or "https".
        headers: All values of `Host`, `Origin` and `Sec-Fetch-Site`, by these names.
        known: Names and sites that are allowed.
    """
    hosts, origins = headers.get("Host", ()), headers.get("Origin", ())
    for host in hosts:
        if problem := _host_problem(host, known.hosts):
            return problem
    if len(set(hosts)) > 1:
        return "The request has more than one Host header; it must have one."
    own = own_origin(scheme, hosts[0]) if hosts else None
    for text in origins:
        if problem := _origin_problem(text, own, known.origins):
            return problem
    is_allowed = any(_origin_of(text) in known.origins for text in origins)
    if not is_allowed and not _FOREIGN_SITES.isdisjoint(headers.get("Sec-Fetch-Site", ())):
        return (
            "The header Sec-Fetch-Site says that a page of another site has caused this request. "
            "The broker answers pages of its own site, and of the sites given by --allow-origin."
        )
    return None


def own_origin(scheme: str, host: str) -> Origin | None:
    """Return the broker's site for this Host header; None if the header is invalid."""
    authority = _authority(host)
    return None if authority is None else _with_port(scheme, authority)


def is_own_name(host: str, names: Collection[str]) -> bool:
    """Return whether no foreign page can have this host, given in its normal form."""
    if _is_address(host) or "." not in host or host.endswith(_LOCAL_DOMAINS):
        return True
    parent = host.partition(".")[2]
    if host in names or f"*.{parent}" in names:
        return True
    return any(name.startswith(".") and host.endswith(name) for name in names)


def _host_problem(text: str, names: Collection[str]) -> str | None:
    authority = _authority(text)
    if authority is None:
        return (
            f"The Host header is {text[:_MAX_QUOTED]!r}; it must be a host name or an IP address, "
            "with or without a port."
        )
    if is_own_name(authority.host, names):
        return None
    return (
        f"The Host header is {text[:_MAX_QUOTED]!r}, which is not a known name of the broker: a "
        "web page can cause such a request by DNS rebinding. If it is the broker's name, start "
        f"the broker with --allow-host {authority.host}"
    )


def _origin_problem(text: str, own: Origin | None, allowed: Collection[Origin]) -> str | None:
    origin = _origin_of(text)
    if origin is None:
        return (
            f"The Origin header is {text[:_MAX_QUOTED]!r}: the request comes from a page without a "
            "site, such as a file or a sandboxed frame. Serve the page over HTTP, and start the "
            "broker with --allow-origin and the site of the page."
        )
    if origin == own or origin in allowed:
        return None
    return (
        f"The Origin header is {text[:_MAX_QUOTED]!r}, which is not the broker's own site: a page "
        "of another site has caused this request. If that page may use the broker, start the "
        f"broker with --allow-origin {text[:_MAX_QUOTED]}"
    )


# ---- names ---------------------------------------------------------------------------------------


def checked_host(text: str) -> str:
    """Return the normal form of a host for --allow-host.

    Raises:
        ValueError: The text is neither a host name nor `*.` and a host name.
    """
    wildcard = "*." if text.startswith("*.") else ""
    authority = _authority(text.removeprefix(wildcard))
    if authority is None or ":" in text or _is_address(authority.host):
        raise ValueError(
            f"{text!r} is not a host name; it must be one without scheme and port, such as "
            "broker.example.com, or *.example.com for all names with one label more"
        )
    return wildcard + authority.host


def checked_origin(text: str) -> Origin:
    """Return the origin that --allow-origin names.

    Raises:
        ValueError: The text is not a scheme and a host.
    """
    origin = _origin_of(text)
    if origin is None:
        raise ValueError(
            f"{text!r} is not the origin of a page; it must be a scheme and a host, with the port "
            "if it is not the scheme's own, such as https://app.example.com or http://localhost:3000"
        )
    return origin


def machine_names() -> frozenset[str]:
    """Return the names of this machine, and the domain of its Kubernetes cluster.

    A cluster may have any domain. A service in it has the name SERVICE.NAMESPACE.svc.DOMAIN. A
    foreign name can have that form, too, so only the domain in which this machine resolves names
    counts: a pod has `svc.DOMAIN` among its search domains.

    This may ask a name server, which takes seconds if none answers.
    """
    names = {socket.gethostname()}
    with suppress(UnicodeError):
        names.add(socket.getfqdn())
    with suppress(OSError, UnicodeError):
        for line in _RESOLVER_CONFIGURATION.read_text(encoding="utf-8").splitlines():
            keyword, *domains = line.split() or [""]
            if keyword == "search":
                names.update(f".{domain}" for domain in domains if domain.startswith("svc."))
    return frozenset(name.lower().rstrip(".") for name in names)


def _authority(text: str) -> Authority | None:
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    host = match["host"]
    if host.startswith("["):
        try:
            host = str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            return None
    else:
        host = host.removesuffix(".")
        if _NAME.fullmatch(host) is None:
            return None
    return Authority(host, int(match["port"]) if match["port"] else None)


def _origin_of(text: str) -> Origin | None:
    match = _ORIGIN.fullmatch(text.lower())
    authority = None if match is None else _authority(match["authority"])
    if match is None or authority is None:
        return None
    return _with_port(match["scheme"], authority)


def _with_port(scheme: str, authority: Authority) -> Origin:
    port = _DEFAULT_PORTS.get(scheme) if authority.port is None else authority.port
    return Origin(scheme, authority.host, port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# ---- requests ------------------------------------------------------------------------------------


class ForeignPages:
    """Checks requests before anything else is done with them.

    Args:
        hosts: Further names of the broker; see `checked_host`.
        origins: Sites whose pages may use the broker; see `checked_origin`.
        certificate_names: Names in the broker's certificate. Names that are not host names have no
            effect.

    Raises:
        ValueError: A host or an origin is invalid.
    """

    def __init__(
        self,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        certificate_names: Iterable[str] = (),
    ) -> None:
        self._known = Known(
            {*map(checked_host, hosts), *(name.lower() for name in certificate_names)},
            {*map(checked_origin, origins)},
        )
        self._machine_names: asyncio.Task[frozenset[str]] | None = None

    async def check(self, request: web.Request, *, tells_nothing: bool = False) -> None:
        """Raise PermissionDenied if a foreign page can have caused the request.

        Args:
            request: The request.
            tells_nothing: The response contains no information, so any page may link to it.
        """
        checked = ("Host", "Origin") if tells_nothing else ("Host", "Origin", "Sec-Fetch-Site")
        headers = {name: request.headers.getall(name, ()) for name in checked}
        problem = refusal(request.scheme, headers, self._known)
        if problem is not None and self._machine_names is None:
            # Looked up only when needed: it takes time, and few clients use the full name.
            self._machine_names = asyncio.ensure_future(asyncio.to_thread(machine_names))
        if problem is not None and self._machine_names is not None:
            names = await asyncio.shield(self._machine_names)
            known = Known({*self._known.hosts, *names}, self._known.origins)
            problem = refusal(request.scheme, headers, known)
        if problem is not None:
            raise PermissionDenied(problem)

    def permissions(self, request: web.Request) -> dict[str, str]:
        """Return the headers that let a page of an allowed site read the response (CORS).

        A browser sends a preflight before a request that no HTML form could cause.
        """
        origin = request.headers.get("Origin", "")
        if _origin_of(origin) not in self._known.origins:
            return {}
        permissions = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        if is_preflight(request):
            wanted = request.headers
            permissions["Access-Control-Allow-Methods"] = wanted["Access-Control-Request-Method"]
            permissions["Access-Control-Allow-Headers"] = wanted.get(
                "Access-Control-Request-Headers", ""
            )
        return permissions


def is_preflight(request: web.Request) -> bool:
    """Return whether a browser asks for permission to send another request."""
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
