"""The stored dead letters over HTTP.

GET  /v0/dead-letters          unacknowledged messages of the dead-letter subscriptions; ?limit=
POST /v0/dead-letters/resend   publish one of them to its source again, and acknowledge it

A dead-letter subscription is attached to a topic that the dead-letter policy of a subscription
names. So messages that the broker gave up are here, and messages that a program rejected. With
tokens, a caller sees the projects that its principal may use. docs/console.md describes the bodies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiohttp import web

from pullstream_emulator.access import Access
from pullstream_emulator.broker import Broker
from pullstream_emulator.engine import Consumer, Delivery
from pullstream_emulator.engine.delivery.delivery_state import too_early
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.resources.subscriptions import is_push
from pullstream_emulator.monitoring.status import MaySee
from pullstream_emulator.services.disk_barrier import change
from pullstream_protocol import dead_letters, names
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import http_request
from .http_request import json_response, visible_projects
from .message_json import message_json

DEFAULT_LETTERS = 100
MAX_LETTERS = 1000

# The name of the console among the clients of a subscription.
_CLIENT = "console"


class DeadLetters:
    """Answers requests for dead letters, on the broker's event loop.

    Args:
        broker: The broker.
        access: Checks tokens; None allows everything to everybody.
    """

    def __init__(self, broker: Broker, access: Access | None) -> None:
        self._engine = broker.engine
        self._storage = broker.storage
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. Their handlers check the caller's token."""
        return [
            web.get("/v0/dead-letters", self.list),
            web.post("/v0/dead-letters/resend", self.resend),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """Answer with stored dead letters, the oldest of each subscription first."""
        may_see = visible_projects(request, self._access)
        http_request.check_parameters(request, ("limit",))
        limit = min(http_request.number(request, "limit", DEFAULT_LETTERS, minimum=1), MAX_LETTERS)
        topics = self._topics(may_see)
        subscriptions = list(self._subscriptions(topics, may_see))
        letters = (
            (subscription, delivery)
            for subscription in subscriptions
            for delivery in subscription.messages
        )
        shown = [self._letter(*letter) for letter in islice(letters, limit)]
        stored = sum(len(subscription.messages) for subscription in subscriptions)
        with_subscription = {subscription.config.topic for subscription in subscriptions}
        return json_response(
            {
                "deadLetters": shown,
                "further": stored - len(shown),
                "topicsWithoutSubscription": sorted(topics - with_subscription),
            }
        )

    async def resend(self, request: web.Request) -> web.Response:
        """Publish a copy of a dead letter to the topic of its source, and acknowledge it.

        The copy has none of the attributes of dead-lettering. The broker does both or nothing.

        Raises:
            NotFound: There is no such message, or its source has no topic any more.
            FailedPrecondition: A client has leased the message, or an earlier message of its
                ordering key is not acknowledged.
        """
        may_see = visible_projects(request, self._access)
        http_request.check_parameters(request, ())
        name, message_id = _resend_request(await http_request.body(request))
        if not may_see(names.project_of(name)):
            raise NotFound(f"There is no dead-letter subscription {name}.")
        new_id = await change(self._storage, lambda: self._resend(name, message_id, may_see))
        return json_response({"messageId": new_id})

    def _resend(self, name: str, message_id: str, may_see: MaySee) -> str:
        subscription = self._engine.registry.subscription(name)
        delivery = _find(subscription, message_id)
        message = delivery.record.message()
        topic = self._source_topic(message.attributes)
        if not topic or not may_see(names.project_of(topic)):
            raise NotFound(
                f"The message {message_id} names no source with a topic. Publish it to a topic of "
                "your choice."
            )
        consumer = Consumer(
            ack_deadline=subscription.config.ack_deadline_seconds,
            wake=lambda: None,
            is_push=is_push(subscription.config),
            client=_CLIENT,
        )
        # Nothing else happens on the event loop until the consumer has left. The other messages
        # that it took go back without a counted attempt.
        self._engine.join(name, consumer)
        try:
            ack_id = self._lease(subscription, consumer, delivery)
            request = pubsub.PublishRequest(
                topic=topic, messages=[dead_letters.original_of(message)]
            )
            (new_id,) = self._engine.publish(request)
            self._engine.acknowledge(name, [ack_id])
        finally:
            self._engine.leave(subscription, consumer)
        return new_id

    def _lease(self, subscription: Subscription, consumer: Consumer, wanted: Delivery) -> str:
        while taken := self._engine.take(subscription, consumer):
            for ack_id, delivery in taken:
                # An acknowledgement before the earlier messages of the key would not be final.
                if delivery.record is wanted.record and not too_early({delivery}):
                    return ack_id
        raise FailedPrecondition(
            f"The message {wanted.record.seq} is leased to a client, waits for a retry, or is "
            "behind another message of its ordering key. Resend that message first, or try again "
            "later."
        )

    def _topics(self, may_see: MaySee) -> set[str]:
        """Return the topics that dead-letter policies of visible subscriptions name."""
        return {
            subscription.config.dead_letter_policy.dead_letter_topic
            for name, subscription in self._engine.registry.subscriptions.items()
            if subscription.config.HasField("dead_letter_policy")
            and may_see(names.project_of(name))
        }

    def _subscriptions(self, topics: set[str], may_see: MaySee) -> Iterator[Subscription]:
        for topic in sorted(topics & self._engine.registry.topics.keys()):
            for name, subscription in self._engine.registry.topics[topic].subscriptions.items():
                if may_see(names.project_of(name)):
                    yield subscription

    def _letter(self, subscription: Subscription, delivery: Delivery) -> dict[str, Any]:
        message = message_json(delivery.record)
        attributes = message.get("attributes", {})
        return {
            "subscription": subscription.name,
            "topic": subscription.config.topic,
            "message": message,
            "isLeased": delivery.holder is not None,
            "source": _source(attributes),
            "sourceTopic": self._source_topic(attributes),
            "reason": attributes.get(dead_letters.REASON, ""),
        }

    def _source_topic(self, attributes: Any) -> str:
        """Return the topic of the subscription that gave a message up; empty if there is none."""
        source = self._engine.registry.subscriptions.get(_source(attributes))
        topic = "" if source is None else source.config.topic
        return topic if topic in self._engine.registry.topics else ""


def _source(attributes: Any) -> str:
    """Return the subscription that gave a message up; empty if the message does not name it."""
    project = attributes.get(dead_letters.SUBSCRIPTION_PROJECT)
    short = attributes.get(dead_letters.SUBSCRIPTION)
    return names.subscription_path(project, short) if project and short else ""


def _resend_request(body: bytes) -> tuple[str, str]:
    """Return the subscription and the message id in the body of a request."""
    try:
        content = json.loads(body)
        name, message_id = content["subscription"], content["messageId"]
    except (ValueError, LookupError, TypeError, RecursionError):
        name = message_id = None
    if not isinstance(name, str) or not isinstance(message_id, str):
        raise InvalidArgument(
            'The body must be {"subscription": "projects/P/subscriptions/S", "messageId": "ID"}.'
        )
    return names.validate("subscriptions", name), message_id


def _find(subscription: Subscription, message_id: str) -> Delivery:
    seq = int(message_id) if message_id.isdecimal() and len(message_id) < 20 else 0
    delivery = subscription.messages.find(seq)
    if delivery is not None and str(seq) == message_id:
        return delivery
    raise NotFound(f"{subscription.name} has no unacknowledged message {message_id[:100]!r}.")
