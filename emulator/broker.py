"""What a broker is made of, put together. Nothing of it is served yet: that is server.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from protocol.clock import AdvancingClock, Clock, OffsetClock
from protocol.errors import InvalidArgument, NotFound, RpcError

from .engine import Engine
from .engine.observer import Resource
from .feeds import Feeds
from .feeds.dependents import Dependents
from .history import History
from .observers import Observers
from .policies import Policies
from .schemas import SchemaRegistry
from .services.channels import ChannelsService
from .services.feeds import FeedsService
from .services.head_start import HeadStart
from .services.iam import IamService
from .services.publisher import PublisherService
from .services.pulls import PullsService
from .services.schema import SchemaService
from .services.subscriber import SubscriberService
from .storage.durability import Durability

if TYPE_CHECKING:
    from .storage.storage import Storage

PROFILES = ("production", "emulator")


class Broker:
    """The owners of a broker's state, its clock and its history.

    services: objects with one method for each RPC that they offer.

    Args:
        clock: what it takes for time; by default real time, which can be moved ahead.
        engine: one that is there already, with what it holds.
        history: how many events are kept. None: of none is any notice taken, which is fastest.
        profile: one of PROFILES. "emulator" allows what fast tests want: ack deadlines from 1 s.
        max_bytes: of all messages that are kept; a publish that would exceed it is refused.
        storage: brings back what it has kept, and keeps what changes.
    """

    # By engine: whoever hands an engine on means the rest of its broker too.
    _known: ClassVar[WeakValueDictionary[int, Broker]] = WeakValueDictionary()

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        engine: Engine | None = None,
        history: int | None = None,
        profile: str = PROFILES[0],
        max_bytes: int | None = None,
        storage: Storage | None = None,
    ) -> None:
        if profile not in PROFILES:
            raise ValueError(f"profile must be one of {', '.join(PROFILES)}: {profile!r}")
        self.clock = _advancing(clock)
        self.history = History(self.clock, limit=history or 0)
        self.storage = storage
        self.is_closed = False
        self.policies = Policies(exists=self._exists, observer=storage)
        listeners = (None if history is None else self.history, storage)
        self.channels = ChannelsService(self.clock, self._has_topic)
        observer = Observers(
            self.policies, self.channels, *(each for each in listeners if each is not None)
        )
        self.schemas = SchemaRegistry(wall=self.clock.now, observer=observer)
        self.engine = engine or Engine(
            wall=self.clock.now,
            monotonic=self.clock.monotonic,
            observer=observer,
            validate=self.schemas.validate,
            check_settings=self.schemas.check_settings,
            max_bytes=max_bytes,
            lenient=profile == "emulator",
        )
        self.dependents = Dependents(self.engine, lambda topic: self.feeds.feed(topic), storage)
        self.feeds = Feeds(
            self.engine,
            default_durability=Durability.MEMORY if storage is None else storage.default,
            observer=self.dependents,
        )
        self.schemas.on_deleted = self.engine.forget_schema
        self.engine.topics.on_deleted = self.dependents.topic_deleted
        head_start = HeadStart(storage.newest_barrier) if storage else HeadStart()
        self.services: tuple[object, ...] = (
            PublisherService(self.engine, head_start),
            SubscriberService(self.engine, head_start),
            PullsService(self.engine),
            FeedsService(self.feeds, self.dependents.routers, self.dependents.cursors),
            self.channels,
            SchemaService(self.schemas),
            IamService(self.policies),
        )
        self._known[id(self.engine)] = self
        if storage is not None:
            self._bring_back(storage)

    @classmethod
    def holding(cls, engine: Engine) -> Broker | None:
        """The broker that an engine belongs to, as long as somebody has it."""
        return cls._known.get(id(engine))

    def call(self, method: str, request: Any) -> Any:
        """Carry out a request as if a client had sent it; `method` is in snake case."""
        service = next(service for service in self.services if hasattr(service, method))
        return getattr(service, method)(request)

    def reset(self) -> None:
        """Forget everything; what is open ends."""
        self.channels.forget_all()
        self.feeds.reset()
        self.engine.reset()
        self.schemas.clear()
        self.policies.clear()
        self.history.clear()

    def disconnect(self, reason: RpcError) -> None:
        """Tell every open stream and every waiting call to end with `reason`."""
        self.engine.disconnect(reason)
        self.feeds.disconnect(reason)
        self.channels.forget_all(reason)

    def close(self) -> None:
        """Let the storage finish, if there is one. Nothing may change afterwards."""
        if self.storage is not None and not self.is_closed:
            self.is_closed = True
            self.storage.close()

    def _bring_back(self, storage: Storage) -> None:
        for name, value in storage.resources(Resource.SCHEMA).items():
            self.schemas.restore(name, value)
        for name, value in storage.resources(Resource.POLICY).items():
            self.policies.restore(name, value)
        # Read before `restore`, which lets go of what was read; for what exists only after it.
        limits = storage.resources(Resource.PULLS)
        routers, positions = storage.resources(Resource.ROUTER), storage.notes(Resource.ROUTER)
        cursors = storage.resources(Resource.CURSOR)
        storage.restore(self.engine, self.feeds.book.restore)
        for name, value in routers.items():
            self.dependents.routers.restore(value, positions.get(name))
        for value in cursors.values():
            self.dependents.cursors.restore(value)
        for name, value in limits.items():
            self.engine.pulls.restore(name, value)

    def _has_topic(self, name: str) -> bool:
        try:
            self.engine.get_topic(name)
        except (InvalidArgument, NotFound):
            return False
        return True

    def _exists(self, name: str) -> bool:
        """Whether there is a topic, subscription, snapshot or schema of this name."""
        collection = name.split("/")[2]
        try:
            if collection == "topics":
                self.engine.get_topic(name)
            elif collection == "subscriptions":
                self.engine.get_subscription(name)
            elif collection == "snapshots":
                self.engine.get_snapshot(name)
            else:
                return name in self.schemas
        except NotFound:
            return False
        return True


def _advancing(clock: Clock | None) -> AdvancingClock:
    """`clock`, made to be moved by hand if it cannot."""
    if isinstance(clock, AdvancingClock):
        return clock
    return OffsetClock(clock)
