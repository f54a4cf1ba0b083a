"""A subscription of the command line's project, its messages, and commands in other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pullstream.topics import TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.command_line import pullstream

TOPIC = names.topic_path("test-project", "orders")
SUBSCRIPTION = names.subscription_path("test-project", "billing")

Process = subprocess.Popen[bytes]


@pytest.fixture
def billing(pubsub_emulator: Emulator) -> None:
    pullstream("topics", "create", "orders")
    pullstream("subscriptions", "create", "billing", "--topic", "orders")


def publish(*messages: bytes, **fields: object) -> list[str]:
    with TopicAdminClient() as client:
        return client.publish(TOPIC, [{"data": data, **fields} for data in messages])


@contextmanager
def command(*args: str) -> Iterator[Process]:
    """Run a command as a separate process."""
    program = [sys.executable, "-m", "pullstream", *args]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        yield running
        running.kill()


def next_line(process: Process) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()
