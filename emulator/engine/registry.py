"""Every resource of an engine by its name, and who is told when one changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from emulator.refusals import limit_exceeded, missing
from protocol import names
from protocol.messages import pubsub_pb2 as pubsub

from . import paging
from .consumers import MAX_WAITING
from .log import Log, Usage
from .moment import Moment
from .observer import Observer, Resource
from .snapshot import Snapshot
from .subscription import Subscription
from .timetable import Timetable
from .topic import Topic

R = TypeVar("R")

# How many a project may have (https://cloud.google.com/pubsub/quotas#resource_limits).
MAX_RESOURCES = {"topics": 10_000, "subscriptions": 10_000, "snapshots": 5_000}


class Registry:
    """Topics, subscriptions and snapshots, when each is due, and the clock they share."""

    def __init__(
        self, clock: Callable[[], Moment], observer: Observer | None, timetable: Timetable
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.now = clock
        self.observer = observer
        self.timetable = timetable
        self.usage = Usage()

    # ---- look-ups ------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise missing(names.validate("topics", name))
        return topic

    def subscription(self, name: str) -> Subscription:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise missing(names.validate("subscriptions", name))
        return subscription

    def snapshot(self, name: str) -> Snapshot:
        snapshot = self.snapshots.get(name)
        if snapshot is None:
            raise missing(names.validate("snapshots", name))
        return snapshot

    # ---- changes -------------------------------------------------------------------------------

    def new_log(self, topic: str) -> Log:
        return Log(topic, self.usage, self.observer)

    def trim(self, log: Log) -> None:
        """What a log has to keep may have changed."""
        now = self.now()
        log.trim(now)
        self.timetable.watch(log, now)

    def configure(self, subscription: Subscription, config: pubsub.Subscription) -> None:
        """Give a subscription other settings."""
        subscription.configure(config)
        self.trim(subscription.log)
        self.saved(subscription)
        self.timetable.watch(subscription, self.now())

    def check_room(self, collection: str, known: Mapping[str, object], name: str) -> None:
        """Refuse `name` if its project has as many of a collection as it may have."""
        check_room(collection, known, name, MAX_RESOURCES[collection])

    def saved(self, resource: Topic | Subscription | Snapshot) -> None:
        """It was made or changed."""
        if self.observer is None:
            return
        if isinstance(resource, Snapshot):
            value = resource.encode()
        else:
            value = resource.config.SerializeToString()
        self.observer.saved(_KIND[type(resource)], resource.config.name, value)

    def removed(self, resource: Topic | Subscription | Snapshot) -> None:
        if self.observer is None:
            return
        if isinstance(resource, Subscription) and resource.consumers.max_waiting != MAX_WAITING:
            # Before the subscription: there is never a limit of one that does not exist.
            self.observer.removed(Resource.PULLS, resource.name)
        self.observer.removed(_KIND[type(resource)], resource.config.name)


_KIND: Mapping[type, Resource] = {
    Topic: Resource.TOPIC,
    Subscription: Resource.SUBSCRIPTION,
    Snapshot: Resource.SNAPSHOT,
}


def check_room(collection: str, known: Mapping[str, object], name: str, maximum: int) -> None:
    """Refuse `name` if its project has `maximum` of a collection."""
    if len(known) >= maximum:
        prefix = f"projects/{names.project_of(name)}/"
        count = sum(other.startswith(prefix) for other in known)
        if count >= maximum:
            raise limit_exceeded(f"{collection}-per-project", count, maximum)


class ListRequest(Protocol):
    """A request for a page of what a project has."""

    project: str
    page_size: int
    page_token: str


def page_of_project(
    collection: str, known: Mapping[str, R], request: ListRequest
) -> tuple[list[R], str]:
    """One page of what a project has, and the token of the next."""
    prefix = f"{names.validate_project(request.project)}/{collection}/"
    listed, token = paging.page(
        (name for name in known if name.startswith(prefix)), request.page_size, request.page_token
    )
    return [known[name] for name in listed], token
