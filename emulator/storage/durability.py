"""How much a broker that stops without warning may forget: the class of a topic."""

from __future__ import annotations

from enum import Enum

from emulator.refusals import invalid_argument
from protocol.messages import pubsub_pb2 as pubsub

# A topic's label of this name sets its class. Labels are what every client can set.
LABEL = "pullstream-durability"


class Durability(Enum):
    """What becomes of a topic's messages, and of their acknowledgements, when the broker stops."""

    # They live as long as the broker's process.
    MEMORY = "memory"
    # Written within moments. A crash loses what was not written yet.
    DISK = "disk"
    # Written before the call that brought them is answered.
    FSYNC = "fsync"


def durability_of(topic: pubsub.Topic, default: Durability) -> Durability:
    """The class of a topic: its label's if it has one.

    Raises:
        InvalidArgument: the label names no class.
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
    """Whether these settings keep messages that every subscription has finished."""
    if isinstance(config, pubsub.Topic):
        return config.HasField("message_retention_duration")
    return config.retain_acked_messages
