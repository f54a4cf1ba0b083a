"""A schema's compiled definition, and its three errors."""

from __future__ import annotations

from typing import Any, Protocol

from pullstream_emulator.offload import Budget
from pullstream_protocol.messages import schema_pb2 as pb

# Number of compiled definitions that a process of the pool keeps for its next jobs.
MAX_UNPICKLED = 32


class BadDefinition(ValueError):
    """A definition is not a schema."""


class Mismatch(ValueError):
    """A message does not match a schema."""


class Incompatible(ValueError):
    """A schema cannot follow another one as its next revision."""


class Definition(Protocol):
    """Interface of both kinds of schemas. A definition is pickled as its source."""

    def check(self, data: bytes, encoding: pb.Encoding, budget: Budget) -> None:
        """Check that `data` is a message of this schema.

        Args:
            data: The encoded message.
            encoding: Its encoding.
            budget: The work that the check may take.

        Raises:
            Mismatch: `data` is not a message of this schema.
            BudgetExceeded: The check needs more work than the budget allows.
        """

    def decode_binary(self, data: bytes, budget: Budget) -> Any:
        """Return a message in the binary encoding as a JSON value, for people.

        Args:
            data: The encoded message, which `check` has accepted.
            budget: The work that the decoding may take.

        Raises:
            Mismatch: `data` is not a message of this schema.
            BudgetExceeded: The decoding needs more work than the budget allows.
        """

    def check_follows(self, older: Definition) -> None:
        """Raise Incompatible unless each of the two schemas can read the other's messages."""
