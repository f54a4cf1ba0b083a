"""Whether two names of tables mean one place."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath
from posixpath import normpath
from urllib.parse import unquote, urlparse


def folder_here(path: str) -> Path | None:
    """`path`, if it is a folder on this machine."""
    if path.startswith("file:"):
        return Path(unquote(urlparse(path).path))
    return None if ":" in path.partition("/")[0] else Path(path)


def overlap(one: str, other: str) -> bool:
    """Whether two folders are the same, or one is in the other."""
    first, second = _normal(one), _normal(other)
    return first.is_relative_to(second) or second.is_relative_to(first)


def _normal(path: str) -> PurePath:
    """A folder in one form, of the several that it has."""
    folder = folder_here(path)
    return PurePosixPath(normpath(path)) if folder is None else folder.resolve()
