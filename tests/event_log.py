"""Recorded events of a run, from which the checkers of tests/hostile and tests/jepsen decide."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pullstream_protocol.clock import SYSTEM_CLOCK

# Events of one subject in the account of a violation.
MOST_SHOWN = 30


class Event(NamedTuple):
    """One event.

    Attributes:
        at: Monotonic seconds, which all processes of a machine share.
        actor: The client, server or fault driver.
        what: The kind of event, such as "ack ok".
        subject: The message, request or key.
        detail: Other values, by name.
    """

    at: float
    actor: str
    what: str
    subject: str
    detail: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def line(self, begin: float) -> str:
        """Return the event as a line, with the seconds since the begin of the run."""
        detail = ", ".join(f"{name}={value}" for name, value in self.detail.items())
        return f"{self.at - begin:9.3f} s  {self.actor:24} {self.what:18} {self.subject}  {detail}"


class Violation(NamedTuple):
    """A broken promise.

    Attributes:
        kind: The name of the broken promise.
        text: What happened, in one sentence.
        events: The events that prove it, in their order.
    """

    kind: str
    text: str
    events: Sequence[Event]

    def account(self, begin: float) -> str:
        """Return the sentence and the events."""
        shown = list(self.events[:MOST_SHOWN])
        lines = [f"{self.kind}: {self.text}", *(f"  {event.line(begin)}" for event in shown)]
        if len(self.events) > len(shown):
            lines.append(f"  ... and {len(self.events) - len(shown)} later events")
        return "\n".join(lines)


class Recorder:
    """Records events in memory, and in a file if there is one. Thread-safe.

    An event is in the file before `record` returns, so that it outlives a killed process.
    """

    def __init__(self, actor: str, file: Path | None = None) -> None:
        self.events: list[Event] = []
        self._actor = actor
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = None if file is None else os.open(file, flags, 0o600)

    def record(self, what: str, subject: str, actor: str = "", **detail: Any) -> None:
        """Record an event that happens now."""
        with self._lock:
            event = Event(SYSTEM_CLOCK.monotonic(), actor or self._actor, what, subject, detail)
            if self._descriptor is None:
                self.events.append(event)
            else:
                os.write(self._descriptor, json.dumps(event).encode() + b"\n")


def merged(*parts: Iterable[Event]) -> list[Event]:
    """Return the events of several recorders in the order of time."""
    return sorted((event for part in parts for event in part), key=lambda event: event.at)


def read_events(file: Path) -> list[Event]:
    """Return the events of a file. A killed process may have left an incomplete last line."""
    lines = file.read_bytes().split(b"\n")
    return [Event(*json.loads(line)) for line in lines[:-1]]
