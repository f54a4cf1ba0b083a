"""Texts of strangers in lines of a log or on a terminal."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, and characters that reverse the direction of
# text. In a log they could forge a line; on a terminal they could change its state.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, limit: int | None = None, *, keep_lines: bool = False) -> str:
    r"""Return a text with control characters in the form of Python's escapes, in one line.

    Args:
        text: The text.
        limit: Most characters of the result; None for no limit. A longer text ends with `...`.
        keep_lines: Whether line breaks (`\n`) and tabs stay.
    """

    def escaped(found: re.Match[str]) -> str:
        if keep_lines and found[0] in "\n\t":
            return found[0]
        return found[0].encode("unicode_escape", "surrogatepass").decode()

    line = _UNSAFE.sub(escaped, text)
    if limit is not None and len(line) > limit:
        return line[: limit - 3] + "..."
    return line
