"""The file of `--auth-file`: the tokens of each principal, and the projects it may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pullstream_emulator import config_files

from .access import AccessError, Principal

_FORM = "must have the keys 'tokens' and 'projects', each a list of strings"


def read(path: Path) -> dict[str, Principal]:
    """Return the principal of each token from a file: JSON (name ends in `.json`) or YAML.

    Raises:
        AccessError: The file cannot be read or is malformed. The text names the place, but never
            contains a token.
    """
    try:
        content = config_files.read(path)
    except config_files.Unreadable as error:
        raise AccessError(str(error)) from None
    if content is None:
        raise AccessError(
            f"{path}: the file is empty: write the key 'principals' with their tokens and projects "
            "to it, or leave out --auth-file for a broker without tokens"
        )
    principals = content.get("principals") if isinstance(content, dict) else None
    if not isinstance(principals, dict) or not principals or len(content) != 1:
        raise AccessError(f"{path}: must have one key, 'principals', a table of principals by name")
    tokens: dict[str, Principal] = {}
    names = [str(name) for name in principals]
    if len(set(names)) < len(names):
        # The keys 7 and "7" are different in YAML.
        twice = next(name for name in names if names.count(name) > 1)
        raise AccessError(
            f"{path}: the principal {twice!r} is given twice: merge its entries, or rename one"
        )
    for name, entry in principals.items():
        place = f"{path}: principals.{name}"
        if not isinstance(entry, dict) or set(entry) != {"tokens", "projects"}:
            raise AccessError(f"{place} {_FORM}")
        principal = Principal(
            str(name), frozenset(_strings(entry["projects"], f"{place}.projects"))
        )
        for token in _strings(entry["tokens"], f"{place}.tokens"):
            if token in tokens:
                raise AccessError(f"{place}.tokens: a token occurs twice in this file")
            tokens[token] = principal
    return tokens


def _strings(value: Any, place: str) -> list[str]:
    """Return `value` if it is a list of strings that can be sent in a header as they are."""
    if not isinstance(value, list) or not value:
        raise AccessError(f"{place} must be a list of at least one string")
    for item in value:
        if not isinstance(item, str) or not item.isascii() or not item.isprintable() or " " in item:
            raise AccessError(f"{place}: each item must be text in ASCII without spaces")
        if not item:
            raise AccessError(f"{place}: no item may be empty")
    return value
