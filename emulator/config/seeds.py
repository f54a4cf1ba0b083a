"""The requests that make what a broker holds from its start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from protocol.errors import AlreadyExists, PullstreamError, RpcError
from protocol.messages import pubsub_pb2 as pubsub

# Carries out a request of a method, in snake case, as if a client had sent it.
Call = Callable[[str, Any], Any]


class ConfigError(PullstreamError):
    """What is asked for cannot be had; the text names source, place and value."""


@dataclass(frozen=True)
class Seed:
    """One request, and where it was asked for."""

    where: str
    method: str
    request: Any


@dataclass(frozen=True)
class Seeds:
    """Requests in the order in which they can be carried out."""

    seeds: tuple[Seed, ...] = ()

    def __add__(self, other: Seeds) -> Seeds:
        """Both, with what belongs to the first of all kinds before the rest."""
        order = ("create_schema", "create_topic", "create_subscription", "publish")
        both = (*self.seeds, *other.seeds)
        return Seeds(tuple(sorted(both, key=lambda seed: order.index(seed.method))))

    def plant(self, call: Call) -> None:
        """Make all of it; what is there already (a data directory brought it back) stays as it is.

        Messages are for a topic that was made now: a restart does not publish them again.

        Raises:
            ConfigError: the broker refuses one.
        """
        made: set[str] = set()
        for seed in self.seeds:
            if seed.method == "publish" and seed.request.topic not in made:
                continue
            try:
                # A copy: what was asked for is not the broker's to complete.
                call(seed.method, type(seed.request).FromString(seed.request.SerializeToString()))
            except AlreadyExists:
                continue
            except RpcError as error:
                raise ConfigError(f"{seed.where}: {error.message}") from error
            if seed.method == "create_topic":
                made.add(seed.request.name)


def topic_seeds(where: str, topic: str, subscriptions: Iterable[str]) -> Iterable[Seed]:
    """A topic and its subscriptions, by full names and without settings."""
    yield Seed(where, "create_topic", pubsub.Topic(name=topic))
    for name in subscriptions:
        yield Seed(where, "create_subscription", pubsub.Subscription(name=name, topic=topic))
