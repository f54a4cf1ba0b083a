"""Runs a shell command for a message: data on stdin, the rest in the environment."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any


def run_command(command: str, record: Mapping[str, Any], data: bytes, subscription: str) -> int:
    """Run `command` and return its exit code; `record` is what `message_record` made."""
    environment = {**os.environ, **command_environment(record, subscription)}
    return subprocess.run(command, shell=True, input=data, env=environment, check=False).returncode


def command_environment(record: Mapping[str, Any], subscription: str) -> dict[str, str]:
    """PUBSUB_MESSAGE_ID and the like, and PUBSUB_ATTR_<KEY> for each attribute.

    Keys are put in capitals, with `_` for what cannot stand in a variable's name. Values lose their
    NULs, which no environment can hold.
    """
    variables = {
        "PUBSUB_SUBSCRIPTION": subscription,
        "PUBSUB_MESSAGE_ID": record["messageId"],
        "PUBSUB_PUBLISH_TIME": record["publishTime"],
        "PUBSUB_ORDERING_KEY": record["orderingKey"],
        "PUBSUB_DELIVERY_ATTEMPT": str(record.get("deliveryAttempt", "")),
    }
    for key, value in record["attributes"].items():
        variables[f"PUBSUB_ATTR_{re.sub(r'[^A-Za-z0-9]', '_', key).upper()}"] = value
    return {name: value.replace("\0", "") for name, value in variables.items()}
