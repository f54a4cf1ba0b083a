"""`pullstream publish`: messages from arguments, a file, or stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import click

from protocol.errors import PullstreamError
from protocol.messages import pubsub_pb2 as pubsub

from .lines import ReadableStream, batches, line_groups
from .parameters import key_value
from .session import Session, pass_session, session_options

KeyOf = Callable[[bytes], str]


@click.command("publish")
@click.argument("topic")
@click.argument("messages", nargs=-1)
@click.option("--file", type=click.File("rb"), help="Publish each line of this file.")
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
    help="Instead, the ordering key is this field of each line, counted from 1.",
)
@click.option("--delimiter", default=",", show_default=True, help="Between the fields of a line.")
@session_options
@pass_session
def publish(
    session: Session,
    topic: str,
    messages: tuple[str, ...],
    file: BinaryIO | None,
    attributes: tuple[tuple[str, str], ...],
    ordering_key: str,
    key_field: int | None,
    delimiter: str,
) -> None:
    """Publish MESSAGES, or each line of a file or of stdin, and print their ids.

    Empty lines are left out, unless there are attributes. What was published before an error stays
    published: its ids have been printed.
    """
    if messages and file:
        raise click.UsageError("Give either MESSAGES or --file, not both.")
    if ordering_key and key_field:
        raise click.UsageError("Give either --ordering-key or --key-field, not both.")
    key_of = _field_reader(key_field, delimiter) if key_field else lambda line: ordering_key
    groups = [[os.fsencode(text) for text in messages]] if messages else line_groups(_stream(file))
    _Publication(session, session.full_name("topics", topic), dict(attributes), key_of).run(groups)


class _Publication:
    """One run of the command: it knows how many lines it has seen, and what became of them."""

    def __init__(
        self, session: Session, topic: str, attributes: dict[str, str], key_of: KeyOf
    ) -> None:
        self._output = session.output
        self._client = session.topics()
        self._topic = topic
        self._attributes = attributes
        self._key_of = key_of
        self._published = 0
        self._skipped = 0
        self._line = 0

    def run(self, groups: Iterable[list[bytes]]) -> None:
        try:
            for group in groups:
                for batch in batches(self._messages(group)):
                    self._publish(batch)
        except (PullstreamError, click.ClickException):
            if self._published:
                self._output.remark(f"Messages published before this: {self._published}")
            raise
        if self._skipped:
            self._output.remark(f"Empty lines left out: {self._skipped}")

    def _messages(self, lines: Iterable[bytes]) -> Iterator[pubsub.PubsubMessage]:
        for line in lines:
            self._line += 1
            if not line and not self._attributes:
                self._skipped += 1
                continue
            try:
                key = self._key_of(line)
            except ValueError as error:
                raise click.ClickException(f"line {self._line}: {error}") from error
            yield pubsub.PubsubMessage(data=line, attributes=self._attributes, ordering_key=key)

    def _publish(self, batch: list[pubsub.PubsubMessage]) -> None:
        for message_id in self._client.publish(self._topic, batch):
            self._output.published(message_id)
        self._published += len(batch)
        # Whoever reads the ids learns of them when they are true, not when a buffer is full.
        self._output.flush()


def _field_reader(number: int, delimiter: str) -> KeyOf:
    """A function that reads field `number`, from 1, of a line; ValueError if it has no such one."""

    def read(line: bytes) -> str:
        fields = line.decode().split(delimiter)
        if len(fields) < number:
            raise ValueError(f"no field {number} for the ordering key, only {len(fields)}")
        return fields[number - 1]

    return read


def _stream(file: BinaryIO | None) -> ReadableStream:
    if file is None and sys.stdin.isatty():
        click.echo("Publishing each line you type; Ctrl-D ends.", err=True)
    stream: ReadableStream = file or sys.stdin.buffer  # type: ignore[assignment]
    return stream
