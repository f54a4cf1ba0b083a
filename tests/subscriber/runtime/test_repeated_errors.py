"""Errors of one place: the first with its traceback, and then their number."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pullstream.runtime.repeated_errors import (
    FORGET_AFTER,
    MAX_PLACES,
    REPORT_EVERY,
    RepeatedErrors,
)
from pullstream_protocol.clock import ManualClock

LOG = logging.getLogger("pullstream.test")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def no_price() -> None:
    raise ValueError("no price")


def no_stock() -> None:
    raise ValueError("no stock")


def unprintable() -> None:
    raise Unprintable


def raised(function: Callable[[], None]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.exc_info]


def test_only_the_first_of_many_repeated_errors_has_a_traceback_and_the_rest_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    errors = RepeatedErrors(LOG, clock)
    for number in range(100):
        errors.report(raised(no_price), f"message {number} failed")
    errors.report(raised(no_stock), "another place")
    assert caplog.messages == ["message 0 failed", "another place"]
    assert tracebacks(caplog) == caplog.messages
    clock.advance(REPORT_EVERY)
    errors.report(raised(no_price), "message 100 failed")
    assert caplog.messages[2:] == [
        "message 100 failed: ValueError: no price (with the traceback above, 100 times in 10 s)"
    ]
    assert len(tracebacks(caplog)) == 2


def test_the_number_of_repeated_errors_not_yet_logged_is_logged_at_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = RepeatedErrors(LOG, ManualClock())
    for number in range(3):
        errors.report(raised(no_price), f"message {number} failed")
    errors.report_rest()
    errors.report_rest()
    assert caplog.messages == [
        "message 0 failed",
        "message 2 failed: ValueError: no price (with the traceback above, 2 times in 0 s)",
    ]


def test_a_repeated_error_is_logged_with_traceback_again_after_a_long_time_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    errors = RepeatedErrors(LOG, clock)
    for _ in range(2):
        errors.report(raised(no_price), "it failed")
        clock.advance(FORGET_AFTER)
    assert len(tracebacks(caplog)) == 2


def test_a_repeated_error_whose_text_is_empty_is_logged_by_its_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = RepeatedErrors(LOG, ManualClock())
    for _ in range(2):
        errors.report(raised(unprintable), "it failed")
    errors.report_rest()
    assert "Unprintable" in caplog.messages[1]


def test_error_suppression_remembers_only_a_limited_number_of_error_locations() -> None:
    errors = RepeatedErrors(LOG, ManualClock())
    for number in range(MAX_PLACES + 10):
        errors.report(type(f"Error{number}", (Exception,), {})(), "it failed")
    assert len(errors._places) == MAX_PLACES
