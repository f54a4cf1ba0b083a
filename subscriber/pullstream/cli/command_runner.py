"""Runs a shell command for a message: data on stdin, other fields in the environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
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
        self._running: set[_Command] = set()
        self._terminated = False

    def run(self, record: Mapping[str, Any], data: bytes) -> int:
        """Run the command for a message and return its exit code.

        After `terminate`, it starts nothing and returns `-SIGTERM`, as for a terminated command.

        Args:
            record: The message as a result of `message_record`.
            data: The data.
        """
        environment = {**os.environ, **command_environment(record, self._subscription)}
        command = _Command()
        # Before the start: a command that `terminate` does not know would outlive the program.
        self._running.add(command)
        try:
            with command.starting:
                if self._terminated:
                    return -signal.SIGTERM
                process = command.process = subprocess.Popen(
                    self._command,
                    shell=True,
                    stdin=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
            with process:
                process.communicate(data)
            return process.returncode
        finally:
            self._running.discard(command)

    def terminate(self) -> None:
        """Send SIGTERM to the process group of each running command, and let no command start.

        May be called in a signal handler of a thread that runs no command. Waits for commands that
        are starting.
        """
        self._terminated = True
        for command in self._running.copy():
            with command.starting:
                process = command.process
            if process is not None and process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)


class _Command:
    """A command that runs, or is about to start.

    Attributes:
        starting: Held during the start. Reentrant, because a signal handler may interrupt itself.
        process: The process, after the start.
    """

    def __init__(self) -> None:
        self.starting = threading.RLock()
        self.process: subprocess.Popen[bytes] | None = None


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
