"""What the engine tells of: for storage, which must bring it back, and for a test's history."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import Delivery, Record


class Resource(Enum):
    """What has a name and is kept until somebody deletes it."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    SNAPSHOT = "snapshot"
    SCHEMA = "schema"
    POLICY = "policy"
    # How many pulls may wait on a subscription, by its name.
    PULLS = "pulls"
    # A topic that is read as a log, by the topic's name; routers between such; readers' positions.
    FEED = "feed"
    ROUTER = "router"
    CURSOR = "cursor"


class Return(Enum):
    """Why a message is to be delivered again."""

    NACK = "nack"
    EXPIRED = "expired"
    # Its consumer went away. No attempt is counted.
    GIVEN_BACK = "given back"


class Observer:
    """Told of every change, on the engine's thread, in order, after it has happened.

    This one ignores all of it; others override what they care for. None may wait, raise, or call
    the engine. Names are full resource names.
    """

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        """A resource was made or changed; `value` is all of it, serialized."""

    def removed(self, kind: Resource, name: str) -> None:
        """A resource was deleted, or has expired."""

    def noted(self, kind: Resource, name: str, value: bytes) -> None:
        """Something of a resource that changes all the time, serialized: how far it is by now.

        Nobody waits until it is kept. What is kept in the end may be an earlier one.
        """

    def published(self, topic: str, records: Sequence[Record]) -> None:
        """Messages were appended to a topic, whose subscriptions that let them pass have them.

        What a subscription's filter kept back is `finished` for it right after this.
        """

    def skipped(self, topic: str, first: int, last: int) -> None:
        """These numbers of a topic, its newest, will never have a message."""

    def delivered(self, subscription: str, deliveries: Sequence[Delivery]) -> None:
        """Messages went out to a consumer."""

    def acknowledged(self, subscription: str, deliveries: Sequence[Delivery]) -> None:
        """Messages were acknowledged. With an ordering key they may have to come again: see
        `finished`."""

    def returned(self, subscription: str, deliveries: Sequence[Delivery], why: Return) -> None:
        """Messages go back to the backlog; their `attempts` are counted already."""

    def extended(self, subscription: str, deliveries: Sequence[Delivery], seconds: int) -> None:
        """Leases were given `seconds` from now."""

    def finished(self, subscription: str, seqs: Sequence[int]) -> None:
        """Messages of the subscription's topic will not be delivered again, unless by a seek."""

    def unfinished(self, subscription: str, seqs: Sequence[int]) -> None:
        """A seek brought back messages that were finished."""

    def discarded(self, topic: str, up_to: int) -> None:
        """Messages of a topic up to this sequence number are kept for nobody any more."""
