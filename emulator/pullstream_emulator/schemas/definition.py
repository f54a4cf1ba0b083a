"""A schema's compiled definition, and its three errors."""

from __future__ import annotations

from typing import Any, Protocol

from pullstream_protocol.messages import schema_pb2 as pb


class BadDefinition(ValueError):
    """A definition is not a schema."""


class Mismatch(ValueError):
    """A message does not match a schema."""


class Incompatible(ValueError):
    """A schema cannot follow another one as its next revision."""


class Definition(Protocol):
    """Interface of both kinds of schemas. Any thread may use a definition."""

    def check(self, data: bytes, encoding: pb.Encoding) -> None:
        """Check that `data` is a message of this schema.

        Args:
            data: The encoded message.
            encoding: Its encoding.

        Raises:
            Mismatch: `data` is not a message of this schema.
        """

    def decode_binary(self, data: bytes) -> Any:
        """Return a message in the binary encoding as a JSON value, for people.

        Args:
            data: The encoded message, which `check` has accepted.

        Raises:
            Mismatch: `data` is not a message of this schema, or is too large to be decoded.
        """

    def check_follows(self, older: Definition) -> None:
        """Raise Incompatible unless each of the two schemas can read the other's messages."""
