"""PUBSUB_PROJECT1=project,topic:subscription:subscription,... and PUBSUB_PROJECT2 and so on.

These variables are a convention of container images for Google's emulator. Some images also take an
ack deadline and a push endpoint: `subscription~60+endpoint`. The endpoint is an address without
`http://`, in which `#` stands for a colon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pullstream_protocol import names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .seeds import ConfigError, Seed, Seeds

_NAME = re.compile(r"PUBSUB_PROJECT(\d+)")

# A colon of an endpoint is followed by the slashes of its scheme or by a port. The id of a
# subscription begins with a letter.
_BETWEEN_SUBSCRIPTIONS = re.compile(":(?![0-9/])")

# An id has no slash, so `/ordered` is never a part of it.
_SUBSCRIPTION = re.compile(
    r"(?P<id>[^/+]+?)(?:~(?P<deadline>\d{1,9}))?(?P<ordered>/ordered)?(?:\+(?P<endpoint>.+))?"
)


def seeds_from_environment(environment: Mapping[str, str]) -> Seeds:
    """Return the content that the environment's variables ask for, in the order of their numbers.

    Raises:
        ConfigError: A variable is malformed.
    """
    numbered = sorted((int(m[1]), name) for name in environment if (m := _NAME.fullmatch(name)))
    seeds = Seeds()
    for _, name in numbered:
        seeds += Seeds(tuple(_seeds_of(name, environment[name])))
    return seeds


def _seeds_of(variable: str, value: str) -> list[Seed]:
    project, *topics = value.split(",")
    if not project or not all(topics):
        raise ConfigError(
            f"{variable}: must have the form project,topic:subscription:subscription,...: {value!r}"
        )
    found: list[Seed] = []
    for entry in topics:
        where = f"{variable}: {entry}"
        short, *subscriptions = _BETWEEN_SUBSCRIPTIONS.split(entry)
        topic = names.topic_path(project, short)
        found.append(Seed(where, "CreateTopic", pubsub.Topic(name=topic)))
        found += [
            Seed(where, "CreateSubscription", _subscription(where, project, topic, text))
            for text in subscriptions
        ]
    return found


def _subscription(where: str, project: str, topic: str, text: str) -> pubsub.Subscription:
    """Parse `id`, with `~SECONDS`, `/ordered` and `+ENDPOINT` in this order as far as given."""
    parts = _SUBSCRIPTION.fullmatch(text)
    if parts is None:
        raise ConfigError(
            f"{where}: a subscription must have the form ID[~SECONDS][/ordered][+ENDPOINT]: "
            f"{text!r}"
        )
    endpoint = (parts["endpoint"] or "").replace("#", ":")
    if endpoint and "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    return pubsub.Subscription(
        name=names.subscription_path(project, parts["id"]),
        topic=topic,
        enable_message_ordering=parts["ordered"] is not None,
        ack_deadline_seconds=int(parts["deadline"] or 0),
        push_config=pubsub.PushConfig(push_endpoint=endpoint) if endpoint else None,
    )
