"""Dead letters: rejected messages, which are published to the dead-letter topic."""

from __future__ import annotations

import threading
import uuid

from pullstream_protocol import dead_letters
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import IDEMPOTENCY_KEY

from .message import Message
from .rpc.rpcs import Rpcs

# Pub/Sub allows 1,024 bytes in an attribute.
_MAX_REASON_BYTES = 1024


class DeadLetters:
    """Publishes rejected messages of a client's subscriptions. Thread-safe.

    Args:
        rpcs: The calls of the client.
    """

    def __init__(self, rpcs: Rpcs) -> None:
        self._rpcs = rpcs
        self._lock = threading.Lock()
        # By subscription: the topic of its dead-letter policy.
        self._topics: dict[str, str] = {}

    def publish(
        self, subscription: str, message: Message, reason: str, topic: str | None = None
    ) -> str:
        """Publish a message to a dead-letter topic; return its new ID.

        Args:
            subscription: Full name of the subscription of the message.
            message: The message.
            reason: The reason, for the attribute `pullstream_reject_reason`.
            topic: Full name of the topic. Default: the topic of the subscription's dead-letter
                policy, which is read once.

        Raises:
            ValueError: The subscription has no dead-letter policy, and `topic` is missing.
            RpcError: A call failed.
        """
        content = pubsub.PubsubMessage(
            data=message.data,
            attributes={
                **message.attributes,
                **dead_letters.source_attributes(
                    subscription, message.delivery_attempt or 1, message.publish_time
                ),
                dead_letters.REASON: _shortened(reason),
            },
            ordering_key=message.ordering_key,
        )
        request = pubsub.PublishRequest(
            topic=topic or self._topic_of(subscription), messages=[content]
        )
        # With the key, our broker publishes nothing twice if a reply is lost.
        response = self._rpcs.call(
            "Publish", request, metadata=((IDEMPOTENCY_KEY, uuid.uuid4().hex),)
        )
        message_id: str = response.message_ids[0]
        return message_id

    def _topic_of(self, subscription: str) -> str:
        with self._lock:
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
            with self._lock:
                self._topics[subscription] = topic
        return topic


def _shortened(reason: str) -> str:
    """Return the reason, without the part that is too long for an attribute."""
    encoded = reason.encode()
    if len(encoded) <= _MAX_REASON_BYTES:
        return reason
    return encoded[: _MAX_REASON_BYTES - 3].decode(errors="ignore") + "..."
