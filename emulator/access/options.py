"""Access and TLS from what was said at the start of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import auth_file
from .access import Access, AccessError, Principal
from .tls import Tls


def access_from(tokens: Sequence[str], file: Path | None) -> Access | None:
    """Whoever has one of `tokens` may do everything, the others what `file` says.

    None if nobody asked for any of it. Raises AccessError, see `auth_file.read`.
    """
    if any(not token.strip() for token in tokens):
        # As good as none, though somebody thought that there was one.
        raise AccessError("a token must not be empty")
    principals = auth_file.read(file) if file is not None else {}
    if not tokens and not principals:
        return None
    return Access({**principals, **dict.fromkeys(tokens, Principal("token"))})


def tls_from(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """None if nobody asked for it.

    Raises:
        AccessError: one file is given without the other, or cannot be used.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise AccessError("TLS needs both a certificate and its key")
    return Tls(certificate, key, client_ca)
