"""Limits of a Publish request, which the SDK and the broker check.

https://cloud.google.com/pubsub/quotas#resource_limits
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_REQUEST_BYTES = 10_000_000
MAX_REQUEST_MESSAGES = 1_000
MAX_ATTRIBUTES = 100
MAX_ATTRIBUTE_NAME_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1024
MAX_ORDERING_KEY_BYTES = 1024

# Publishers write these attributes when tracing is enabled.
TRACE_ATTRIBUTES = frozenset({"googclient_traceparent", "googclient_tracestate"})

# Publishing refuses all names with this prefix except TRACE_ATTRIBUTES.
RESERVED_PREFIX = "goog"

# Servers and client libraries add attributes with this prefix to the messages that they deliver,
# such as googclient_schemaname.
_DELIVERY_PREFIX = "googclient_"


def is_reserved(attribute: str) -> bool:
    """Return whether a message with an attribute of this name cannot be published."""
    return attribute.startswith(RESERVED_PREFIX) and attribute not in TRACE_ATTRIBUTES


def is_added_on_delivery(attribute: str) -> bool:
    """Return whether the publisher of a message cannot have set an attribute of this name."""
    return attribute.startswith(_DELIVERY_PREFIX) and attribute not in TRACE_ATTRIBUTES


def publishable(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a received message without those that publishing refuses."""
    return {name: value for name, value in attributes.items() if not is_reserved(name)}
