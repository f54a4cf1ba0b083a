"""The options of the sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from protocol import names
from protocol.errors import InvalidArgument
from subscriber.connection import locate

from .option_text import SECONDS, TEXT, Kind, read_options
from .sink_publisher import RETRY_FOR

SINK_OPTIONS: dict[str, Kind] = {
    "topic": TEXT,
    "project": TEXT,
    "endpoint": TEXT,
    "retrySeconds": SECONDS,
}

# What a streaming query is told in the same way, and hands on.
_OF_THE_QUERY = {"checkpointlocation", "queryname"}


@dataclass(frozen=True)
class SinkOptions:
    """Where to publish, and how long to try; as `SinkPublisher` takes it."""

    topic: str
    endpoint: str
    retry_seconds: float

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Read what Spark hands over.

        The environment is looked at here, on the driver: executors may have another.

        Raises:
            ValueError: an option is unknown, missing, or not of its form.
        """
        own = {name: text for name, text in given.items() if name.lower() not in _OF_THE_QUERY}
        values = read_options(SINK_OPTIONS, own)
        target = locate(endpoint=values.get("endpoint"))
        return cls(
            topic=_full_name(values.get("topic"), values.get("project")),
            endpoint=f"{'http' if target.plaintext else 'https'}://{target.address}",
            retry_seconds=values.get("retrySeconds", RETRY_FOR),
        )


def _full_name(topic: str | None, project: str | None) -> str:
    form = "projects/P/topics/T, or T alone with the option 'project'"
    if topic is None:
        raise ValueError(f"option 'topic' is missing; the sink needs {form}")
    if "/" in topic:
        full = topic
    else:
        full = names.topic_path(project or os.environ.get("GOOGLE_CLOUD_PROJECT", ""), topic)
    try:
        return names.validate("topics", full)
    except InvalidArgument:
        raise ValueError(
            f"option 'topic' is {topic!r}, which gives {full}; it must be {form}"
        ) from None
