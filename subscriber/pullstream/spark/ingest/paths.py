"""Comparison of table locations."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath
from posixpath import normpath
from urllib.parse import unquote, urlparse


def folder_here(path: str) -> Path | None:
    """Return `path` as a local path, or None if it is a URL of another file system."""
    if path.startswith("file:"):
        return Path(unquote(urlparse(path).path))
    return None if ":" in path.partition("/")[0] else Path(path)


def overlap(one: str, other: str) -> bool:
    """Return whether two folders are the same, or one is inside the other."""
    first, second = _normal(one), _normal(other)
    return first.is_relative_to(second) or second.is_relative_to(first)


def _normal(path: str) -> PurePath:
    """Return a folder in normal form, so that two spellings of it are equal."""
    folder = folder_here(path)
    return PurePosixPath(normpath(path)) if folder is None else folder.resolve()
