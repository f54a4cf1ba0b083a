"""Files that tell a broker something: JSON (a name in `.json`) or YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Unreadable(ValueError):
    """Why a file cannot be used. The text names it and quotes nothing of it; `detail` may."""

    def __init__(self, path: Path, problem: str, detail: str = "") -> None:
        super().__init__(f"{path}: {problem}")
        self.detail = " ".join(detail.split())


def read(path: Path) -> Any:
    """What the file holds.

    Raises:
        Unreadable: it cannot be read, is neither, or is YAML and there is nothing to read it with.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(path, str(error.strerror)) from None
    except UnicodeDecodeError:
        raise Unreadable(path, "not UTF-8") from None
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise Unreadable(path, f"not JSON, at line {error.lineno}", error.msg) from None
    return _read_yaml(path, text)


def _read_yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise Unreadable(
            path, "YAML needs its extra: pip install 'pullstream[emulator]'; or write JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Its own words quote the line.
        mark = getattr(error, "problem_mark", None)
        where = f", at line {mark.line + 1}" if mark is not None else ""
        raise Unreadable(path, f"not YAML{where}", str(error)) from None
