"""A delivery as an HTTP request, wrapped in Google's JSON or bare."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protocol.messages import pubsub_pb2 as pubsub

from . import oidc

USER_AGENT = "CloudPubSub-Google"

# RFC 9110: a token, and what a field value may hold. Attributes may hold anything, so those that
# are neither stay behind, rather than to split a header in two.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")

# An attribute must not change where the request ends, whom it is for, or whom it says it is from.
_RESERVED = frozenset(
    (
        *("authorization", "connection", "content-length", "expect", "host", "keep-alive", "te"),
        *("trailer", "transfer-encoding", "upgrade", "user-agent"),
    )
)
_METADATA = "x-goog-pubsub-"


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted to an endpoint."""

    url: str
    headers: dict[str, str]
    body: bytes


def request(subscription: pubsub.Subscription, encoded: bytes, attempt: int, now: float) -> Request:
    """The request for a serialized PubsubMessage that is delivered for the `attempt`th time.

    `now` is wall time. Attempts are told only where a dead-letter policy makes them count.
    """
    config = subscription.push_config
    message = pubsub.PubsubMessage.FromString(encoded)
    headers = {"User-Agent": USER_AGENT}
    if config.HasField("oidc_token"):
        headers["Authorization"] = f"Bearer {oidc.token(config, now)}"
    if config.HasField("no_wrapper"):
        if config.no_wrapper.write_metadata:
            headers = {**_metadata(subscription.name, message), **headers}
        return Request(config.push_endpoint, headers, message.data)
    headers["Content-Type"] = "application/json"
    wrapped = _wrapped(subscription, message, attempt)
    return Request(config.push_endpoint, headers, json.dumps(wrapped).encode())


def _wrapped(
    subscription: pubsub.Subscription, message: pubsub.PubsubMessage, attempt: int
) -> dict[str, Any]:
    published = _time(message.publish_time)
    # Both spellings of these two, as the real service has it.
    inner: dict[str, Any] = {
        "messageId": message.message_id,
        "message_id": message.message_id,
        "publishTime": published,
        "publish_time": published,
    }
    if message.attributes:
        inner["attributes"] = dict(message.attributes)
    if message.data:
        inner["data"] = base64.b64encode(message.data).decode()
    if message.ordering_key:
        inner["orderingKey"] = message.ordering_key
    wrapped: dict[str, Any] = {"message": inner, "subscription": subscription.name}
    if subscription.HasField("dead_letter_policy"):
        wrapped["deliveryAttempt"] = attempt
    return wrapped


def _metadata(subscription: str, message: pubsub.PubsubMessage) -> dict[str, str]:
    headers = {
        key: value
        for key, value in message.attributes.items()
        if _HEADER_NAME.fullmatch(key)
        and _HEADER_VALUE.fullmatch(value)
        and key.lower() not in _RESERVED
        and not key.lower().startswith(_METADATA)
    }
    headers[_METADATA + "subscription-name"] = subscription
    headers[_METADATA + "message-id"] = message.message_id
    headers[_METADATA + "publish-time"] = _time(message.publish_time)
    if message.ordering_key and _HEADER_VALUE.fullmatch(message.ordering_key):
        headers[_METADATA + "ordering-key"] = message.ordering_key
    return headers


def _time(moment: Timestamp) -> str:
    """RFC 3339 with as many digits as it has."""
    return moment.ToJsonString()
