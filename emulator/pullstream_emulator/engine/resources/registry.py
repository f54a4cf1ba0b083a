"""All resources of an engine by name, pages of them, and the report of changes to the observer."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Protocol, TypeVar

from pullstream_emulator.engine.delivery.consumers import MAX_WAITING
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.log import Log, Usage
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.engine.timetable import SlicedWork, Timetable
from pullstream_emulator.error_texts import invalid_argument, limit_exceeded, missing
from pullstream_protocol import names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .by_name import ByName
from .snapshot import Snapshot
from .topic import Topic

R = TypeVar("R")

# Most resources of a project (https://cloud.google.com/pubsub/quotas#resource_limits).
MAX_RESOURCES = {"topics": 10_000, "subscriptions": 10_000, "snapshots": 5_000}

DEFAULT_PAGE_SIZE = 1000
MAX_PAGE_SIZE = 1000


class Registry:
    """Topics, subscriptions and snapshots, their due times, and their common clock.

    Attributes:
        work: Does long work in slices.
    """

    def __init__(self, clock: Callable[[], Now], observer: Observer, timetable: Timetable) -> None:
        self.topics: ByName[Topic] = ByName()
        self.subscriptions: ByName[Subscription] = ByName()
        self.snapshots: ByName[Snapshot] = ByName()
        self._snapshots_of: dict[Log, ByName[Snapshot]] = {}
        self.now = clock
        self.observer = observer
        self.timetable = timetable
        self.usage = Usage()
        self.work = SlicedWork(timetable)

    # ---- look-ups ------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Return a topic by its full name. Raise NotFound if it does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            raise missing(names.validate("topics", name))
        return topic

    def subscription(self, name: str) -> Subscription:
        """Return a subscription by its full name. Raise NotFound if it does not exist."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise missing(names.validate("subscriptions", name))
        return subscription

    def snapshot(self, name: str) -> Snapshot:
        """Return a snapshot by its full name. Raise NotFound if it does not exist."""
        snapshot = self.snapshots.get(name)
        if snapshot is None:
            raise missing(names.validate("snapshots", name))
        return snapshot

    def snapshots_of(self, log: Log) -> ByName[Snapshot]:
        """Return the snapshots of a log."""
        return self._snapshots_of.get(log) or ByName()

    # ---- changes -------------------------------------------------------------------------------

    def new_log(self, topic: str) -> Log:
        """Return an empty log for a topic. Its records count in the engine's memory usage."""
        return Log(topic, self.usage, self.observer, self.work)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot to all snapshots and to the ones of its log."""
        name = snapshot.config.name
        self.snapshots[name] = snapshot
        self._snapshots_of.setdefault(snapshot.log, ByName())[name] = snapshot

    def remove_snapshot(self, snapshot: Snapshot) -> None:
        """Remove a snapshot from all snapshots and from the ones of its log."""
        name, log = snapshot.config.name, snapshot.log
        del self.snapshots[name]
        del self._snapshots_of[log][name]
        if not self._snapshots_of[log]:
            del self._snapshots_of[log]

    def trim(self, log: Log) -> None:
        """Trim a log after a change of the settings that decide which records it keeps."""
        now = self.now()
        log.trim(now)
        self.timetable.watch(log, now)

    def configure(self, subscription: Subscription, config: pubsub.Subscription) -> None:
        """Change the settings of a subscription."""
        subscription.configure(config)
        self.trim(subscription.log)
        self.saved(subscription)
        self.timetable.watch(subscription, self.now())

    def saved(self, resource: Topic | Subscription | Snapshot) -> None:
        """Inform the observer that a resource was created or changed."""
        if isinstance(resource, Snapshot):
            value = resource.encode()
        else:
            value = resource.config.SerializeToString()
        self.observer.saved(_KIND[type(resource)], resource.config.name, value)

    def removed(self, resource: Topic | Subscription | Snapshot) -> None:
        """Inform the observer that a resource was deleted or has expired."""
        if isinstance(resource, Subscription) and resource.consumers.max_waiting != MAX_WAITING:
            # Remove the limit first, so that no limit exists without its subscription.
            self.observer.removed(Resource.PULLS, resource.name)
        self.observer.removed(_KIND[type(resource)], resource.config.name)


_KIND: Mapping[type, Resource] = {
    Topic: Resource.TOPIC,
    Subscription: Resource.SUBSCRIPTION,
    Snapshot: Resource.SNAPSHOT,
}


def check_room(collection: str, known: ByName[Any], name: str, maximum: int | None = None) -> None:
    """Refuse a new resource if its project already has `maximum` of its kind.

    Args:
        collection: The kind of the resource, for the error text.
        known: All resources of this kind.
        name: The name of the new resource.
        maximum: Maximum number of resources of this kind in a project; None: MAX_RESOURCES has it.

    Raises:
        ResourceExhausted: The project has no room for the resource.
    """
    maximum = maximum or MAX_RESOURCES[collection]
    count = known.number_in(names.project_of(name))
    if count >= maximum:
        raise limit_exceeded(f"{collection}-per-project", count, maximum)


class ListRequest(Protocol):
    """A request for a page of a project's resources."""

    project: str
    page_size: int
    page_token: str


def page_of_project(
    known: ByName[R], request: ListRequest, wanted: Callable[[R], bool] | None = None
) -> tuple[list[R], str]:
    """Return one page of a project's resources, and the token of the next page.

    Args:
        known: All resources of this kind.
        request: Names the project and the page.
        wanted: Whether a resource is listed; None: all are.
    """
    project = names.project_of(names.validate_project(request.project))
    listed, token = page(
        lambda after: (
            name
            for name in known.names_after(after, project)
            if wanted is None or wanted(known[name])
        ),
        request.page_size,
        request.page_token,
    )
    return [known[name] for name in listed], token


def page(
    names_after: Callable[[str], Iterable[str]], page_size: int, page_token: str
) -> tuple[list[str], str]:
    """Return the names of one page and the token of the next page, "" after the last.

    The token contains the last name of the page. So a name that exists during the whole listing is
    neither repeated nor skipped, even if other names are created or deleted between two calls.

    Args:
        names_after: Returns the names after a given one, in their order; "" is before all names.
        page_size: Maximum number of names on the page; 0 means DEFAULT_PAGE_SIZE. It is limited to
            MAX_PAGE_SIZE.
        page_token: The token from the page before, "" for the first page.

    Raises:
        InvalidArgument: `page_size` is negative, or `page_token` is not from a list.
    """
    if page_size < 0:
        raise invalid_argument("page_size")
    after = _name_in(page_token)
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    found = list(islice(names_after(after), size + 1))
    return found[:size], _token_of(found[size - 1]) if len(found) > size else ""


def _token_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_in(token: str) -> str:
    try:
        name = base64.urlsafe_b64decode(token.encode()).decode()
    except (ValueError, binascii.Error):
        name = ""
    if token and not name.startswith("projects/"):
        raise invalid_argument("page_token")
    return name
