"""Filters of /v0: ["tag", "Eq", "a"] and ["tag", "Glob", "a*"], as the broker's filters.

Those are text, in the language of subscriptions' filters. A star stands for any end, and nowhere
else; a record without a tag passes none of them.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from protocol.errors import InvalidArgument

from .fields import text

_FORMS = {
    "Eq": re.compile(r'attributes\.tag = (".*")', re.DOTALL),
    "Glob": re.compile(r'hasPrefix\(attributes\.tag, (".*")\)', re.DOTALL),
}


def to_text(value: Any, at: str) -> str:
    """The broker's filter for a tuple; `at` names it in an error.

    Raises:
        InvalidArgument: it is no such tuple.
    """
    match value:
        case ["tag", "Eq", str() as tag]:
            return f"attributes.tag = {_quoted(tag, at)}"
        case ["tag", "Glob", str() as pattern] if pattern.endswith("*") and pattern.count("*") == 1:
            return f"hasPrefix(attributes.tag, {_quoted(pattern[:-1], at)})"
    raise InvalidArgument(
        f'{at} must be ["tag", "Eq", TEXT], or ["tag", "Glob", TEXT] with one * at its end.'
    )


def to_json(filter_text: str) -> Any:
    """A filter as a tuple, or as its own text if there is no tuple for it; None for no filter."""
    for operator, form in _FORMS.items():
        found = form.fullmatch(filter_text)
        if found is not None:
            with contextlib.suppress(ValueError, InvalidArgument):
                value = ["tag", operator, json.loads(found[1]) + "*" * (operator == "Glob")]
                if to_text(value, "filter") == filter_text:
                    return value
    return filter_text or None


def _quoted(value: str, at: str) -> str:
    # JSON's escapes are among those of the language.
    return json.dumps(text(value, at), ensure_ascii=False)
