"""Assembly of a broker from its parts. server.py serves it on the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pullstream_protocol.clock import AdvancingClock, Clock, OffsetClock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .engine import Engine
from .engine.delivery.subscription import MAX_PER_RESPONSE
from .engine.observer import ObserverFanout, Resource
from .engine.settings.durability import Durability
from .history import History
from .logs import Feeds
from .logs.dependents import Dependents
from .monitoring import Counters
from .schemas import SchemaRegistry
from .services.channels import ChannelsService
from .services.feeds import FeedsService
from .services.iam_policies import IamPolicies
from .services.publisher import PublisherService
from .services.reply_first import ReplyFirst
from .services.rpc_methods import RpcService, UnaryMethod
from .services.schema import SchemaService
from .services.schema_checks import CheckThreads, SchemaChecks
from .services.subscriber import PullsService, SubscriberService

if TYPE_CHECKING:
    from .storage.storage import Storage

PROFILES = ("production", "emulator")


def _ignore(*_: object) -> None:
    """Do nothing: no server serves the broker."""


@dataclass(frozen=True)
class ServerHooks:
    """Calls by which a broker asks its server for work, on the server's event loop.

    They must only record the call and must not call the broker, which is in the middle of its work.

    Attributes:
        engine_due: Called with the monotonic time at which the engine has earlier work.
        channels_due: Called with the monotonic time at which the channels have earlier work.
        push_changed: Called with a subscription whose push delivery is affected by a change.
        more_to_forward: Called when routers have more to copy than one turn allows.
    """

    engine_due: Callable[[float], None] = _ignore
    channels_due: Callable[[float], None] = _ignore
    push_changed: Callable[[str], None] = _ignore
    more_to_forward: Callable[[], object] = _ignore


class Broker:
    """The owners of a broker's state, its clock and its history.

    Args:
        clock: Source of time. By default real time, which can be advanced by hand.
        history: Number of events to keep. None disables recording, which is fastest.
        profile: One of PROFILES. "emulator" accepts ack deadlines from 1 s, for fast tests.
        max_bytes: Limit for the stored messages, in bytes; a publish above it is refused. None
            means no limit.
        storage: Restores the stored state, and persists changes. None keeps everything in memory.
        return_leases_on_disconnect: See `Emulator`.
        max_pull_messages: See `Emulator`.

    Attributes:
        hooks: The server's; set while a server serves the broker.
        counters: Counters of topics and subscriptions.
        max_bytes: The argument of this name.
        services: The services, each with a table of its RPCs.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        history: int | None = None,
        profile: str = PROFILES[0],
        max_bytes: int | None = None,
        storage: Storage | None = None,
        return_leases_on_disconnect: bool = False,
        max_pull_messages: int = MAX_PER_RESPONSE,
    ) -> None:
        if profile not in PROFILES:
            raise ValueError(f"profile must be one of {', '.join(PROFILES)}: {profile!r}")
        if not 1 <= max_pull_messages <= MAX_PER_RESPONSE:
            raise ValueError(
                f"max_pull_messages is {max_pull_messages}; it must be between 1 and "
                f"{MAX_PER_RESPONSE}"
            )
        self.hooks = ServerHooks()
        self.clock = _advancing(clock)
        self.history = History(self.clock, limit=history or 0)
        self.counters = Counters()
        self.max_bytes = max_bytes
        self.storage = storage
        self.is_closed = False
        self.policies = IamPolicies(exists=self._exists, observer=storage)
        listeners = (None if history is None else self.history, storage)
        self.channels = ChannelsService(
            self.clock,
            topic_exists=lambda name: name in self.engine.registry.topics,
            on_due=lambda due: self.hooks.channels_due(due),
        )
        observer = ObserverFanout(
            self.policies,
            self.channels,
            self.counters,
            *(each for each in listeners if each is not None),
        )
        self.schemas = SchemaRegistry(
            wall=self.clock.now,
            observer=observer,
            on_deleted=lambda name: self.engine.forget_schema(name),
        )
        self.engine = Engine(
            wall=self.clock.now,
            monotonic=self.clock.monotonic,
            on_due=lambda due: self.hooks.engine_due(due),
            on_push=lambda name: self.hooks.push_changed(name),
            on_topic_deleted=lambda name: self.dependents.topic_deleted(name),
            observer=observer,
            validate=self.schemas.validate,
            check_settings=self.schemas.check_settings,
            max_bytes=max_bytes,
            lenient=profile == "emulator",
            return_leases_on_disconnect=return_leases_on_disconnect,
        )
        self.dependents = Dependents(
            self.engine,
            lambda topic: self.feeds.feed(topic),
            on_more=lambda: self.hooks.more_to_forward(),
            observer=storage,
        )
        self.feeds = Feeds(
            self.engine,
            default_durability=Durability.MEMORY if storage is None else storage.default,
            observer=self.dependents,
        )
        self.threads = CheckThreads()
        checks = SchemaChecks(self.engine, self.schemas, self.threads)
        reply_first = ReplyFirst(storage.newest_barrier) if storage else ReplyFirst()
        self.services: tuple[RpcService, ...] = (
            PublisherService(self.engine, reply_first, checks, self.clock),
            SubscriberService(self.engine, reply_first, max_pull_messages),
            PullsService(self.engine),
            FeedsService(self.feeds, self.dependents.routers, self.dependents.cursors, checks),
            self.channels,
            SchemaService(self.schemas, self.threads),
            self.policies,
        )
        if storage is not None:
            with storage.restoring():
                self._bring_back(storage)

    def call(self, method: str, request: Any) -> Any:
        """Run a request as if a client had sent it. For use before the broker is served.

        The call does not yield to other work, however long it takes.

        Args:
            method: Name of the RPC.
            request: The request message.
        """
        if method == "Publish":
            return pubsub.PublishResponse(message_ids=self.engine.publish(request))
        for service in self.services:
            entry = service.rpc_methods().get(method)
            if isinstance(entry, UnaryMethod):
                return entry.respond(request)
        raise ValueError(f"no RPC without a stream or a wait has the name {method}")

    def reset(self) -> None:
        """Remove all state and history; end open streams and waiting calls."""
        self.channels.forget_all()
        self.feeds.reset()
        self.engine.reset()
        self.schemas.clear()
        self.policies.clear()
        self.history.clear()

    def disconnect(self, reason: RpcError) -> None:
        """End every open stream and every waiting call with `reason`."""
        self.engine.disconnect(reason)
        self.feeds.disconnect(reason)
        self.channels.forget_all(reason)

    def close(self) -> None:
        """Flush and close the storage, if any. The state must not change afterwards.

        Raises:
            StorageError: Confirmed changes could not be written, and are lost.
        """
        if self.storage is not None and not self.is_closed:
            self.is_closed = True
            self.storage.close()

    def _bring_back(self, storage: Storage) -> None:
        for name, value in storage.resources(Resource.SCHEMA).items():
            self.schemas.restore(name, value)
        for name, value in storage.resources(Resource.POLICY).items():
            self.policies.restore(name, value)
        # Read these before `restore`, which drops the values it has read. Apply them after it,
        # because they refer to resources that `restore` creates.
        limits = storage.resources(Resource.PULLS)
        routers, positions = storage.resources(Resource.ROUTER), storage.notes(Resource.ROUTER)
        cursors, acked = storage.resources(Resource.CURSOR), storage.notes(Resource.ACKED)
        storage.restore(self.engine, self.feeds.feed_registry.restore)
        self.engine.restore_acked(acked)
        for name, value in routers.items():
            self.dependents.routers.restore(value, positions.get(name))
        for value in cursors.values():
            self.dependents.cursors.restore(value)
        for name, value in limits.items():
            self.engine.pulls.restore(name, value)

    def _exists(self, name: str) -> bool:
        """Return whether a topic, subscription, snapshot or schema with this name exists."""
        registry = self.engine.registry
        kinds = (registry.topics, registry.subscriptions, registry.snapshots, self.schemas)
        return any(name in resources for resources in kinds)


def _advancing(clock: Clock | None) -> AdvancingClock:
    """Return `clock`, wrapped so that it can be advanced by hand if necessary."""
    if isinstance(clock, AdvancingClock):
        return clock
    return OffsetClock(clock)
