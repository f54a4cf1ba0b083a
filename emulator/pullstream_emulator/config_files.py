"""Reading of configuration files: JSON (names ending in `.json`) or YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Tag of the YAML key `<<`, which merges another table into the present one.
_MERGE_TAG = "tag:yaml.org,2002:merge"


class Unreadable(ValueError):
    """A file cannot be used.

    The text names the file and quotes no content except a key, because the content may be secret.

    Args:
        path: The file.
        problem: The problem, without content of the file except a key.
        detail: Text that may quote more of the file.

    Attributes:
        detail: Text that may quote more of the file.
    """

    def __init__(self, path: Path, problem: str, detail: str = "") -> None:
        super().__init__(f"{path}: {problem}")
        self.detail = " ".join(detail.split())


def read(path: Path) -> Any:
    """Return the content of a file; None if it is empty.

    Raises:
        Unreadable: The file cannot be read, is neither JSON nor YAML, or has a table with a
            duplicate key; or it is YAML, and PyYAML is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(path, str(error.strerror)) from None
    except UnicodeDecodeError:
        raise Unreadable(path, "not UTF-8") from None
    if not text.strip():
        return None
    if path.suffix == ".json":

        def table(members: list[tuple[str, Any]]) -> dict[str, Any]:
            _check_keys(path, [key for key, _ in members])
            return dict(members)

        try:
            return json.loads(text, object_pairs_hook=table)
        except json.JSONDecodeError as error:
            raise Unreadable(path, f"not JSON, at line {error.lineno}", error.msg) from None
    return _read_yaml(path, text)


def _read_yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise Unreadable(
            path, "YAML needs PyYAML: pip install 'pullstream[emulator]'; or use JSON"
        ) from None

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            # Collect the keys first: super() adds the keys of merged tables to the node, which
            # this table may override.
            keys = [
                self.construct_object(key, deep=True)
                for key, _ in node.value
                if key.tag != _MERGE_TAG
            ]
            table = super().construct_mapping(node, deep)
            _check_keys(path, keys)
            return table

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        # The parser's text quotes a line of the file, so it goes into `detail`.
        mark = getattr(error, "problem_mark", None)
        where = f", at line {mark.line + 1}" if mark is not None else ""
        raise Unreadable(path, f"not YAML{where}", str(error)) from None


def _check_keys(path: Path, keys: Iterable[object]) -> None:
    """Refuse duplicate keys: a parser would keep the last value and silently drop the others."""
    known = set()
    for key in keys:
        if key in known:
            raise Unreadable(
                path, f"the key {key!r} is given twice in one table: merge the two, or remove one"
            )
        known.add(key)
