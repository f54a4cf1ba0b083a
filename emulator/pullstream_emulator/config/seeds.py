"""The requests that create a broker's initial content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullstream_protocol.errors import AlreadyExists, PullstreamError, RpcError

# Runs a request of an RPC as if a client had sent it.
Call = Callable[[str, Any], Any]


class ConfigError(PullstreamError):
    """The configured content cannot be created; the text names source, place and value."""


@dataclass(frozen=True)
class Seed:
    """One request, and the place in the configuration that asks for it.

    Attributes:
        where: The place, for error texts.
        method: Name of the RPC.
        request: The request message.
    """

    where: str
    method: str
    request: Any


@dataclass(frozen=True)
class Seeds:
    """Requests in an order in which they can be run.

    Attributes:
        seeds: The requests.
    """

    seeds: tuple[Seed, ...] = ()

    def __add__(self, other: Seeds) -> Seeds:
        """Return the requests of both, sorted by kind: schemas first, messages last."""
        order = ("CreateSchema", "CreateTopic", "CreateSubscription", "Publish")
        both = (*self.seeds, *other.seeds)
        return Seeds(tuple(sorted(both, key=lambda seed: order.index(seed.method))))

    def plant(self, call: Call) -> None:
        """Run all requests; resources that exist already (in a data directory) stay unchanged.

        Messages are published only to topics that this call creates, so that a restart does not
        publish them again.

        Raises:
            ConfigError: The broker refuses a request.
        """
        made: set[str] = set()
        for seed in self.seeds:
            if seed.method == "Publish" and seed.request.topic not in made:
                continue
            try:
                # Pass a copy, because the broker may change the request.
                call(seed.method, type(seed.request).FromString(seed.request.SerializeToString()))
            except AlreadyExists:
                continue
            except RpcError as error:
                raise ConfigError(f"{seed.where}: {error.message}") from error
            if seed.method == "CreateTopic":
                made.add(seed.request.name)
