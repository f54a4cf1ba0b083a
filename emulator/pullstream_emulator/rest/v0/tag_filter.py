"""Conversion of /v0's filters, ["tag", "Eq", "a"] and ["tag", "Glob", "a*"], to the broker's.

The broker's filters are text in the filter language of subscriptions. A star is allowed at the end
only, and matches any ending. A record without a tag matches no filter.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from pullstream_protocol.errors import InvalidArgument

_FORMS = {
    "Eq": re.compile(r'attributes\.tag = (".*")', re.DOTALL),
    "Glob": re.compile(r'hasPrefix\(attributes\.tag, (".*")\)', re.DOTALL),
}


def to_text(value: Any, at: str) -> str:
    """Convert a filter to the broker's filter; `at` is its name in errors.

    Raises:
        InvalidArgument: The value is not a filter of /v0.
    """
    match value:
        case ["tag", "Eq", str() as tag]:
            return f"attributes.tag = {_quoted(tag)}"
        case ["tag", "Glob", str() as pattern] if pattern.endswith("*") and pattern.count("*") == 1:
            return f"hasPrefix(attributes.tag, {_quoted(pattern[:-1])})"
    raise InvalidArgument(
        f'{at} must be ["tag", "Eq", TEXT], or ["tag", "Glob", TEXT] with one * at its end.'
    )


def to_json(filter_text: str) -> Any:
    """Convert the broker's filter to /v0's, or return its text if impossible; None if empty."""
    for operator, form in _FORMS.items():
        match = form.fullmatch(filter_text)
        if match is not None:
            with contextlib.suppress(ValueError, InvalidArgument):
                value = ["tag", operator, json.loads(match[1]) + "*" * (operator == "Glob")]
                if to_text(value, "filter") == filter_text:
                    return value
    return filter_text or None


def _quoted(value: str) -> str:
    # The filter language includes JSON's escapes.
    return json.dumps(value, ensure_ascii=False)
