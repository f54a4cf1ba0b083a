"""`pullstream seek` and `pullstream purge`."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import names
from pullstream_protocol.clock import ManualClock
from tests.subscriber.command_line import Result, pullstream

SUBSCRIPTION = names.subscription_path("p", "billing")


def run(*arguments: str) -> Result:
    return pullstream(*arguments, "--project", "p")


@pytest.fixture
def billing(emulator: Emulator) -> None:
    run("topics", "create", "orders")
    run("subscriptions", "create", "billing", "--topic", "orders", "--retain-acked-messages")


@pytest.mark.usefixtures("billing")
def test_the_seek_command_to_a_time_redelivers_acknowledged_messages(
    emulator: Emulator, clock: ManualClock
) -> None:
    """The time is absolute, or a duration before the broker's time."""
    run("publish", "orders", "a")
    clock.advance(600)
    run("publish", "orders", "b")
    clock.advance(600)
    run("pull", "billing", "--ack")
    assert emulator.backlog(SUBSCRIPTION) == 0
    assert run("seek", "billing", "--time", "15m").lines == [f"{SUBSCRIPTION} moved"]
    assert emulator.backlog(SUBSCRIPTION) == 1
    run("seek", "billing", "--time", "2023-11-14T22:13:20Z")
    assert emulator.backlog(SUBSCRIPTION) == 2
    run("seek", "billing", "--time", "2023-11-14T23:13:21+01:00")
    assert emulator.backlog(SUBSCRIPTION) == 1


@pytest.mark.usefixtures("billing")
def test_the_purge_command_asks_for_confirmation_and_then_empties_the_backlog(
    emulator: Emulator, clock: ManualClock
) -> None:
    """A broker's clock may be ahead. A person is asked first."""
    clock.advance(20 * 86_400)
    run("publish", "orders", "a", "b")
    clock.advance(1)
    assert pullstream("purge", "billing", "--project", "p", stdin=b"n\n").code == 130
    assert emulator.backlog(SUBSCRIPTION) == 2
    assert run("purge", "billing", "--yes").lines == [f"{SUBSCRIPTION} purged"]
    assert emulator.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "Give either --time or --snapshot"),
        (("--time", "1h", "--snapshot", "s"), "Give either --time or --snapshot"),
        (("--time", "yesterday"), "--time is 'yesterday'; it must be a time such as"),
        (("--time", "2026-11-26T10:00:00"), "add Z for UTC, or an offset such as +02:00"),
        (("--time", "2026-11-26"), "add Z for UTC, or an offset such as +02:00"),
    ],
)
def test_an_invalid_time_argument_of_the_seek_command_is_a_usage_error(
    options: tuple[str, ...], text: str
) -> None:
    """The error shows the allowed forms."""
    result = run("seek", "billing", *options)
    assert result.code == 2
    assert text in " ".join(result.stderr.split())
