"""The file of `--auth-file`: tokens of each principal, and the projects it may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emulator import documents

from .access import AccessError, Principal

_FORM = "must have the keys 'tokens' and 'projects', each a list of strings"


def read(path: Path) -> dict[str, Principal]:
    """Whose each token is, as JSON (a name in `.json`) or YAML says.

    Raises:
        AccessError: the file cannot be read, or is not as it should be. The text names the place,
            and never a token.
    """
    try:
        content = documents.read(path)
    except documents.Unreadable as error:
        raise AccessError(str(error)) from None
    principals = content.get("principals") if isinstance(content, dict) else None
    if not isinstance(principals, dict) or not principals or len(content) != 1:
        raise AccessError(f"{path}: must have the one key 'principals', a table with their names")
    tokens: dict[str, Principal] = {}
    for name, entry in principals.items():
        place = f"{path}: principals.{name}"
        if not isinstance(entry, dict) or set(entry) != {"tokens", "projects"}:
            raise AccessError(f"{place} {_FORM}")
        principal = Principal(
            str(name), frozenset(_strings(entry["projects"], f"{place}.projects"))
        )
        for token in _strings(entry["tokens"], f"{place}.tokens"):
            if token in tokens:
                raise AccessError(f"{place}.tokens: one of them is given twice in this file")
            tokens[token] = principal
    return tokens


def _strings(value: Any, place: str) -> list[str]:
    """`value` if it is a list of usable strings. A token travels in a header, by itself."""
    if not isinstance(value, list) or not value:
        raise AccessError(f"{place} must be a list of at least one string")
    for item in value:
        if not isinstance(item, str) or not item.isascii() or not item.isprintable() or " " in item:
            raise AccessError(f"{place}: each must be a string of ASCII characters without spaces")
        if not item:
            raise AccessError(f"{place}: none may be empty")
    return value
