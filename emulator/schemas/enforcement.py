"""What a topic's schema demands of its messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emulator.refusals import invalid_argument
from protocol.errors import InvalidArgument
from protocol.messages import pubsub_pb2 as pubsub
from protocol.messages import schema_pb2 as pb

from .definition import Mismatch
from .revision_history import Revision, RevisionHistory

NAME_ATTRIBUTE = "googclient_schemaname"
REVISION_ATTRIBUTE = "googclient_schemarevisionid"
ENCODING_ATTRIBUTE = "googclient_schemaencoding"

# The reason for a refusal travels in a header.
MAX_STATUS = 300


def check_encoding(encoding: int) -> None:
    if encoding not in (pb.JSON, pb.BINARY):
        raise invalid_argument("Invalid schema encoding: it must be JSON or BINARY")


def enforce(
    history: RevisionHistory,
    settings: pubsub.SchemaSettings,
    messages: Iterable[pubsub.PubsubMessage],
) -> None:
    """Refuse messages of which one is not of the schema; mark all of them otherwise.

    A message passes if one of the topic's revisions, from the newest on, takes it. What tells
    subscribers which one it was are attributes.
    """
    revisions = history.between(settings.first_revision_id, settings.last_revision_id)
    encoding = pb.Encoding.Name(settings.encoding)
    passed = [
        (message, check_message(history.name, revisions, message.data, settings.encoding))
        for message in messages
    ]
    for message, revision in passed:
        message.attributes[NAME_ATTRIBUTE] = history.name
        message.attributes[REVISION_ATTRIBUTE] = revision.id
        message.attributes[ENCODING_ATTRIBUTE] = encoding


def check_message(
    name: str, revisions: Sequence[Revision], data: bytes, encoding: pb.Encoding
) -> Revision:
    """The first of some revisions that takes a message.

    Raises:
        InvalidArgument: none does. Its details say why the last one did not.
    """
    last_checked = "the topic's range holds no revision"
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
