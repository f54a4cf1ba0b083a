"""Durability classes of topics: the possible loss when a broker crashes."""

from __future__ import annotations

from enum import Enum

from pullstream_emulator.error_texts import invalid_argument
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# The label that sets the class of a topic. Every client library can set labels.
LABEL = "pullstream-durability"

# Default bound for the loss of confirmed messages in a crash at class disk, in seconds.
MAX_LOSS = 0.5


class Durability(Enum):
    """The durability of a topic's messages and of their acknowledgements."""

    # Kept only in the memory of the broker's process.
    MEMORY = "memory"
    # Written shortly after the reply. A crash loses changes that are not written yet.
    DISK = "disk"
    # Written before the reply of the call.
    FSYNC = "fsync"


def durability_of(topic: pubsub.Topic, default: Durability) -> Durability:
    """Return the class of a topic: the class in its label, otherwise `default`.

    Raises:
        InvalidArgument: The label does not name a class.
    """
    named = topic.labels.get(LABEL)
    if named is None:
        return default
    try:
        return Durability(named)
    except ValueError:
        classes = ", ".join(each.value for each in Durability)
        raise invalid_argument(
            f"label {LABEL} has the value '{named}'; it must be one of {classes}"
        ) from None


def retains(config: pubsub.Topic | pubsub.Subscription) -> bool:
    """Return whether these settings retain messages that every subscription has finished."""
    if isinstance(config, pubsub.Topic):
        return config.HasField("message_retention_duration")
    return config.retain_acked_messages
