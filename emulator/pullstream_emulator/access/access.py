"""Bearer tokens, their principals, and the projects that a principal may use."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pullstream_protocol.errors import PermissionDenied, Unauthenticated

_log = logging.getLogger("pullstream.emulator")

# As a project of a principal: all projects, and the broker as a whole.
ALL_PROJECTS = "*"


class AccessError(ValueError):
    """The configuration of access is invalid or cannot be read."""


@dataclass(frozen=True)
class Principal:
    """The owner of a token.

    Attributes:
        name: The principal's name.
        projects: The projects that it may use; ALL_PROJECTS for all.
    """

    name: str
    projects: frozenset[str] = frozenset({ALL_PROJECTS})

    def may_use(self, *projects: str) -> bool:
        """Return whether the principal may use all of these projects."""
        return ALL_PROJECTS in self.projects or self.projects.issuperset(projects)

    def check(self, *projects: str) -> None:
        """Raise PermissionDenied unless the principal may use all of these projects.

        `ALL_PROJECTS` means the whole broker, for example to reset it or to advance its clock.
        """
        if self.may_use(*projects):
            return
        # The log tells the operator the reason; the caller does not learn it.
        _log.info("%s was refused access to: %s", self.name, ", ".join(projects))
        raise PermissionDenied("User not authorized to perform this action.")


class Access:
    """Decides by the `authorization` header whether a call may be made."""

    def __init__(self, tokens: Mapping[str, Principal]) -> None:
        """Create the access control of a broker.

        Args:
            tokens: The principal of each token.
        """
        # Digests all have one length, so comparing them reveals nothing about a token's length.
        self._principals = [(_digest(token), principal) for token, principal in tokens.items()]

    def replace(self, other: Access) -> None:
        """Use the tokens of `other` from now on. Open streams and watches continue."""
        self._principals = other._principals

    def authenticate(self, authorization: str | None) -> Principal:
        """Return the principal of the bearer token in this header.

        Raises:
            Unauthenticated: There is no token, or it is unknown.
        """
        if not authorization:
            raise Unauthenticated("Request is missing required authentication credential.")
        scheme, _, token = authorization.partition(" ")
        found: Principal | None = None
        if scheme.lower() == "bearer":
            digest = _digest(token.strip())
            # Compare all of them, so that the time does not depend on which one matches.
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
    # Bytes of a header that are not UTF-8 arrive as surrogates.
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
