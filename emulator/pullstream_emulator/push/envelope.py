"""A delivery as an HTTP request, with or without Google's JSON wrapper, and its token."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_protocol.messages import pubsub_pb2 as pubsub

USER_AGENT = "CloudPubSub-Google"

# The issuer of Google's tokens, and the seconds for which one is valid.
ISSUER = "https://accounts.google.com"
LIFETIME = 3600

# RFC 9110: a token, and the characters of a field value. Attributes may have any characters. The
# others are omitted, because they could split a header in two.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")

# A publisher chooses the attributes, but an endpoint trusts the broker and the proxies. Therefore
# no attribute becomes a header of the connection (RFC 9110, 7.6.1), of the request's target, of
# credentials, or one that a proxy sets.
_RESERVED = frozenset(
    (
        *("connection", "content-length", "expect", "http2-settings", "keep-alive", "te"),
        *("trailer", "trailers", "transfer-encoding", "upgrade"),
        *("host", "user-agent", "via", "forwarded", "x-real-ip", "x-client-ip", "x-remote-user"),
        *("x-cluster-client-ip", "true-client-ip", "x-remote-ip", "x-remote-addr", "x-host"),
        *("x-http-method", "x-http-method-override", "x-method-override", "x-rewrite-url"),
        *("authorization", "cookie", "cookie2", "set-cookie", "set-cookie2", "x-api-key"),
        *("x-csrf-token", "x-xsrf-token"),
    )
)
_RESERVED_PREFIXES = (
    *("proxy-", "sec-", "x-forwarded-", "x-original-", "x-auth-", "x-authenticated-"),
    *("x-goog-", "x-amz-", "x-amzn-", "x-envoy-", "x-ms-client-principal", "cf-", "fastly-"),
)
_METADATA = "x-goog-pubsub-"


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A POST request to an endpoint.

    Attributes:
        url: The endpoint.
        headers: The headers.
        body: The body.
    """

    url: str
    headers: dict[str, str]
    body: bytes


class PushAnswer(NamedTuple):
    """The outcome of a request.

    Attributes:
        is_accepted: Whether the endpoint accepted the message.
        text: The endpoint's status, or the reason that there is none, for people.
    """

    is_accepted: bool
    text: str


def request(
    subscription: pubsub.Subscription, encoded: bytes, attempt: int, now: float
) -> PushRequest:
    """Return the request for one delivery of a message.

    Args:
        subscription: The subscription.
        encoded: The serialized PubsubMessage.
        attempt: Number of the delivery attempt; sent only with a dead-letter policy.
        now: Wall time, in seconds.
    """
    config = subscription.push_config
    message = pubsub.PubsubMessage.FromString(encoded)
    headers = {"User-Agent": USER_AGENT}
    if config.HasField("oidc_token"):
        headers["Authorization"] = f"Bearer {oidc_token(config, now)}"
    if config.HasField("no_wrapper"):
        if config.no_wrapper.write_metadata:
            headers = {**_metadata(subscription.name, message), **headers}
        return PushRequest(config.push_endpoint, headers, message.data)
    headers["Content-Type"] = "application/json"
    return PushRequest(config.push_endpoint, headers, _wrapped(subscription, message, attempt))


def _wrapped(
    subscription: pubsub.Subscription, message: pubsub.PubsubMessage, attempt: int
) -> bytes:
    published = _time(message.publish_time)
    # These two have both spellings, as in the real service.
    inner: dict[str, Any] = {
        "messageId": message.message_id,
        "message_id": message.message_id,
        "publishTime": published,
        "publish_time": published,
    }
    if message.attributes:
        inner["attributes"] = dict(message.attributes)
    if message.ordering_key:
        inner["orderingKey"] = message.ordering_key
    outer: dict[str, Any] = {"subscription": subscription.name}
    if subscription.HasField("dead_letter_policy"):
        outer["deliveryAttempt"] = attempt
    # Base64 needs no escaping. Searching 12 MB for characters to escape would take json 30 ms.
    data = (b', "data": "', base64.b64encode(message.data), b'"') if message.data else ()
    members = json.dumps(inner).encode()[1:-1], json.dumps(outer).encode()[1:-1]
    return b"".join((b'{"message": {', members[0], *data, b"}, ", members[1], b"}"))


def _metadata(subscription: str, message: pubsub.PubsubMessage) -> dict[str, str]:
    headers = {
        key: value
        for key, value in message.attributes.items()
        if _HEADER_NAME.fullmatch(key) and _HEADER_VALUE.fullmatch(value) and not _is_reserved(key)
    }
    headers[_METADATA + "subscription-name"] = subscription
    headers[_METADATA + "message-id"] = message.message_id
    headers[_METADATA + "publish-time"] = _time(message.publish_time)
    if message.ordering_key and _HEADER_VALUE.fullmatch(message.ordering_key):
        headers[_METADATA + "ordering-key"] = message.ordering_key
    return headers


def _is_reserved(name: str) -> bool:
    # CGI and WSGI map both spellings to one name: X_Real_IP is X-Real-IP.
    name = name.lower().replace("_", "-")
    return name in _RESERVED or name.startswith(_RESERVED_PREFIXES)


def _time(timestamp: Timestamp) -> str:
    """Return the time in RFC 3339, with as many digits as needed."""
    return timestamp.ToJsonString()


def oidc_token(config: pubsub.PushConfig, now: float) -> str:
    """Return an unsigned JWT for a config with `oidc_token`, issued at wall time `now`.

    The token has the form and the claims of Google's tokens, for testing an endpoint's code, but no
    signature (RFC 7519, section 6): it proves nothing, and no verifier accepts it as one of
    Google's.
    """
    email = config.oidc_token.service_account_email
    # Google's subject is the account's number, which is unknown here; this value is as constant.
    subject = str(int.from_bytes(hashlib.blake2s(email.encode(), digest_size=8).digest(), "big"))
    claims = {
        "aud": config.oidc_token.audience or config.push_endpoint,
        "azp": subject,
        "email": email,
        "email_verified": True,
        "exp": int(now) + LIFETIME,
        "iat": int(now),
        "iss": ISSUER,
        "sub": subject,
    }
    return f"{_segment({'alg': 'none', 'typ': 'JWT'})}.{_segment(claims)}."


def _segment(content: dict[str, object]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
