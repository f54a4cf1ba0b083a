"""The program of a receiver ends with its input, and may be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream_protocol.clock import ManualClock
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.receiver_processes.world import LEASE, SUBSCRIPTION, Query, World
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


@contextmanager
def receiver(world: World, available_now: bool = False, **options: str) -> Iterator[Any]:
    """Provide the process of a receiver, which is killed at the end of the block."""
    given = {
        "options": {
            "subscription": SUBSCRIPTION,
            "spoolDir": str(world.spool),
            "endpoint": world.broker.endpoint,
            "lingerMs": "10",
            "drainWaitMs": "200",
            **options,
        },
        "count": 1,
        "availableNow": available_now,
        "line": None,
    }
    process: Any = subprocess.Popen(
        [sys.executable, "-m", "pullstream.spark.receiver_processes.program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_receiver_program_ends_with_its_input_and_returns_its_messages(world: World) -> None:
    """The input ends when the process that has started it ends, however that happens."""
    world.publish(b"1", b"2", b"3")
    with receiver(world, maxMessagesPerTrigger="2", lingerMs="100000") as process:
        eventually(lambda: len(world.broker.history.deliveries()) == 3 and world.manifests == 1)
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0
    assert len(world.returned) == 3


def test_a_killed_receiver_loses_nothing_and_doubles_nothing(world: World) -> None:
    """Its segment stays, and its redelivered messages are left out."""
    published = world.publish(b"1", b"2", b"3")
    with receiver(world, maxMessagesPerTrigger="2", lingerMs="100000") as process:
        eventually(lambda: len(world.broker.history.deliveries()) == 3 and world.manifests == 1)
        process.send_signal(signal.SIGKILL)
    wait_until_unread(world.broker, SUBSCRIPTION)
    world.broker.clock.advance(LEASE + 1)
    # The broker's clock does not advance: the receiver is another process, with the system's clock.
    clock = ManualClock()
    query = Query(world.folder, Acknowledge.COMMITTED, clock)
    with receiver(world, True) as process:

        def has_ended() -> bool:
            query.step()
            clock.advance(1)
            return process.poll() is not None

        eventually(has_ended)
        assert process.returncode == 0
    assert sorted(query.ids) == published
    assert query.coordinator.counts.left_out == 2
    assert world.acked == set(published)


def test_a_receiver_program_writes_its_error_in_one_line(world: World) -> None:
    """Errors of options, too."""
    for name, value, error in (
        ("subscription", "projects/p/subscriptions/other", "NotFound: "),
        ("lingerMs", "soon", "ValueError: option 'lingerMs' is 'soon'; it must be"),
    ):
        with receiver(world, False, **{name: value}) as process:
            output = process.stdout.read().decode()
            assert process.wait(TIMEOUT) == 1
            assert output.startswith(error)
            assert output.count("\n") == 1
