"""PUBSUB_PROJECT1=project,topic:subscription:subscription,... and PUBSUB_PROJECT2 and so on.

These variables are a convention of container images for Google's emulator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pullstream_protocol import names

from .seeds import ConfigError, Seed, Seeds, topic_seeds

_NAME = re.compile(r"PUBSUB_PROJECT(\d+)")


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
        topic, *subscriptions = entry.split(":")
        found += topic_seeds(
            f"{variable}: {entry}",
            names.topic_path(project, topic),
            [names.subscription_path(project, each) for each in subscriptions],
        )
    return found
