"""Validation of messages against the schema of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pullstream_emulator.error_texts import invalid_argument
from pullstream_emulator.offload import Budget
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as pb

from .definition import Mismatch
from .revision_history import Revision

NAME_ATTRIBUTE = "googclient_schemaname"
REVISION_ATTRIBUTE = "googclient_schemarevisionid"
ENCODING_ATTRIBUTE = "googclient_schemaencoding"

# Longest reason for a refusal, in characters. It is sent in a header.
MAX_STATUS = 300


def check_encoding(encoding: int) -> None:
    """Raise InvalidArgument unless the encoding is JSON or BINARY."""
    if encoding not in (pb.JSON, pb.BINARY):
        raise invalid_argument("Invalid schema encoding: it must be JSON or BINARY")


class Rules(NamedTuple):
    """The rules of a topic's schema at one time: a message must match one of the revisions.

    Attributes:
        name: The full name of the schema.
        revisions: The allowed revisions, newest first.
        encoding: The encoding of messages.
    """

    name: str
    revisions: tuple[Revision, ...]
    encoding: pb.Encoding

    def compile(self) -> None:
        """Compile the revisions that are not yet compiled. May be called on any thread."""
        for revision in self.revisions:
            revision.compile(Budget())

    def check(self, data: Iterable[bytes], budget: Budget) -> list[str]:
        """Return, for each message's data, the ID of the first revision that it matches.

        Raises:
            InvalidArgument: A message matches no revision.
            BudgetExceeded: The check needs more work than the budget allows.
        """
        return [
            check_message(self.name, self.revisions, each, self.encoding, budget).id
            for each in data
        ]

    def mark(self, messages: Iterable[pubsub.PubsubMessage], revision_ids: Sequence[str]) -> None:
        """Set the attributes of messages that name the revisions found by `check`."""
        encoding = pb.Encoding.Name(self.encoding)
        for message, revision_id in zip(messages, revision_ids, strict=True):
            message.attributes[NAME_ATTRIBUTE] = self.name
            message.attributes[REVISION_ATTRIBUTE] = revision_id
            message.attributes[ENCODING_ATTRIBUTE] = encoding


def check_message(
    name: str,
    revisions: Sequence[Revision],
    data: bytes,
    encoding: pb.Encoding,
    budget: Budget,
) -> Revision:
    """Return the first revision that a message matches.

    Args:
        name: The full name of the schema, for the error text.
        revisions: The allowed revisions, in the order of the checks.
        data: The encoded message.
        encoding: Its encoding.
        budget: The work that the check may take.

    Raises:
        InvalidArgument: The message matches no revision. The details give the reason for the last
            revision.
        BudgetExceeded: The check needs more work than the budget allows.
    """
    last_checked = "the topic's range of revisions is empty"
    kind = ""
    for revision in revisions:
        try:
            revision.compile(budget).check(data, encoding, budget)
        except Mismatch as problem:
            kind = "AVRO" if revision.schema.type == pb.Schema.AVRO else "PROTO"
            last_checked = (
                f"last checked revision: revision_id={revision.id} failed with status: "
                f"{str(problem)[:MAX_STATUS]}"
            )
        else:
            return revision
    raise InvalidArgument(
        "Invalid data in message: Message failed schema validation.",
        reason="_".join(filter(None, ("INVALID", pb.Encoding.Name(encoding), kind, "MESSAGE"))),
        metadata={
            "message": "Message failed schema validation",
            "revisionInfo": "Could not validate message with any schema revision for schema: "
            f"{name}, {last_checked}",
        },
    )
