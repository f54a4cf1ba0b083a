"""Dead letters: rejected messages, which are published to the dead-letter topic."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pullstream_protocol import dead_letters
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.message_limits import (
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_ATTRIBUTES,
    MAX_REQUEST_BYTES,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import IDEMPOTENCY_KEY

from .message import Message
from .publish_error import confirmed_ids
from .rpc.rpcs import Rpcs


class DeadLetters:
    """Publishes rejected messages of a client's subscriptions. Thread-safe.

    Args:
        rpcs: The calls of the client.
    """

    def __init__(self, rpcs: Rpcs) -> None:
        self._rpcs = rpcs
        self._lock = CallLock()
        # By subscription: the topic of its dead-letter policy.
        self._topics: dict[str, str] = {}

    def publish(
        self, subscription: str, message: Message, reason: str, topic: str | None = None
    ) -> str:
        """Publish a message to a dead-letter topic; return its new ID.

        The attributes that name the source and the reason are left out as far as a message of the
        server's limits has no room for them.

        Args:
            subscription: Full name of the subscription of the message.
            message: The message.
            reason: The reason, for the attribute `pullstream_reject_reason`.
            topic: Full name of the topic. Default: the topic of the subscription's dead-letter
                policy, which is read once.

        Raises:
            ValueError: The subscription has no dead-letter policy, and `topic` is missing.
            RpcError: A call failed.
            PublishError: The server's answer has no message ID.
        """
        source = dead_letters.source_attributes(
            subscription, message.delivery_attempt or 1, message.publish_time
        )
        request = _request(
            topic or self._topic_of(subscription),
            message,
            # `redrive` needs the subscription, and people need the reason, more than the rest.
            {
                dead_letters.SUBSCRIPTION: source.pop(dead_letters.SUBSCRIPTION),
                dead_letters.SUBSCRIPTION_PROJECT: source.pop(dead_letters.SUBSCRIPTION_PROJECT),
                dead_letters.REASON: _shortened(reason),
                **source,
            },
        )
        # With the key, our broker publishes nothing twice if a reply is lost.
        response = self._rpcs.call(
            "Publish", request, metadata=((IDEMPOTENCY_KEY, uuid.uuid4().hex),)
        )
        return confirmed_ids(response, 1, request.topic)[0]

    def _topic_of(self, subscription: str) -> str:
        with self._lock.once:
            topic = self._topics.get(subscription, "")
        if not topic:
            request = pubsub.GetSubscriptionRequest(subscription=subscription)
            found = self._rpcs.call("GetSubscription", request)
            topic = found.dead_letter_policy.dead_letter_topic
            if not topic:
                raise ValueError(
                    f"{subscription} has no dead-letter topic; set a dead-letter policy, or pass "
                    "dead_letter_topic to reject"
                )
            with self._lock.once:
                self._topics[subscription] = topic
        return topic


def _request(topic: str, message: Message, added: Mapping[str, str]) -> pubsub.PublishRequest:
    """Return the request with a copy of a message.

    Args:
        topic: Full name of the topic.
        message: The message. The attributes of an earlier rejection are left out.
        added: Attributes to add while there is room, the most important ones first.
    """
    request = pubsub.PublishRequest(topic=topic, messages=[dead_letters.original_of(message)])
    attributes = request.messages[0].attributes
    for name, value in added.items():
        if len(attributes) == MAX_ATTRIBUTES:
            break
        attributes[name] = value
        if request.ByteSize() > MAX_REQUEST_BYTES:
            del attributes[name]
    return request


def _shortened(reason: str) -> str:
    """Return the reason as an attribute's value: in UTF-8, and without the part that is too long.

    A character that UTF-8 cannot encode, such as one from a file name, becomes a question mark.
    """
    encoded = reason.encode(errors="replace")
    if len(encoded) <= MAX_ATTRIBUTE_VALUE_BYTES:
        return encoded.decode()
    return encoded[: MAX_ATTRIBUTE_VALUE_BYTES - 3].decode(errors="ignore") + "..."
