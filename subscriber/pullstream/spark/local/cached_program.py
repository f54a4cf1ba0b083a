"""Small programs in the user's cache folder, which Spark starts in place of the real ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder of this name in pullstream's cache; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pullstream", name)


def write_program(path: Path, text: str) -> None:
    """Write an executable file, if it has not this text already. It is kept for later processes.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    # Replaced atomically, because another process may be about to run the present file.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as fresh:
        fresh.write(text)
    os.chmod(fresh.name, 0o755)
    os.replace(fresh.name, path)
