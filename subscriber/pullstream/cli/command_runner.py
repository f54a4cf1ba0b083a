"""Runs a shell command for a message: data on stdin, other fields in the environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class CommandRunner:
    """Runs shell commands, each in a new session. Several threads may run commands at once.

    Ctrl-C in a terminal sends SIGINT to all processes of the foreground group. A command in another
    session does not receive the signal, so it can finish while the program shuts down.
    """

    def __init__(self, command: str, subscription: str) -> None:
        self._command = command
        self._subscription = subscription
        # A signal handler may read the set. `add`, `discard` and `copy` are atomic.
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, record: Mapping[str, Any], data: bytes) -> int:
        """Run the command for a message and return its exit code.

        Args:
            record: The message as a result of `message_record`.
            data: The data.
        """
        environment = {**os.environ, **command_environment(record, self._subscription)}
        with subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        ) as process:
            self._running.add(process)
            try:
                process.communicate(data)
            finally:
                self._running.discard(process)
        return process.returncode

    def terminate(self) -> None:
        """Send SIGTERM to the process group of each running command.

        May be called in a signal handler.
        """
        for process in self._running.copy():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)


def command_environment(record: Mapping[str, Any], subscription: str) -> dict[str, str]:
    """Return PUBSUB_MESSAGE_ID and the other variables, and PUBSUB_ATTR_<KEY> for each attribute.

    Keys are converted to upper case, and characters that are not allowed in variable names to `_`.
    NULs are removed from values, because an environment cannot contain them.
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
