"""A schema's definition, ready to be used, and the three ways in which it can disappoint."""

from __future__ import annotations

from typing import Protocol

from protocol.messages import schema_pb2 as pb


class BadDefinition(ValueError):
    """It is no schema."""


class Mismatch(ValueError):
    """A message is not what a schema demands."""


class Incompatible(ValueError):
    """A schema cannot follow another one as its next revision."""


class Definition(Protocol):
    """What both kinds of schemas can do."""

    def check(self, data: bytes, encoding: pb.Encoding) -> None:
        """Raise Mismatch unless `data` is a message of this schema in that encoding."""

    def check_follows(self, older: Definition) -> None:
        """Raise Incompatible unless whoever knows one of the two can read the other's messages."""
