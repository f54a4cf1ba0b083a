"""The present state of topics and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_protocol import names

from .counters import Counters, SubscriptionCounts, TopicCounts


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic.

    Attributes:
        name: Its full name.
        subscriptions: The full names of its subscriptions.
        counts: Its counters.
    """

    name: str
    subscriptions: tuple[str, ...]
    counts: TopicCounts


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription.

    Attributes:
        name: Its full name.
        topic: The full name of its topic; `_deleted-topic_` if the topic was deleted.
        dead_letter_topic: The full name of its dead-letter topic; empty if it has none.
        push_endpoint: The URL to which its messages are pushed; empty if they are pulled.
        backlog: Messages that are not finally acknowledged.
        leased: Messages with a lease, a part of the backlog.
        delayed: Messages and ordering keys that wait for a retry delay.
        oldest_unacked_seconds: Age of the oldest message in the backlog; 0 without a message.
        streams: Open streaming pulls.
        waiting_pulls: Pull calls that wait for a message.
        counts: Its counters.
    """

    name: str
    topic: str
    dead_letter_topic: str
    push_endpoint: str
    backlog: int
    leased: int
    delayed: int
    oldest_unacked_seconds: float
    streams: int
    waiting_pulls: int
    counts: SubscriptionCounts


R = TypeVar("R")

# Whether a caller may see the resources of a project.
MaySee = Callable[[str], bool]


def topic_status(
    engine: Engine, counters: Counters, may_see: MaySee = lambda project: True
) -> Iterator[TopicStatus]:
    """Yield the state of each topic, by name."""
    for name, topic in _visible(engine.registry.topics.items(), may_see):
        counts = counters.topics.get(name) or TopicCounts()
        yield TopicStatus(name, tuple(sorted(topic.subscriptions)), counts)


def subscription_status(
    engine: Engine, counters: Counters, may_see: MaySee = lambda project: True
) -> Iterator[SubscriptionStatus]:
    """Yield the state of each subscription, by name."""
    now = engine.registry.now().wall
    for name, subscription in _visible(engine.registry.subscriptions.items(), may_see):
        counts = counters.subscriptions.get(name) or SubscriptionCounts()
        yield _status(subscription, counts, now)


def _visible(resources: Iterable[tuple[str, R]], may_see: MaySee) -> Iterator[tuple[str, R]]:
    seen: dict[str, bool] = {}
    for name, resource in sorted(resources, key=lambda item: item[0]):
        project = names.project_of(name)
        if project not in seen:
            seen[project] = may_see(project)
        if seen[project]:
            yield name, resource


def _status(
    subscription: Subscription, counts: SubscriptionCounts, now: float
) -> SubscriptionStatus:
    messages, config = subscription.messages, subscription.config
    oldest = messages.oldest_ms
    return SubscriptionStatus(
        name=subscription.name,
        topic=config.topic,
        dead_letter_topic=subscription.terms.dead_letter_topic,
        push_endpoint=config.push_config.push_endpoint,
        backlog=len(messages),
        leased=len(subscription.leases),
        delayed=messages.delayed,
        oldest_unacked_seconds=0.0 if oldest is None else max(now - oldest / 1000, 0.0),
        streams=subscription.consumers.streams,
        waiting_pulls=subscription.consumers.waiting_pulls,
        counts=counts,
    )
