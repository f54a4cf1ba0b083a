"""Output in three forms: JSON for machines, plain lines for pipes, tables for terminals.

Results go to stdout, notes to stderr. rich is imported only for terminals.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Literal, Protocol

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Protobuf

from pullstream_protocol import names
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.printable import printable

# Least width of a column with text, in characters.
_LEAST_TEXT = 16

# The headings for people of fields with long names.
_HEADINGS = {
    "ackDeadlineSeconds": "deadline s",
    "messageRetentionDuration": "retention",
    "oldestUnackedSeconds": "oldest s",
    "pushConfig": "push",
}


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

    def hint(self, text: str) -> None:
        """Print a note for a person at a terminal. A pipe and JSON do not get it."""
        if self._for_people:
            self.remark(text)

    def resources(
        self,
        columns: Sequence[str],
        found: Iterable[Any],
        numbers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Print a list of resources.

        Args:
            columns: JSON names of the fields that are shown to people.
            found: The resources.
            numbers: Further fields of each resource, by its full name.
        """
        records = (
            _record(each, None if numbers is None else numbers.get(each.name)) for each in found
        )
        if self._as_json:
            for record in records:
                self._json(record)
            return
        rows = ([_text(record.get(column)) for column in columns] for record in records)
        if self._for_people:
            self._table(columns, rows)
        else:
            for row in rows:
                click.echo("\t".join(map(printable, row)))

    def resource(self, resource: Protobuf, numbers: Mapping[str, Any] | None = None) -> None:
        """Print one resource with all its fields, after the given further fields."""
        record = _record(resource, numbers)
        if self._as_json:
            self._json(record)
        elif self._for_people:
            self._table((), ([key, value] for key, value in _flat(record)))
        else:
            for key, value in _flat(record):
                click.echo(f"{key}: {printable(value)}")

    def done(self, name: str, what: str, count: int | None = None) -> None:
        """Print that an operation on a resource is done.

        Args:
            name: Name of the resource.
            what: "created", "deleted" and similar.
            count: Number of affected objects, if that is of interest.
        """
        text = f"{name} {what}" if count is None else f"{name} {what}: {count}"
        self.result({"name": name, what: True if count is None else count}, text)

    def published(self, message_id: str) -> None:
        """Print the id of a published message."""
        self.result({"messageId": message_id}, message_id)

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

    def failure(self, text: str, exit_code: int, cause: str | None = None) -> None:
        """Print the object with which the JSON of a failed command ends.

        The text for people is on stderr. Nothing is printed if nobody reads stdout any more.

        Args:
            text: The error.
            exit_code: Exit code of the command.
            cause: The part that has failed, if the command knows it.
        """
        if not self._as_json:
            return
        time = datetime.fromtimestamp(SYSTEM_CLOCK.now(), timezone.utc)
        record: dict[str, Any] = {
            "type": "error",
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "error": text,
            "exitCode": exit_code,
        }
        if cause is not None:
            record["cause"] = cause
        with suppress(OSError):
            self._json(record)
            self.flush()

    def flush(self) -> None:
        """Flush stdout; raise BrokenPipeError if the reader has closed the pipe."""
        sys.stdout.flush()

    def _json(self, record: Mapping[str, Any]) -> None:
        click.echo(json.dumps(record))

    def _table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table for people, without the columns that are empty in every row."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        cells = [[printable(_short(value), keep_lines=True) for value in row] for row in rows]
        headings = [_HEADINGS.get(column, column) for column in columns] or ["", ""]
        shown = [at for at in range(len(headings)) if not at or any(row[at] for row in cells)]
        table = Table(show_header=bool(columns), box=None, pad_edge=False)
        needed = 0
        for at in shown:
            is_number = bool(columns) and all(_is_number(row[at]) for row in cells)
            width = max([len(headings[at]), *(len(row[at]) for row in cells)])
            least = width if is_number else min(width, _LEAST_TEXT)
            justify: Literal["left", "right"] = "right" if is_number else "left"
            table.add_column(headings[at], min_width=least, no_wrap=is_number, justify=justify)
            needed += least + 1
        for row in cells:
            # Text, because rich would interpret brackets in a str as markup.
            table.add_row(*(Text(row[at]) for at in shown))
        console = Console()
        # A number that lost its end would be another number, so the table may be too wide.
        console.print(table, width=max(console.width, needed), soft_wrap=True)

    def _show_message(self, received: Mapping[str, Any], data: bytes) -> None:
        from rich.console import Console
        from rich.text import Text

        head = [received["messageId"], received["publishTime"]]
        if "topic" in received:
            head.insert(0, names.short_id(received["topic"]))
        if received["orderingKey"]:
            head.append(f"key={received['orderingKey']}")
        if "state" in received:
            head.append(f"state={received['state']}")
        if "deliveryAttempt" in received:
            head.append(f"attempt={received['deliveryAttempt']}")
        head.extend(f"{key}={value}" for key, value in received["attributes"].items())
        body = f"({len(data)} bytes, not text)" if received.get("base64") else received["data"]
        console = Console()
        console.print(
            Text(printable("  ".join(head), keep_lines=True), style="dim"), soft_wrap=True
        )
        console.print(Text(printable(body, keep_lines=True)), soft_wrap=True)


def _record(resource: Any, numbers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a resource as JSON. Its name and the further fields come first."""
    record: dict[str, Any] = MessageToDict(resource)
    if numbers:
        record = {"name": record.get("name", ""), **numbers, **record}
    return record


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


def counted(messages: int) -> str:
    """Return "1 message" or "2 messages"."""
    return "1 message" if messages == 1 else f"{messages:,} messages"


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


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _short(value: str) -> str:
    """Return the id of a full resource name; all names in a table have the same project."""
    return names.short_id(value) if value.startswith("projects/") else value
