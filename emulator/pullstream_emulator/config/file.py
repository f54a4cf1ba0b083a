"""Configuration files, YAML or JSON: schemas, topics, subscriptions and messages.

    project: my-project
    topics:
      - name: orders
    subscriptions:
      - name: billing
        topic: orders
        ackDeadlineSeconds: 30

Each entry has the fields of the API's resource, by their JSON names. A name without a slash is an
id in the project that the file names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from pullstream_emulator import config_files
from pullstream_protocol import names
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema

from .seeds import ConfigError, Seed, Seeds

# A file's path, or the content of such a file.
ConfigSource = str | os.PathLike[str] | Mapping[str, Any]

_BASE64 = re.compile(r"[A-Za-z0-9+/\-_]*={0,2}")
_SECTIONS = ("schemas", "topics", "subscriptions", "messages")


def load(source: ConfigSource) -> Seeds:
    """Read and check a whole configuration.

    Raises:
        ConfigError: The configuration cannot be read, or an entry does not have the API's form.
    """
    if isinstance(source, Mapping):
        return _File("config", source).seeds()
    path = Path(source)
    try:
        content = config_files.read(path)
    except config_files.Unreadable as error:
        raise ConfigError(": ".join(filter(None, (str(error), error.detail)))) from error
    return _File(str(path), content).seeds()


class _File:
    """A configuration while it is read; `name` identifies it in errors."""

    def __init__(self, name: str, content: Any) -> None:
        self._name = name
        if content is None:
            content = {}
        if not isinstance(content, Mapping):
            raise ConfigError(f"{name}: must have sections such as topics, not {content!r}")
        for section in content:
            if section not in ("project", *_SECTIONS):
                known = ", ".join(("project", *_SECTIONS))
                raise ConfigError(f"{name}: there is no section {section!r}; there are {known}")
        self._content = content
        self._project = content.get("project") or os.environ.get("PUBSUB_PROJECT_ID") or ""
        if not isinstance(self._project, str) or "/" in self._project:
            raise ConfigError(f"{name}: project: must be a project's id, not {self._project!r}")

    def seeds(self) -> Seeds:
        makers = (self._schema, self._topic, self._subscription, self._message)
        return Seeds(
            tuple(
                maker(where, fields)
                for section, maker in zip(_SECTIONS, makers, strict=True)
                for where, fields in self._entries(section)
            )
        )

    def _entries(self, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
        entries = self._content.get(section)
        if entries is None:
            return
        if not isinstance(entries, list):
            raise ConfigError(f"{self._name}: {section}: must be a list, not {entries!r}")
        for number, fields in enumerate(entries):
            where = f"{self._name}: {section}[{number}]"
            if not isinstance(fields, Mapping):
                raise ConfigError(f"{where}: must have fields such as name, not {fields!r}")
            yield where, dict(fields)

    # ---- entries -------------------------------------------------------------------------------

    def _schema(self, where: str, fields: dict[str, Any]) -> Seed:
        parsed = _parse(where, fields, schema.Schema())
        name = self._full(where, "name", parsed.name, names.schema_path)
        parent, _, schema_id = name.rpartition("/schemas/")
        parsed.ClearField("name")
        request = schema.CreateSchemaRequest(parent=parent, schema_id=schema_id, schema=parsed)
        return Seed(where, "CreateSchema", request)

    def _topic(self, where: str, fields: dict[str, Any]) -> Seed:
        topic = _parse(where, fields, pubsub.Topic())
        topic.name = self._full(where, "name", topic.name, names.topic_path)
        if topic.HasField("schema_settings"):
            settings = topic.schema_settings
            settings.schema = self._full(
                where, "schemaSettings.schema", settings.schema, names.schema_path
            )
        return Seed(where, "CreateTopic", topic)

    def _subscription(self, where: str, fields: dict[str, Any]) -> Seed:
        subscription = _parse(where, fields, pubsub.Subscription())
        subscription.name = self._full(where, "name", subscription.name, names.subscription_path)
        subscription.topic = self._full(where, "topic", subscription.topic, names.topic_path)
        if subscription.HasField("dead_letter_policy"):
            policy = subscription.dead_letter_policy
            policy.dead_letter_topic = self._full(
                where,
                "deadLetterPolicy.deadLetterTopic",
                policy.dead_letter_topic,
                names.topic_path,
            )
        return Seed(where, "CreateSubscription", subscription)

    def _message(self, where: str, fields: dict[str, Any]) -> Seed:
        """Read a PubsubMessage that also has `topic`, and may have `text` instead of `data`."""
        topic = self._full(where, "topic", fields.pop("topic", ""), names.topic_path)
        text = fields.pop("text", None)
        data = fields.get("data", "")
        if not isinstance(data, str) or len(data) % 4 or not _BASE64.fullmatch(data):
            raise ConfigError(f"{where}.data: must be base64 (or give text), not {data!r}")
        message = _parse(where, fields, pubsub.PubsubMessage())
        if text is not None:
            if not isinstance(text, str) or message.data:
                raise ConfigError(f"{where}.text: must be text that replaces data, not {text!r}")
            message.data = text.encode()
        return Seed(where, "Publish", pubsub.PublishRequest(topic=topic, messages=[message]))

    def _full(self, where: str, field: str, name: Any, path: Callable[[str, str], str]) -> str:
        """Return a resource's full name, given that name or the resource's id."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}.{field}: must be a name or an id, not {name!r}")
        if "/" in name:
            return name
        if not self._project:
            raise ConfigError(
                f"{where}.{field}: {name!r} is an id: set project, or PUBSUB_PROJECT_ID"
            )
        return path(self._project, name)


def _parse(where: str, fields: Mapping[str, Any], into: Message) -> Any:
    """Parse field by field, so that an error can name its field."""
    for field, value in fields.items():
        try:
            ParseDict({field: value}, into)
        except (ParseError, TypeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"{where}.{field}: {text}: {value!r}") from error
    return into
