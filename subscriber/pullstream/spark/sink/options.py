"""Options of the sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pullstream.rpc.endpoint import ServerAccess, access_of
from pullstream.spark.option_parsing import SECONDS, TEXT, TOKEN_FILE, Kind, read_options
from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument

from .publisher import RETRY_FOR

SINK_OPTIONS: dict[str, Kind] = {
    "topic": TEXT,
    "project": TEXT,
    "endpoint": TEXT,
    "token": TEXT,
    "tokenFile": TOKEN_FILE,
    "ca": TEXT,
    "cert": TEXT,
    "key": TEXT,
    "retrySeconds": SECONDS,
}

# Options of the streaming query, which Spark passes together with the sink options.
_OF_THE_QUERY = {"checkpointlocation", "queryname"}


@dataclass(frozen=True)
class SinkOptions:
    """Parsed options of the sink, as `SinkPublisher` takes them.

    Attributes:
        topic: Full name of the topic.
        access: Endpoint, token and certificates of the server.
        retry_seconds: Time after which publishing gives up, in seconds.
    """

    topic: str
    access: ServerAccess
    retry_seconds: float

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Parse the options that Spark passes.

        The environment and the files are read here, on the driver: on executors they may differ.

        Raises:
            ValueError: An option is unknown or missing, or its value is invalid.
            OSError: A file cannot be read.
        """
        own = {name: text for name, text in given.items() if name.lower() not in _OF_THE_QUERY}
        values = read_options(SINK_OPTIONS, own)
        if "token" in values and "tokenFile" in values:
            raise ValueError("options 'token' and 'tokenFile' exclude each other: give only one")
        return cls(
            topic=_full_name(values.get("topic"), values.get("project")),
            access=access_of(
                endpoint=values.get("endpoint"),
                token=values.get("token") or values.get("tokenFile"),
                ca=values.get("ca"),
                cert=values.get("cert"),
                key=values.get("key"),
            ),
            retry_seconds=values.get("retrySeconds", RETRY_FOR),
        )


def _full_name(topic: str | None, project: str | None) -> str:
    form = "projects/P/topics/T, or T alone with the option 'project'"
    if topic is None:
        raise ValueError(
            f"option 'topic' is missing; the sink needs {form}. A table of SQL cannot be a sink, "
            "because Spark loses its OPTIONS: use the write.format('pubsub') of a DataFrame"
        )
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
