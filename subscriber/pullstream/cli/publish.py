"""`pullstream publish`: publish messages from arguments, a file, or stdin."""

from __future__ import annotations

import json
import logging
import os
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol

import click
from google.api_core.retry import Retry

from pullstream.publisher import PublisherOptions, PublishError
from pullstream.publisher.encoding import encode_attributes, encode_ordering_key
from pullstream.publisher.settings import is_transient
from pullstream_protocol.errors import PullstreamError
from pullstream_protocol.message_limits import publishable
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import completion
from .context import CliContext, pass_session
from .groups import command
from .parameters import key_value

KeyOf = Callable[[bytes], str]

# Returns the message of an input line, or None for a line that is skipped. Raises ValueError.
MessageOf = Callable[[bytes], "pubsub.PubsubMessage | None"]

_READ_BYTES = 1 << 20


@command("publish")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("messages", nargs=-1)
@click.option("--file", type=click.File("rb"), help="Publish each line of this file.")
@click.option(
    "--from",
    "records",
    metavar="FILE",
    type=click.File("rb"),
    help="Publish the messages of this file, which `fetch --json`, `pull --json` or `peek --json` "
    "has written.",
)
@click.option(
    "--attribute",
    "attributes",
    type=key_value,
    multiple=True,
    help="Attribute of every message; may be repeated.",
)
@click.option("--ordering-key", default="", help="Ordering key of every message.")
@click.option(
    "--key-field",
    type=click.IntRange(min=1),
    help="Take the ordering key from this field of each line, counted from 1.",
)
@click.option("--delimiter", default=",", show_default=True, help="Delimiter of the fields.")
@pass_session
def publish(
    session: CliContext,
    topic: str,
    messages: tuple[str, ...],
    file: BinaryIO | None,
    records: BinaryIO | None,
    attributes: tuple[tuple[str, str], ...],
    ordering_key: str,
    key_field: int | None,
    delimiter: str,
) -> None:
    """Publish MESSAGES, or each line of a file or of stdin, and print the message ids.

    With --from, messages are published with the data, the attributes and the ordering key that
    they had, without the attributes that servers add. `-` as FILE is stdin.

    Empty lines are skipped, unless there are attributes. After an error, the messages whose ids
    were printed stay published.
    """
    if sum(map(bool, (messages, file, records))) > 1:
        raise click.UsageError("Give one of MESSAGES, --file and --from.")
    if records and (ordering_key or key_field):
        raise click.UsageError(
            "The messages of --from have their ordering keys: remove --ordering-key or --key-field."
        )
    if ordering_key and key_field:
        raise click.UsageError("Give either --ordering-key or --key-field, not both.")
    _check("--attribute", lambda: encode_attributes(dict(attributes)))
    _check("--ordering-key", lambda: encode_ordering_key(ordering_key))
    message_of: MessageOf
    if records:
        message_of = _record_reader(dict(attributes))
    else:
        key_of = _field_reader(key_field, delimiter) if key_field else lambda line: ordering_key
        message_of = _line_reader(dict(attributes), key_of)
    groups = (
        [[os.fsencode(text) for text in messages]]
        if messages
        else line_groups(_stream(records or file))
    )
    _Publication(session, session.full_name("topics", topic), message_of).run(groups)


def _check(option: str, encode: Callable[[], object]) -> None:
    """Check the limits of a value that every message has, before anything is published."""
    try:
        encode()
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error


# Seconds for which a request is repeated after a transient error, once messages were published.
# Before, the most probable reason is a wrong address.
_RETRY_FOR = 60.0


class _Publication:
    """One run of the command, with its counts of lines and published messages."""

    def __init__(self, session: CliContext, topic: str, message_of: MessageOf) -> None:
        self._output = session.output
        self._client = session.publisher(PublisherOptions(enable_message_ordering=True))
        self._retry = Retry(predicate=is_transient, initial=0.1, maximum=5, timeout=_RETRY_FOR)
        # The command reports failures itself.
        log = logging.getLogger("pullstream.publisher")
        log.addFilter(_is_error)
        click.get_current_context().call_on_close(lambda: log.removeFilter(_is_error))
        self._topic = topic
        self._message_of = message_of
        self._published = 0
        self._skipped = 0
        self._line = 0

    def run(self, groups: Iterable[list[bytes]]) -> None:
        try:
            for group in groups:
                self._publish(list(self._messages(group)))
        except (PullstreamError, click.ClickException):
            if self._published:
                self._output.remark(f"Messages published before the error: {self._published}")
            raise
        if self._skipped:
            self._output.remark(f"Empty lines skipped: {self._skipped}")

    def _messages(self, lines: Iterable[bytes]) -> Iterator[pubsub.PubsubMessage]:
        for line in lines:
            self._line += 1
            try:
                message = self._message_of(line)
            except ValueError as error:
                raise click.ClickException(f"line {self._line}: {error}") from error
            if message is None:
                self._skipped += 1
            else:
                yield message

    def _publish(self, messages: list[pubsub.PubsubMessage]) -> None:
        retry = self._retry if self._published else None
        future = self._client.publish_many(self._topic, messages, retry=retry)
        try:
            self._print(future.result())
        except PublishError as error:
            self._print([one for one in error.message_ids if one is not None])
            raise error.causes[0] from error

    def _print(self, message_ids: list[str]) -> None:
        for message_id in message_ids:
            self._output.published(message_id)
        self._published += len(message_ids)
        # Flush, so that a reader gets the ids at once and not when a buffer is full.
        self._output.flush()


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _line_reader(attributes: dict[str, str], key_of: KeyOf) -> MessageOf:
    """Return a function that makes a message of a line. It skips a message without content."""

    def read(line: bytes) -> pubsub.PubsubMessage | None:
        if not line and not attributes:
            return None
        key = key_of(line)
        encode_ordering_key(key)
        return pubsub.PubsubMessage(data=line, attributes=attributes, ordering_key=key)

    return read


def _record_reader(added: dict[str, str]) -> MessageOf:
    """Return a function that reads a message in the form of `message_record`.

    Args:
        added: Attributes of every message, which replace its own ones of the same name.
    """

    def read(line: bytes) -> pubsub.PubsubMessage | None:
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from error
        if not isinstance(record, dict) or "data" not in record:
            raise ValueError("it is not a message as `fetch --json` writes it: it has no data")
        data, key = record["data"], record.get("orderingKey", "")
        attributes = record.get("attributes", {})
        if not isinstance(data, str):
            raise ValueError(f"data is {data!r:.80}; it must be text")
        if not isinstance(key, str):
            raise ValueError(f"orderingKey is {key!r:.80}; it must be text")
        if not isinstance(attributes, dict):
            raise ValueError(f"attributes is {attributes!r:.80}; it must be an object")
        encode_ordering_key(key)
        try:
            kept = {**publishable(attributes), **added}
            encode_attributes(kept)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return pubsub.PubsubMessage(
            data=b64decode(data, validate=True) if record.get("base64") else data.encode(),
            attributes=kept,
            ordering_key=key,
        )

    return read


def _field_reader(number: int, delimiter: str) -> KeyOf:
    """Return a function that reads field `number` (from 1) of a line.

    The function raises ValueError if the line has fewer fields.
    """

    def read(line: bytes) -> str:
        fields = line.decode().split(delimiter)
        if len(fields) < number:
            raise ValueError(f"no field {number} for the ordering key (fields: {len(fields)})")
        return fields[number - 1]

    return read


def _stream(file: BinaryIO | None) -> ReadableStream:
    if file is None and sys.stdin.isatty():
        click.echo("Publishing each line that you type; Ctrl-D ends the input.", err=True)
    stream: ReadableStream = file or sys.stdin.buffer  # type: ignore[assignment]
    return stream


class ReadableStream(Protocol):
    """A buffered binary stream."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes as soon as some are available; empty at the end."""


def line_groups(stream: ReadableStream) -> Iterator[list[bytes]]:
    """Yield the lines of `stream` without line ends, in groups that were completed by one read.

    A file is read in large groups. The output of another program is read as soon as it arrives, so
    `tail -f log | pullstream publish` does not delay the newest lines.
    """
    unfinished: list[bytes] = []
    while chunk := stream.read1(_READ_BYTES):
        first, *rest = chunk.split(b"\n")
        unfinished.append(first)
        if rest:
            lines = [b"".join(unfinished), *rest[:-1]]
            unfinished = [rest[-1]]
            yield [line.removesuffix(b"\r") for line in lines]
    last = b"".join(unfinished)
    if last:
        yield [last]
