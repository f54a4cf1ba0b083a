"""Bearer tokens, whose they are, and which projects these may use."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.errors import PermissionDenied, Unauthenticated

_log = logging.getLogger("pullstream.emulator")

# Among a principal's projects: all of them, and the broker as a whole.
ALL_PROJECTS = "*"


class AccessError(ValueError):
    """What a broker was told about who may come in makes no sense, or cannot be read."""


@dataclass(frozen=True)
class Principal:
    """Somebody who has shown a token."""

    name: str
    projects: frozenset[str] = frozenset({ALL_PROJECTS})

    def check(self, *projects: str) -> None:
        """Raise PermissionDenied unless the principal may use all of these projects.

        `ALL_PROJECTS` stands for the whole broker: emptying it, moving its clock.
        """
        if ALL_PROJECTS in self.projects or self.projects.issuperset(projects):
            return
        # Whoever runs the broker may know why; the caller learns nothing.
        _log.info("%s was refused: %s", self.name, ", ".join(projects))
        raise PermissionDenied("User not authorized to perform this action.")


class Access:
    """Decides whether a call may be made, by its `authorization` header.

    Args:
        tokens: whose each token is.
    """

    def __init__(self, tokens: Mapping[str, Principal]) -> None:
        # Digests have one length, so that comparing them tells nothing about a token's own.
        self._principals = [(_digest(token), principal) for token, principal in tokens.items()]

    def authenticate(self, authorization: str | None) -> Principal:
        """Whose the bearer token in this header is.

        Raises:
            Unauthenticated: there is none, or nobody's.
        """
        if not authorization:
            raise Unauthenticated("Request is missing required authentication credential.")
        scheme, _, token = authorization.partition(" ")
        found: Principal | None = None
        if scheme.lower() == "bearer":
            digest = _digest(token.strip())
            # All are compared, in the same time whichever fits.
            for known, principal in self._principals:
                if hmac.compare_digest(known, digest):
                    found = principal
        if found is None:
            raise Unauthenticated("Request had invalid authentication credentials.")
        return found

    def check(self, authorization: str | None, *projects: str) -> None:
        """Raise Unauthenticated or PermissionDenied unless the call may touch these projects."""
        self.authenticate(authorization).check(*projects)


def _digest(token: str) -> bytes:
    # What is no UTF-8 in a header comes in as surrogates.
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
