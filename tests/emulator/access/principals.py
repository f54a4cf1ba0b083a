"""Principals for tests, and the file of `--auth-file` that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pullstream_emulator.access import Access, Principal

CI = Principal("ci", frozenset({"test", "dev"}))
ROOT = Principal("root")
GOOD = {
    "principals": {
        "ci": {"tokens": ["t-ci", "t-ci-2"], "projects": ["test", "dev"]},
        "root": {"tokens": ["t-root"], "projects": ["*"]},
    }
}


def new_access() -> Access:
    """Return access for the tokens in GOOD."""
    return Access({"t-ci": CI, "t-ci-2": CI, "t-root": ROOT})


def written(folder: Path, content: Any, name: str = "auth.json") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
