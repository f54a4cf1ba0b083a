"""Times on the command line: invalid ones are refused before any request."""

from __future__ import annotations

import pytest

from tests.subscriber.command_line import usage_error


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "command",
    [
        ("fetch", "billing", "--timeout"),
        ("pull", "billing", "--wait"),
        ("subscribe", "billing", "--idle-exit"),
        ("worker", "module:callback", "--subscription", "billing", "--shutdown-timeout"),
    ],
)
def test_a_command_line_option_in_seconds_accepts_only_plain_finite_numbers(
    command: tuple[str, ...], value: str
) -> None:
    """Python would accept these values as numbers."""
    assert f"'{value}' is not a number of seconds." in usage_error(*command, value)


def test_a_command_line_option_refuses_durations_that_are_too_long_to_represent() -> None:
    """Longer ones cannot be represented."""
    error = usage_error("feeds", "put", "orders", "--ttl", "9999999999d")
    assert "'9999999999d' is too long; it must be less than 1e9 days." in error
