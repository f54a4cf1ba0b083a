"""Validation of messages against the schema of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pullstream_emulator.error_texts import invalid_argument
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as pb

from .definition import Mismatch
from .revision_history import Revision

NAME_ATTRIBUTE = "googclient_schemaname"
REVISION_ATTRIBUTE = "googclient_schemarevisionid"
ENCODING_ATTRIBUTE = "googclient_schemaencoding"

# A check of at most this many bytes by one revision takes less than 1 s for the worst definition,
# and about 20 ms for most. A message counts as 200 bytes more, because it may have many values
# without bytes (avro_binary.py).
_MAX_SMALL = 32 * 1024
_BYTES_PER_MESSAGE = 200

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

    def is_quick(self, data: Iterable[bytes]) -> bool:
        """Return whether `check` takes so little time that the event loop can call it."""
        size = sum(len(each) + _BYTES_PER_MESSAGE for each in data)
        is_small = size * len(self.revisions) <= _MAX_SMALL
        return is_small and not any(revision.needs_protoc for revision in self.revisions)

    def check(self, data: Iterable[bytes]) -> list[str]:
        """Return, for each message's data, the ID of the first revision that it matches.

        May be called on any thread.

        Raises:
            InvalidArgument: A message matches no revision.
        """
        return [check_message(self.name, self.revisions, each, self.encoding).id for each in data]

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
) -> Revision:
    """Return the first revision that a message matches.

    Args:
        name: The full name of the schema, for the error text.
        revisions: The allowed revisions, in the order of the checks.
        data: The encoded message.
        encoding: Its encoding.

    Raises:
        InvalidArgument: The message matches no revision. The details give the reason for the last
            revision.
    """
    last_checked = "the topic's range of revisions is empty"
    kind = ""
    for revision in revisions:
        try:
            revision.definition.check(data, encoding)
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
