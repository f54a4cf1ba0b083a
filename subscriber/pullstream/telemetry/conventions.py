"""Names of OpenTelemetry's semantic conventions for messaging, as used for Pub/Sub.

Copied here, because the package that defines them keeps these names in a private module and is not
needed for anything else. https://opentelemetry.io/docs/specs/semconv/messaging/gcp-pubsub/
"""

from __future__ import annotations

from pullstream_protocol import names

Attributes = dict[str, str | int]

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION_NAME = "messaging.destination.name"
SUBSCRIPTION_NAME = "messaging.destination.subscription.name"
MESSAGE_COUNT = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
BODY_SIZE = "messaging.message.body.size"
ORDERING_KEY = "messaging.gcp_pubsub.message.ordering_key"
DELIVERY_ATTEMPT = "messaging.gcp_pubsub.message.delivery_attempt"
ERROR_TYPE = "error.type"

CONSUMED_MESSAGES = "messaging.client.consumed.messages"
PROCESS_DURATION = "messaging.process.duration"
OPERATION_DURATION = "messaging.client.operation.duration"

GCP_PUBSUB = "gcp_pubsub"
CREATE = "create"
PROCESS = "process"
SETTLE = "settle"

# Not part of the conventions. Without it, subscriptions of two projects with the same id look the
# same. The official client writes it, too.
PROJECT_ID = "gcp.project_id"

# The conventions' buckets for the duration of an operation, in seconds.
DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def of_subscription(subscription: str) -> Attributes:
    """Return the attributes of every span and metric of a subscription.

    They name the subscription by its id, the last part of its full name. The destination is the
    subscription, because a consumer does not know the topic.
    """
    short = names.short_id(subscription)
    attributes: Attributes = {SYSTEM: GCP_PUBSUB, DESTINATION_NAME: short, SUBSCRIPTION_NAME: short}
    parts = names.parse("subscriptions", subscription)
    if parts:
        attributes[PROJECT_ID] = parts["project"]
    return attributes


def of_topic(topic: str) -> Attributes:
    """Return the attributes of the span of a published message."""
    attributes: Attributes = {
        SYSTEM: GCP_PUBSUB,
        DESTINATION_NAME: names.short_id(topic),
        OPERATION_NAME: CREATE,
        OPERATION_TYPE: CREATE,
    }
    parts = names.parse("topics", topic)
    if parts:
        attributes[PROJECT_ID] = parts["project"]
    return attributes
