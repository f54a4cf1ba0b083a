"""The file of `--auth-file`: tokens of each principal, and the projects it may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .access import AccessError, Principal

_FORM = "must have the keys 'tokens' and 'projects', each a list of strings"


def read(path: Path) -> dict[str, Principal]:
    """Whose each token is, as JSON (a name in `.json`) or YAML says.

    Raises:
        AccessError: the file cannot be read, or is not as it should be. The text names the place,
            and never a token.
    """
    content = _parse(path)
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


def _parse(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AccessError(f"{path}: not UTF-8") from error
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise AccessError(f"{path}: not JSON, at line {error.lineno}") from error
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise AccessError(
            f"{path}: YAML needs its extra: pip install 'pullstream[emulator]'; or use .json"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The error's own text quotes the line, which may hold a token.
        mark = getattr(error, "problem_mark", None)
        where = f", at line {mark.line + 1}" if mark is not None else ""
        raise AccessError(f"{path}: not YAML{where}") from None
