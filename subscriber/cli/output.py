"""Three forms of output: JSON for machines, plain lines for pipes, tables for people.

Results go to stdout, remarks to stderr. rich is imported when a person is looking.
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

from protocol import names


class _Content(Protocol):
    """What the wire's and the SDK's messages have alike."""

    @property
    def message_id(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def ordering_key(self) -> str: ...


class Output:
    """Where a command's results go. Not thread-safe."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._for_people = not as_json and sys.stdout.isatty()

    def remark(self, text: str) -> None:
        """Say something that is not a result."""
        click.echo(text, err=True)

    def resources(self, columns: Sequence[str], found: Iterable[Protobuf]) -> None:
        """A list; `columns` are the JSON names of the fields that people get to see."""
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
        """One resource with all its fields."""
        record = MessageToDict(resource)
        if self._as_json:
            self._json(record)
        elif self._for_people:
            self._table((), ([key, value] for key, value in _flat(record)))
        else:
            for key, value in _flat(record):
                click.echo(f"{key}: {value}")

    def done(self, name: str, what: str, count: int | None = None) -> None:
        """Something was done to the resource `name`: `what` is "created", "deleted", ..."""
        if self._as_json:
            self._json({"name": name, what: True if count is None else count})
        else:
            click.echo(f"{name} {what}" if count is None else f"{name} {what}: {count}")

    def published(self, message_id: str) -> None:
        """A message was published under this id."""
        if self._as_json:
            self._json({"messageId": message_id})
        else:
            click.echo(message_id)

    def event(self, record: Mapping[str, Any], text: str) -> None:
        """Something besides the messages: an object for machines, a remark in words for others.

        Without words there is nothing to say to those.
        """
        if self._as_json:
            self._json(record)
        elif text:
            self.remark(text)

    def message(self, received: Mapping[str, Any], data: bytes) -> None:
        """A received message; `received` is what `message_record` made of it.

        Into a pipe goes the data alone, byte for byte, and a newline.
        """
        if self._as_json:
            self._json(received)
        elif self._for_people:
            self._show_message(received, data)
        else:
            click.echo(data)

    def flush(self) -> None:
        """Return when all is written; raises BrokenPipeError when nobody reads any more."""
        sys.stdout.flush()

    def _json(self, record: Mapping[str, Any]) -> None:
        click.echo(json.dumps(record))

    def _table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, show_header=bool(columns), box=None, pad_edge=False)
        for row in rows:
            # Text, not str: a value with brackets in it is no markup.
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
    """A message for JSON. Data that is not UTF-8 is in base64, and `base64` is true."""
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
    """`text` with control characters spelled out: a message must not steer the terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Pairs of a dotted path and a text, for every value in a nested dict."""
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
    """The id of a full resource name: in a table, all are of the same project."""
    return names.short_id(value) if value.startswith("projects/") else value
