"""The status of a broker, computed in slices, once for all its readers.

The status of ten thousand topics and subscriptions takes some tenths of a second. It is computed in
slices, between other calls. Readers of the live stream get it once, and then the changes.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from pullstream_emulator.broker import Broker
from pullstream_emulator.monitoring.counters import SubscriptionCounts, TopicCounts
from pullstream_emulator.monitoring.status import (
    CursorStatus,
    FeedStatus,
    MaySee,
    RouterStatus,
    SchemaStatus,
    SubscriptionStatus,
    TopicStatus,
    cursor_status,
    feed_status,
    router_status,
    schema_status,
    subscription_status,
    topic_status,
)
from pullstream_protocol import names

from .http_request import to_json

T = TypeVar("T")

_AGE = "oldestUnackedSeconds"

# Number of resources after which other calls run, about 2 ms of work.
SLICE = 200

# Number of versions for which the names of removed resources are kept.
KEPT_VERSIONS = 60

# Age of a status up to which readers of the live stream share it, in seconds. They ask each second.
SHARED_FOR = 0.9


class _Entry(NamedTuple):
    """The status of one resource.

    Attributes:
        values: Its values, to find changes.
        text: The values as a JSON object.
        oldest_at: Of a subscription, the publish time of its oldest message, in seconds since the
            epoch; infinity without a message.
        version: The version of the status that brought the last change.
    """

    values: tuple[object, ...]
    text: str
    oldest_at: float | None
    version: int

    def json(self, now: float) -> str:
        """Return the JSON object, with the age of the oldest message at wall time `now`.

        The age is not one of the values, because it changes all the time.
        """
        if self.oldest_at is None:
            return self.text
        age = max(now - self.oldest_at, 0.0)
        return f'{self.text[:-1]},"{_AGE}":{age!r}}}'


class _Section:
    """The resources of one kind.

    Attributes:
        entries: The status of each resource by full name. The newest change is last.
        removed: The version that removed a resource, by full name. The newest is last.
    """

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.removed: dict[str, int] = {}


class LiveStatus:
    """The status of all resources of one broker, on its event loop.

    Args:
        broker: The broker.

    Attributes:
        version: Number of computations. A reader keeps it to ask for later changes.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sections = {kind: _Section() for kind in self._computed()}
        self.version = 0
        # The time at which the newest status was begun.
        self._begun = -math.inf
        self._running: asyncio.Task[None] | None = None

    async def refresh(self, max_age: float = 0.0) -> None:
        """Compute the status, unless it was computed less than `max_age` seconds ago.

        Calls that wait at the same time share one computation.
        """
        oldest = asyncio.get_running_loop().time() - max_age
        while self._begun < oldest:
            if self._running is None:
                self._running = asyncio.create_task(self._compute())
            await asyncio.shield(self._running)

    def has_changes_since(self, version: int) -> bool:
        """Return whether `changes` has everything after a version that a reader has."""
        return version > self.version - KEPT_VERSIONS

    async def whole(self, may_see: MaySee) -> str:
        """Return the members of a JSON object with the whole status of the visible resources."""
        now = self._broker.clock.now()
        parts = []
        for kind, section in self._sections.items():
            shown = _visible(sorted(section.entries.items()), may_see)
            texts = await in_slices(entry.json(now) for _, entry in shown)
            parts.append(f'"{kind}":[{",".join(texts)}]')
        return ",".join(parts)

    def changes(self, since: int, may_see: MaySee) -> str:
        """Return the members of a JSON object with the changes after a version.

        Each section has the resources that are new or have changed, and the names of the removed
        ones.
        """
        now = self._broker.clock.now()
        parts = []
        for kind, section in self._sections.items():
            changed = _after(section.entries, since, lambda entry: entry.version)
            texts = [entry.json(now) for _, entry in _visible(changed, may_see)]
            gone = _after(section.removed, since, lambda version: version)
            removed = [name for name, _ in _visible(gone, may_see)]
            if texts or removed:
                listed = ",".join(texts)
                parts.append(f'"{kind}":{{"changed":[{listed}],"removed":{json.dumps(removed)}}}')
        return ",".join(parts)

    def _computed(self) -> Mapping[str, Iterator[Any]]:
        broker, engine = self._broker, self._broker.engine
        parts = broker.dependents
        return {
            "topics": topic_status(engine, broker.counters),
            "subscriptions": subscription_status(engine, broker.counters),
            "feeds": feed_status(engine),
            "routers": router_status(engine, parts.routers),
            "cursors": cursor_status(engine, parts.cursors),
            "schemas": schema_status(broker.schemas),
        }

    async def _compute(self) -> None:
        begun = asyncio.get_running_loop().time()
        try:
            version = self.version + 1
            for kind, statuses in self._computed().items():
                section = self._sections[kind]
                seen = await in_slices(_compared(statuses, section.entries, version))
                self._apply(section, seen, version)
            self.version = version
            self._begun = begun
        finally:
            self._running = None

    @staticmethod
    def _apply(section: _Section, seen: Iterable[tuple[str, _Entry | None]], version: int) -> None:
        known = set()
        for name, changed in seen:
            known.add(name)
            if changed is not None:
                # Newest changes are last.
                section.entries.pop(name, None)
                section.removed.pop(name, None)
                section.entries[name] = changed
        for name in section.entries.keys() - known:
            del section.entries[name]
            section.removed[name] = version
        while section.removed:
            oldest = next(iter(section.removed))
            if section.removed[oldest] > version - KEPT_VERSIONS:
                break
            del section.removed[oldest]


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return the items as a list. Other calls run after each slice."""
    found: list[T] = []
    for item in items:
        found.append(item)
        if len(found) % SLICE == 0:
            await asyncio.sleep(0)
    return found


def _compared(
    statuses: Iterable[Any], entries: Mapping[str, _Entry], version: int
) -> Iterator[tuple[str, _Entry | None]]:
    """Yield the name of each resource with its new entry; None if nothing has changed."""
    for status in statuses:
        name = status.topic if isinstance(status, FeedStatus) else status.name
        shape = _SHAPES[type(status)]
        values = shape.values(status)
        before = entries.get(name)
        if before is not None and before.values == values:
            yield name, None
            continue
        oldest_at = None
        if isinstance(status, SubscriptionStatus):
            oldest_at = math.inf if status.oldest_unacked_at is None else status.oldest_unacked_at
        text = to_json(dict(zip(shape.labels, values, strict=True)))
        yield name, _Entry(values, text, oldest_at, version)


class _Shape(NamedTuple):
    """The values of a kind of status, and their names in JSON. Counters are values like others."""

    labels: Sequence[str]
    values: Callable[[Any], tuple[object, ...]]


def _shape(kind: type) -> _Shape:
    paths: list[str] = []
    for field in fields(kind):
        if field.name == "counts":
            counts = TopicCounts if kind is TopicStatus else SubscriptionCounts
            paths += [f"counts.{each.name}" for each in fields(counts)]
        elif camel_case(field.name) != _AGE:
            paths.append(field.name)
    labels = [camel_case(path.removeprefix("counts.")) for path in paths]
    return _Shape(labels, attrgetter(*paths))


def camel_case(name: str) -> str:
    """Return the name of a field in JSON."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _after(
    entries: dict[str, T], since: int, version_of: Callable[[T], int]
) -> list[tuple[str, T]]:
    """Return the entries with a later version, oldest first. The newest are last in `entries`."""
    found: list[tuple[str, T]] = []
    for name in reversed(entries):
        if version_of(entries[name]) <= since:
            break
        found.append((name, entries[name]))
    found.reverse()
    return found


def _visible(entries: Iterable[tuple[str, T]], may_see: MaySee) -> list[tuple[str, T]]:
    seen = cache(may_see)
    return [(name, entry) for name, entry in entries if seen(names.project_of(name))]


_SHAPES = {
    kind: _shape(kind)
    for kind in (
        TopicStatus,
        SubscriptionStatus,
        FeedStatus,
        RouterStatus,
        CursorStatus,
        SchemaStatus,
    )
}
