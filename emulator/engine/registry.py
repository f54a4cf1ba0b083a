"""Every resource of an engine by its name, and who is told when one changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from protocol import errors, names

from . import paging
from .log import Log, Usage
from .moment import Moment
from .observer import Observer, Resource
from .snapshot import Snapshot
from .subscription import Subscription
from .timetable import Timetable
from .topic import Topic


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
        if self.observer is not None:
            self.observer.removed(_KIND[type(resource)], resource.config.name)


_KIND: Mapping[type, Resource] = {
    Topic: Resource.TOPIC,
    Subscription: Resource.SUBSCRIPTION,
    Snapshot: Resource.SNAPSHOT,
}


def page_of_project(
    collection: str, known: Iterable[str], project: str, page_size: int, page_token: str
) -> tuple[list[str], str]:
    """One page of the names of a project, and the token of the next."""
    prefix = f"{names.validate_project(project)}/{collection}/"
    return paging.page((n for n in known if n.startswith(prefix)), page_size, page_token)


def missing(name: str) -> errors.NotFound:
    return errors.NotFound(f"Resource not found (resource={names.short_id(name)}).")


def exists(name: str) -> errors.AlreadyExists:
    return errors.AlreadyExists(
        f"Resource already exists in the project (resource={names.short_id(name)})."
    )
