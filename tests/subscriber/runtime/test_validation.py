"""Wrong arguments are refused with their name, their value and the allowed form."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream.runtime.validation import (
    require_int,
    require_number,
    require_positive,
    require_timeout,
)


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (require_number, [0, -1.5, float("inf")]),
        (require_int, [0, -3]),
        (require_positive, [1, 10**9]),
        (require_timeout, [0.001, 7, None]),
    ],
)
def test_argument_checks_accept_allowed_values_and_return_them_unchanged(
    check: Any, values: list[Any]
) -> None:
    """The value is not converted."""
    assert [check("limit", value) for value in values] == values


@pytest.mark.parametrize(
    ("check", "value", "error", "text"),
    [
        (require_number, True, TypeError, "limit is True; it must be a number"),
        (require_number, "1", TypeError, "limit is '1'; it must be a number"),
        (require_number, float("nan"), ValueError, "limit is nan; it must be a number"),
        (require_int, 1.0, TypeError, "limit is 1.0; it must be an int"),
        (require_int, False, TypeError, "limit is False; it must be an int"),
        (require_positive, 0, ValueError, "limit is 0; it must be at least 1"),
        (require_positive, 1.5, TypeError, "limit is 1.5; it must be an int"),
        (require_timeout, 0, ValueError, "limit is 0; it must be above 0 seconds, or None"),
        (require_timeout, float("nan"), ValueError, "limit is nan; it must be a number"),
    ],
)
def test_argument_checks_refuse_invalid_values_with_an_error_that_names_the_argument(
    check: Any, value: object, error: type[Exception], text: str
) -> None:
    """The error names the argument."""
    with pytest.raises(error) as refused:
        check("limit", value)
    assert str(refused.value) == text
