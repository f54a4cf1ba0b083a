"""Output in three forms: JSON for machines, plain lines for pipes, tables for terminals.

Results go to stdout, notes to stderr. rich is imported only for terminals.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Protobuf

from pullstream_protocol import names


class _Content(Protocol):
    """The common properties of wire messages and SDK messages."""

    @property
    def message_id(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def ordering_key(self) -> str: ...


class Output:
    """Writer of a command's results. Not thread-safe."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._for_people = not as_json and sys.stdout.isatty()

    def remark(self, text: str) -> None:
        """Print a note, which is not a result, on stderr."""
        click.echo(text, err=True)

    def resources(self, columns: Sequence[str], found: Iterable[Protobuf]) -> None:
        """Print a list of resources.

        Args:
            columns: JSON names of the fields that are shown to people.
            found: The resources.
        """
        records = (MessageToDict(resource) for resource in found)
        if self._as_json:
            for record in records:
                self._json(record)
            return
        rows = ([_text(record.get(column)) for column in columns] for record in records)
        if self._for_people:
            self._table(columns, rows)
        else:
            for row in rows:
                click.echo("\t".join(row))

    def resource(self, resource: Protobuf) -> None:
        """Print one resource with all its fields."""
        record = MessageToDict(resource)
        if self._as_json:
            self._json(record)
        elif self._for_people:
            self._table((), ([key, value] for key, value in _flat(record)))
        else:
            for key, value in _flat(record):
                click.echo(f"{key}: {value}")

    def done(self, name: str, what: str, count: int | None = None) -> None:
        """Print that an operation on a resource is done.

        Args:
            name: Name of the resource.
            what: "created", "deleted" and similar.
            count: Number of affected objects, if that is of interest.
        """
        if self._as_json:
            self._json({"name": name, what: True if count is None else count})
        else:
            click.echo(f"{name} {what}" if count is None else f"{name} {what}: {count}")

    def published(self, message_id: str) -> None:
        """Print the id of a published message."""
        if self._as_json:
            self._json({"messageId": message_id})
        else:
            click.echo(message_id)

    def result(self, record: Mapping[str, Any], text: str) -> None:
        """Print a result: as JSON, or as one line of text on stdout."""
        if self._as_json:
            self._json(record)
        else:
            click.echo(text)

    def event(self, record: Mapping[str, Any], text: str) -> None:
        """Print an event other than a message.

        Args:
            record: The event for JSON output.
            text: The note for other output; empty: print nothing.
        """
        if self._as_json:
            self._json(record)
        elif text:
            self.remark(text)

    def message(self, received: Mapping[str, Any], data: bytes) -> None:
        """Print a received message.

        Into a pipe, only the data is written, unchanged, and a newline.

        Args:
            received: The message as a result of `message_record`.
            data: The data.
        """
        if self._as_json:
            self._json(received)
        elif self._for_people:
            self._show_message(received, data)
        else:
            click.echo(data)

    def flush(self) -> None:
        """Flush stdout; raise BrokenPipeError if the reader has closed the pipe."""
        sys.stdout.flush()

    def _json(self, record: Mapping[str, Any]) -> None:
        click.echo(json.dumps(record))

    def _table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, show_header=bool(columns), box=None, pad_edge=False)
        for row in rows:
            # Text, because rich would interpret brackets in a str as markup.
            table.add_row(*(Text(printable(_short(value))) for value in row))
        Console().print(table)

    def _show_message(self, received: Mapping[str, Any], data: bytes) -> None:
        from rich.console import Console
        from rich.text import Text

        head = [received["messageId"], received["publishTime"]]
        if "topic" in received:
            head.insert(0, names.short_id(received["topic"]))
        if received["orderingKey"]:
            head.append(f"key={received['orderingKey']}")
        if "deliveryAttempt" in received:
            head.append(f"attempt={received['deliveryAttempt']}")
        head.extend(f"{key}={value}" for key, value in received["attributes"].items())
        body = f"({len(data)} bytes, not text)" if received.get("base64") else received["data"]
        console = Console()
        console.print(Text(printable("  ".join(head)), style="dim"), soft_wrap=True)
        console.print(Text(printable(body)), soft_wrap=True)


def message_record(
    message: _Content, publish_time: datetime, delivery_attempt: int | None
) -> dict[str, Any]:
    """Return a message for JSON. Data that is not UTF-8 is base64, and `base64` is true."""
    record: dict[str, Any] = {
        "messageId": message.message_id,
        "publishTime": publish_time.isoformat().replace("+00:00", "Z"),
        "orderingKey": message.ordering_key,
        "attributes": dict(sorted(message.attributes.items())),
    }
    if delivery_attempt:
        record["deliveryAttempt"] = delivery_attempt
    try:
        record["data"] = message.data.decode()
    except UnicodeDecodeError:
        record["data"] = b64encode(message.data).decode()
        record["base64"] = True
    return record


def printable(text: str) -> str:
    """Return `text` with control characters escaped, so a message cannot control the terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yield a dotted path and a text for every value in a nested dict."""
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)


def _short(value: str) -> str:
    """Return the id of a full resource name; all names in a table have the same project."""
    return names.short_id(value) if value.startswith("projects/") else value
