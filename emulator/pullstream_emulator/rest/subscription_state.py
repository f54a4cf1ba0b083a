"""The messages and clients of a subscription over HTTP, without a lease.

GET /v0/subscriptions/NAME/messages    unacknowledged messages; ?state= ?limit= ?filter=
GET /v0/subscriptions/NAME/clients     clients with their flow control

`?project=` names the project of the subscription, as for all requests below /v0.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from aiohttp import web

from pullstream_emulator.access import Access
from pullstream_emulator.broker import Broker
from pullstream_emulator.engine.delivery.delivery_state import Consumer, Delivery
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.filter import compile_filter

from . import http_request
from .http_request import json_response
from .message_json import message_json
from .v0.short_names import DEFAULT_PROJECT

DEFAULT_MESSAGES = 100
MAX_MESSAGES = 1000

PARAMETERS_OF_MESSAGES = ("state", "limit", "filter")
STATES = ("waiting", "leased", "delayed", "acknowledged")

# Number of messages after which a search lets other calls run.
_SEARCH_STEP = 500


class SubscriptionStateHandlers:
    """Answers requests for the state of one subscription, on the broker's event loop.

    Args:
        broker: The broker.
        access: Checks tokens; None allows everything to everybody.
    """

    def __init__(self, broker: Broker, access: Access | None) -> None:
        self._engine = broker.engine
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. Their handlers check the caller's token."""
        return [
            web.get("/v0/subscriptions/{name}/messages", self.messages),
            web.get("/v0/subscriptions/{name}/clients", self.clients),
        ]

    async def messages(self, request: web.Request) -> web.Response:
        """Answer with the oldest unacknowledged messages, in the order of publishing."""
        subscription = self._subscription(request)
        http_request.check_parameters(request, PARAMETERS_OF_MESSAGES)
        state = request.query.get("state", "")
        if state and state not in STATES:
            raise InvalidArgument(
                f"The parameter state is {state[:100]!r}; it must be one of {', '.join(STATES)}."
            )
        limit = min(
            http_request.number(request, "limit", DEFAULT_MESSAGES, minimum=1), MAX_MESSAGES
        )
        accepts = compile_filter(request.query.get("filter", ""))
        has_filter = bool(request.query.get("filter"))
        found: list[dict[str, Any]] = []
        further = 0
        by_age = iter(subscription.messages)
        examined = by_age if state or has_filter else islice(by_age, limit)
        for position, delivery in enumerate(examined, 1):
            if position % _SEARCH_STEP == 0:
                await asyncio.sleep(0)
            if state and state != _state(subscription, delivery):
                continue
            if has_filter and not accepts(delivery.record.message().attributes):
                continue
            if len(found) < limit:
                now = self._engine.registry.now().monotonic
                found.append(_message(subscription, delivery, now))
            else:
                further += 1
        if not (state or has_filter):
            further = len(subscription.messages) - len(found)
        return json_response({"messages": found, "further": max(further, 0)})

    async def clients(self, request: web.Request) -> web.Response:
        """Answer with the clients that receive messages now."""
        http_request.check_parameters(request, ())
        consumers = self._subscription(request).consumers
        return json_response({"clients": [_client(consumer) for consumer in consumers]})

    def _subscription(self, request: web.Request) -> Subscription:
        """Return the subscription that the path names.

        Raises:
            NotFound: There is no such subscription.
            PermissionDenied: The caller may not use its project.
        """
        project = request.query.get("project", DEFAULT_PROJECT)
        if self._access is not None:
            self._access.check(http_request.authorization(request), project)
        name = names.subscription_path(project, request.match_info["name"])
        return self._engine.registry.subscription(names.validate("subscriptions", name))


def _state(subscription: Subscription, delivery: Delivery) -> str:
    """Return one of STATES for a message."""
    if delivery.acked:
        # An earlier message of its key is not acknowledged yet.
        return "acknowledged"
    if delivery.holder is not None:
        return "leased"
    return "waiting" if subscription.resumes_at(delivery) is None else "delayed"


def _message(subscription: Subscription, delivery: Delivery, now: float) -> dict[str, Any]:
    state = _state(subscription, delivery)
    content: dict[str, Any] = {
        "state": state,
        "attempts": delivery.attempts,
        "message": message_json(delivery.record),
    }
    if state == "leased":
        due = subscription.leases.due_of(delivery.ack_id)
        content["ackId"] = delivery.ack_id
        content["client"] = delivery.client
        content["leaseSeconds"] = 0.0 if due is None else max(due - now, 0.0)
    elif state == "delayed":
        content["delaySeconds"] = max((subscription.resumes_at(delivery) or now) - now, 0.0)
    return content


def _client(consumer: Consumer) -> dict[str, Any]:
    kind = "push" if consumer.is_push else "pull" if consumer.is_pull else "stream"
    return {
        "client": consumer.client,
        "kind": kind,
        "ackDeadlineSeconds": consumer.ack_deadline,
        "maxOutstandingMessages": consumer.max_messages,
        "maxOutstandingBytes": consumer.max_bytes,
        "outstandingMessages": consumer.outstanding_messages,
        "outstandingBytes": consumer.outstanding_bytes,
        "hasRoom": consumer.has_room,
        "orderingKeys": len(consumer.ready_keys),
    }
